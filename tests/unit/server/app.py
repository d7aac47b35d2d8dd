"""A small application inside the real middleware and the real server, for tests of serving.

    python -m tests.unit.server.app          serves with the settings of the CALVE_* variables

CALVE_TEST_FAIL=create|lifespan makes it fail at start; /echo, /sleep and so on do as they say.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import sys
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import orjson
from starlette.types import ASGIApp, Receive, Scope, Send

from calve.server.run import serve
from calve.settings import Settings
from calve.startup import StartupError

FAIL = os.environ.get("CALVE_TEST_FAIL", "")
DETAIL = "SELECT secret FROM principals"


async def answer(send: Send, body: bytes, status: int = 200, kind: str = "application/json") -> None:
    headers = [(b"content-type", kind.encode()), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "lifespan":
        await lifespan(receive, send)
    elif scope["type"] == "websocket":
        await websocket(receive, send)
    else:
        route = scope["path"].strip("/").split("/")[0] or "root"
        scope["calve.operation"] = route if route in ROUTES else "other"
        await ROUTES.get(route, echo)(scope, receive, send)


async def lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        if FAIL == "lifespan" and message["type"] == "lifespan.startup":
            raise StartupError("the lake is frozen.")
        await send({"type": message["type"] + ".complete"})
        if message["type"] == "lifespan.shutdown":
            return


async def websocket(receive: Receive, send: Send) -> None:
    await receive()
    await send({"type": "websocket.accept"})
    while (message := await receive())["type"] == "websocket.receive":
        await send({"type": "websocket.send", "text": message["text"].upper()})


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """What arrived."""
    message = await receive()
    body = message["body"]
    assert not message["more_body"]
    seen = {
        "method": scope["method"],
        "path": scope["raw_path"].decode(),
        "length": len(body),
        "sha256": hashlib.sha256(body).hexdigest(),
        "headers": {name.decode(): value.decode() for name, value in scope["headers"]},
        "pid": os.getpid(),
    }
    await answer(send, orjson.dumps(seen))


def query(scope: Scope) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(scope["query_string"].decode()).items()}


async def sleep(scope: Scope, _receive: Receive, send: Send) -> None:
    """Takes its time; with `file`, leaves a mark when it is done, as a commit would."""
    asked = query(scope)
    if "begun" in asked:
        await asyncio.to_thread(Path(asked["begun"]).touch)
    await asyncio.sleep(float(asked["s"]))
    if "file" in asked:
        await asyncio.to_thread(Path(asked["file"]).touch)
    await answer(send, b"{}")


async def boom(_scope: Scope, _receive: Receive, _send: Send) -> None:
    raise RuntimeError(DETAIL)


async def half(_scope: Scope, _receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"10")]})
    await send({"type": "http.response.body", "body": b"12345", "more_body": True})
    raise RuntimeError(DETAIL)


async def silent(_scope: Scope, _receive: Receive, _send: Send) -> None:
    return


async def render(_scope: Scope, _receive: Receive, send: Send) -> None:
    from calve.telemetry.metrics import CONTENT_TYPE
    from calve.telemetry.metrics import render as render_metrics

    await answer(send, render_metrics(), kind=CONTENT_TYPE)


ROUTES: dict[str, Any] = {
    "echo": echo,
    "ready": echo,
    "sleep": sleep,
    "boom": boom,
    "half": half,
    "silent": silent,
    "metrics": render,
}


def check(_settings: Settings) -> None:
    if FAIL == "create":
        raise StartupError("the lake is frozen.")


def create_app(settings: Settings) -> ASGIApp:
    from calve.http import wrap  # it imports prometheus_client, which `serve` has to prepare

    check(settings)
    return wrap(application, settings)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        try:
            sys.exit(serve(Settings(), create_app, check))
        except StartupError as problem:
            print(f"calve: {problem}", file=sys.stderr)
            sys.exit(2)
