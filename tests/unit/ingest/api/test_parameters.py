"""The query parameters, headers and path of a request that brings changes."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from catalog.api.errors import add_exception_handlers
from catalog.errors import Invalid
from catalog.identity.open import OpenIdentity
from ingest.api import ApiSettings
from ingest.api.changes import ChangeParameters, ParametersOf, priority_of
from ingest.api.dependencies import TableOf

SETTINGS = ApiSettings()


def parsed(url: str, headers: dict[str, Any] | None = None) -> ChangeParameters | None:
    """The parameters of one request; None if it is refused with 400."""
    found: list[ChangeParameters] = []
    app = FastAPI()
    app.state.ingest = SimpleNamespace(api=SimpleNamespace(settings=SETTINGS))
    app.state.identity = OpenIdentity()
    add_exception_handlers(app)

    @app.post("/cdc")
    async def changes(parameters: ParametersOf) -> None:
        found.append(parameters)

    @app.post("/cdc/{namespace}/{table}")
    async def table_changes(parameters: ParametersOf, table: TableOf) -> None:
        found.append(parameters.to_table(table))

    async def raw(scope: Any, receive: Any, send: Any) -> None:
        scope["path"] = scope["raw_path"].decode()
        await app(scope, receive, send)

    async def post() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(raw), base_url="http://test") as client:
            return await client.post(url, headers=headers)

    response = asyncio.run(post())
    assert response.status_code in (200, 400), response.text
    return found[0] if response.status_code == 200 else None


def test_defaults() -> None:
    found = parsed("/cdc")
    assert found is not None
    assert (found.warehouse, found.wait, found.priority, found.verbose) == ("main", "journal", 1, False)
    assert found.timeout_s == SETTINGS.commit_wait_s
    context = found.context
    assert (context.format, context.table, context.source, context.key, context.batch) == (
        "auto",
        None,
        None,
        None,
        None,
    )


def test_everything_at_once() -> None:
    query = "format=debezium&wait=commit&key=id,%20region&warehouse=w2&timeout_s=1.5&verbose=1"
    headers = {"x-source-id": "s", "x-batch-seq": "7", "x-priority": "P0", "content-type": "text/x"}
    found = parsed(f"/cdc/a%1Fb/t%20x?{query}", headers)
    assert found is not None
    assert found.context.table == ("a", "b", "t x")
    assert found.context.key == ("id", "region")
    assert found.context.batch == "s#7"
    assert (found.warehouse, found.wait, found.timeout_s) == ("w2", "commit", 1.5)
    assert (found.priority, found.verbose, found.context.content_type) == (0, True, "text/x")


@pytest.mark.parametrize(
    ("raw", "levels"),
    [("a.b", ("a", "b")), ("a%1Fb.c", ("a", "b.c")), ("a", ("a",)), ("a%2Fb", ("a/b",))],
)
def test_levels_of_a_namespace(raw: str, levels: tuple[str, ...]) -> None:
    found = parsed(f"/cdc/{raw}/t")
    assert found is not None
    assert found.context.table == (*levels, "t")


def test_ack_means_wait() -> None:
    found = parsed("/cdc?ack=commit")
    assert found is not None
    assert found.wait == "commit"


@pytest.mark.parametrize(
    ("headers", "batch"),
    [
        ({"idempotency-key": "k", "webhook-id": "w"}, "k"),
        ({"webhook-id": "w", "x-source-id": "s", "x-batch-seq": "1"}, "w"),
        ({"x-source-id": "s"}, None),
        ({"idempotency-key": "schlüssel".encode()}, "schlüssel"),
    ],
)
def test_what_names_a_batch(headers: dict[str, Any], batch: str | None) -> None:
    found = parsed("/cdc", headers)
    assert found is not None
    assert found.context.batch == batch


@pytest.mark.parametrize(
    ("query", "headers"),
    [
        ("wait=never", {}),
        ("timeout_s=soon", {}),
        ("timeout_s=-1", {}),
        ("timeout_s=inf", {}),
        ("timeout_s=nan", {}),
        ("key=a,,b", {}),
        ("key=a,a", {}),
        ("key=%ff", {}),
        ("verbose=perhaps", {}),
        ("", {"x-batch-seq": "1"}),
        ("", {"x-source-id": ""}),
        ("", {"x-source-id": b"\xff"}),
        ("", {"x-source-id": "a" * 256}),
        ("", {"x-priority": "9"}),
    ],
)
def test_refused(query: str, headers: dict[str, Any]) -> None:
    assert parsed(f"/cdc?{query}", headers) is None


@pytest.mark.parametrize(("word", "number"), [("0", 0), ("p3", 3), ("high", 0), ("low", 3), (" 2 ", 2)])
def test_priorities(word: str, number: int) -> None:
    assert priority_of(word) == number


def test_an_unknown_priority() -> None:
    with pytest.raises(Invalid):
        priority_of("9")


def test_a_timeout_is_limited() -> None:
    found = parsed("/cdc?timeout_s=1000")
    assert found is not None
    assert found.timeout_s == SETTINGS.commit_wait_s_max
