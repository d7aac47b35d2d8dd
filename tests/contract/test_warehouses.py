"""Warehouses are tenants: their own root, names and numbers. By the API and by the command line."""

from __future__ import annotations

import uuid

import pytest
import sqlalchemy as sa

from catalog.store.migrations import NEWEST
from tests.harness.rest import Rest
from tests.harness.stacks import Stack


@pytest.fixture
def rest(stack: Stack) -> Rest:
    return Rest(stack.url)


@pytest.fixture
def name() -> str:
    return f"wh-{uuid.uuid4().hex[:8]}"


def test_warehouses_are_independent(rest: Rest, name: str) -> None:
    made = rest.lake("POST", "warehouses", json={"name": name})
    assert made.status_code == 200, made.text
    assert made.json()["root"].endswith(f"-{name}")
    other = rest.at(name)
    namespace = other.fresh_namespace()
    table = other.create(namespace, "t")
    assert table["metadata"]["location"].startswith(made.json()["root"] + "/")
    assert rest.call("HEAD", rest.namespace_path(namespace)).status_code == 404
    assert rest.lake("GET", f"warehouses/{name}").json()["number"] == 2
    listed = [found["name"] for found in rest.lake("GET", "warehouses").json()["warehouses"]]
    assert {"main", name} <= set(listed)
    # A table of one warehouse cannot be registered in another.
    body = {"name": "stolen", "metadata-location": table["metadata-location"]}
    mine = rest.fresh_namespace()
    assert rest.call("POST", rest.namespace_path(mine, "register"), json=body).status_code == 400

    assert rest.lake("DELETE", f"warehouses/{name}").status_code == 409
    other.call("DELETE", other.table_path(namespace, "t"))
    other.call("DELETE", other.namespace_path(namespace))
    assert rest.lake("DELETE", f"warehouses/{name}").status_code == 204
    assert rest.lake("GET", f"warehouses/{name}").status_code == 404


def test_a_warehouse_that_is_made_again_lists_its_own_tables(rest: Rest, name: str) -> None:
    """Numbers start again at 0, so the same number means another state."""
    lists = []
    for table in ("before", "after"):
        assert rest.lake("POST", "warehouses", json={"name": name}).status_code == 200
        warehouse = rest.at(name)
        warehouse.ok("POST", warehouse.path("namespaces"), json={"namespace": ["ns"]})
        warehouse.create("ns", table)
        lists.append(warehouse.tables("ns"))
        past = rest.at(f"{name}@2")
        lists.append(past.tables("ns"))
        assert warehouse.call("DELETE", warehouse.table_path("ns", table)).status_code == 204
        assert warehouse.call("DELETE", warehouse.namespace_path("ns")).status_code == 204
        assert rest.lake("DELETE", f"warehouses/{name}").status_code == 204
    assert lists == [["before"], ["before"], ["after"], ["after"]]


def test_names_and_roots_are_checked(stack: Stack, rest: Rest, name: str) -> None:
    for wrong in ("", "a/b", "namespaces", "x" * 64, "main@1", "main~x"):
        assert rest.lake("POST", "warehouses", json={"name": wrong}).status_code == 400
    assert rest.lake("POST", "warehouses", json={"name": "main"}).status_code == 409
    for root in (
        stack.warehouse_root,
        stack.warehouse_root + "/below",
        "http://169.254.169.254/x",
        "ftp://x/y",
    ):
        assert rest.lake("POST", "warehouses", json={"name": name, "root": root}).status_code == 400
    assert rest.lake("DELETE", "warehouses/main").status_code == 409


def test_the_command_line_does_the_same(stack: Stack, rest: Rest, name: str) -> None:
    made = stack.server.command("warehouse", "create", name)
    assert made.returncode == 0, made.stderr
    assert rest.lake("GET", f"warehouses/{name}").status_code == 200
    listed = stack.server.command("warehouse", "list").stdout
    assert {"main", name} <= {line.split("\t")[0] for line in listed.splitlines()}
    again = stack.server.command("warehouse", "create", name)
    assert (again.returncode, again.stderr.strip()) == (1, f"calve: Warehouse already exists: {name}")
    assert stack.server.command("warehouse", "drop", name).returncode == 0


def test_a_database_that_is_newer_is_refused(own_stack: Stack) -> None:
    own_stack.server.stop()
    url = own_stack.database.replace("postgresql://", "postgresql+psycopg://")
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '0099'"))
    engine.dispose()
    for words in (("migrate",), ("serve",)):
        refused = own_stack.server.command(*words)
        assert refused.returncode == 1
        assert "newer than this program knows" in refused.stderr
        assert "Traceback" not in refused.stderr


def test_migrating_twice_changes_nothing(own_stack: Stack) -> None:
    done = own_stack.server.command("migrate")
    assert (done.returncode, done.stdout.strip()) == (0, f"schema version {NEWEST}")
