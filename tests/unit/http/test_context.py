"""The access log: which requests are logged at which level, and what the lines hold."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from calve.http.context import RequestContext
from calve.telemetry import logs


class Route:
    operation_id = "leaseJob"


def application(status: int, operation: str | None = None, route: object = None) -> Any:
    async def app(scope: Scope, _receive: Receive, send: Send) -> None:
        if operation is not None:
            scope["calve.operation"] = operation
        scope["route"] = route
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    return app


async def ignore(_message: Any) -> None:
    """The response does not matter here."""


async def nothing() -> Any:
    return {"type": "http.request", "body": b"", "more_body": False}


def serve(app: Any, method: str = "POST", path: str = "/v1/x") -> None:
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "headers": [(b"x-request-id", b"one")],
    }
    asyncio.run(RequestContext(app)(scope, nothing, ignore))


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    output = io.StringIO()
    logs.configure(level="debug", as_json=True, stream=output)
    yield output
    root.handlers[:] = handlers
    root.setLevel(level)


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in stream.getvalue().splitlines()]
    return [line for line in found if line["message"] == "request"]


@pytest.mark.parametrize(
    ("app", "method", "path", "level"),
    [
        (application(200), "POST", "/cdc", "info"),
        (application(200), "GET", "/v1/config", "debug"),
        (application(304), "GET", "/v1/x", "debug"),
        (application(404), "GET", "/v1/x", "info"),
        (application(200), "GET", "/metrics", "debug"),
        (application(503), "GET", "/ready", "error"),
        (application(200, "leaseJob"), "POST", "/lake/v1/jobs", "debug"),
        (application(204, None, Route()), "POST", "/lake/v1/jobs", "debug"),
        (application(200, "keepJob"), "POST", "/lake/v1/jobs/1/heartbeat", "debug"),
        (application(202, "postChanges"), "POST", "/cdc", "debug"),
        (application(400, "postChanges"), "POST", "/cdc", "info"),
        (application(409, "keepJob"), "POST", "/lake/v1/jobs/1/heartbeat", "info"),
        (application(504), "POST", "/v1/x", "error"),
    ],
)
def test_levels(stream: io.StringIO, app: Any, method: str, path: str, level: str) -> None:
    serve(app, method, path)
    assert [line["level"] for line in lines(stream)] == [level]


def test_what_a_line_holds(stream: io.StringIO) -> None:
    serve(application(201, "createTable"), path='/a"b\\' + "a" * 5000)
    (line,) = lines(stream)
    assert line.pop("path") == ('/a"b\\' + "a" * 5000)[:1000]
    assert line.pop("ts").endswith("Z")
    assert line.pop("duration_ms") >= 0
    assert line == {
        "level": "info",
        "message": "request",
        "logger": "calve.access",
        "request_id": "one",
        "method": "POST",
        "status": 201,
        "operation": "createTable",
        "caller": None,
    }


def test_lines_are_written_by_a_thread_and_all_are_there_at_the_end(stream: io.StringIO) -> None:
    context = RequestContext(application(200))

    async def lifespan(_scope: Scope, _receive: Receive, _send: Send) -> None:
        for _ in range(100):
            scope = {"type": "http", "method": "PUT", "path": "/a", "headers": []}
            await context(scope, nothing, ignore)

    asyncio.run(RequestContext(lifespan)({"type": "lifespan"}, nothing, ignore))
    assert len(lines(stream)) == 100
