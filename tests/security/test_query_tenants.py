"""Queries have the rights of their caller: tables, queries and tokens of other tenants stay theirs."""

from __future__ import annotations

import threading
import time
import uuid
from typing import Any

import httpx
import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog

from tests.security.guarded import Guarded, Principal


@pytest.fixture
def tables(guarded: Guarded) -> dict[str, str]:
    """A table in a namespace of its own in two tenants; its full name in each."""
    found = {}
    for name in ("acme", "blue"):
        space = f"q{uuid.uuid4().hex[:8]}"
        properties = {**guarded.stack.client_properties, "token": guarded.admins[name].token}
        properties.pop("type")
        catalog = RestCatalog("lake", warehouse=name, **properties)
        catalog.create_namespace(space)
        table = catalog.create_table((space, "secrets"), pa.schema([("name", pa.string())]))
        table.append(pa.table({"name": [f"secret of {name}"]}))
        found[name] = f"{name}.{space}.secrets"
    return found


def _ask(guarded: Guarded, principal: Principal | None, sql: str, **more: Any) -> httpx.Response:
    headers = {} if principal is None else principal.header
    return httpx.post(f"{guarded.url}/query", json={"sql": sql, **more}, headers=headers, timeout=60)


def test_a_caller_reads_its_own_tables(guarded: Guarded, tables: dict[str, str]) -> None:
    for principal in (guarded.reader, guarded.writer, guarded.admins["acme"], guarded.root):
        response = _ask(guarded, principal, f"SELECT name FROM {tables['acme']}", warehouse="acme")
        assert response.json()["rows"] == [{"name": "secret of acme"}], response.text


def test_tables_of_others_look_absent(guarded: Guarded, tables: dict[str, str]) -> None:
    missing = tables["blue"].replace("blue.", "dune.")
    for name in (tables["blue"], missing):
        for sql in (
            f"SELECT * FROM {name}",
            f"SELECT * FROM {tables['acme']} a, {name} b",
            f"SELECT (SELECT count(*) FROM {name})",
            f"WITH x AS (FROM {name}) SELECT 1 FROM {tables['acme']}",
        ):
            response = _ask(guarded, guarded.reader, sql, warehouse="acme")
            assert response.status_code == 404, response.text
            assert "secret" not in response.text.replace("secrets", "")
        assert _ask(guarded, guarded.reader, "SELECT 1", warehouse=name.split(".")[0]).status_code == 404


def test_one_query_over_several_warehouses(guarded: Guarded, tables: dict[str, str]) -> None:
    sql = f"SELECT a.name, b.name FROM {tables['acme']} a, {tables['blue']} b"
    response = _ask(guarded, guarded.root, sql, warehouse="acme", format="compact")
    assert response.json()["rows"] == [["secret of acme", "secret of blue"]]


def test_without_a_token(guarded: Guarded, tables: dict[str, str]) -> None:
    assert _ask(guarded, None, "SELECT 1").status_code == 401
    assert httpx.get(f"{guarded.url}/query", params={"sql": "SELECT 1"}).status_code == 401
    response = _ask(guarded, guarded.nobody, f"SELECT * FROM {tables['acme']}", warehouse="acme")
    assert response.status_code == 404


def test_the_list_of_queries_is_for_administrators(guarded: Guarded, tables: dict[str, str]) -> None:
    sql = f"SELECT name FROM {tables['acme']}"
    query_id = _ask(guarded, guarded.reader, sql, warehouse="acme").json()["query_id"]
    path = f"{guarded.url}/lake/v1/acme/queries"
    assert httpx.get(path, headers=guarded.reader.header).status_code == 403
    assert httpx.get(path, headers=guarded.admins["blue"].header).status_code == 404
    listed = httpx.get(path, headers=guarded.admins["acme"].header).json()["queries"]
    assert query_id in {query["query_id"] for query in listed}
    theirs = httpx.get(f"{guarded.url}/lake/v1/blue/queries", headers=guarded.admins["blue"].header)
    assert query_id not in theirs.text


def test_a_query_of_another_cannot_be_cancelled(guarded: Guarded) -> None:

    sql = f"SELECT count(*) FROM range(10000000000000) -- {uuid.uuid4().hex}"
    answers: list[httpx.Response] = []
    thread = threading.Thread(
        target=lambda: answers.append(_ask(guarded, guarded.reader, sql, warehouse="acme", timeout_s=20))
    )
    thread.start()
    path, admin = f"{guarded.url}/lake/v1/acme/queries", guarded.admins["acme"].header
    until_s = time.monotonic() + 15
    found: list[str] = []
    while not found and time.monotonic() < until_s:
        listed = httpx.get(path, headers=admin).json()["queries"]
        found = [query["query_id"] for query in listed if query["sql"] == sql]
    url = f"{guarded.url}/query/{found[0]}"
    for other in (guarded.writer, guarded.admins["blue"], guarded.nobody):
        assert httpx.delete(url, headers=other.header).status_code == 404
    assert httpx.delete(url).status_code == 401
    assert httpx.delete(url, headers=guarded.reader.header).status_code == 200
    thread.join(30)
    assert answers[0].status_code == 409
