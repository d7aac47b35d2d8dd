"""Trace one real request and print the modules of the project that it passes through, in order.

    python scripts/walk.py load            GET of a table
    python scripts/walk.py commit          POST of an append to a table, with a token and an Idempotency-Key
    python scripts/walk.py change          POST of a change to /cdc, until it is acknowledged
    python scripts/walk.py --plain load    the same without the fast paths

The server runs in this process, on a temporary SQLite file and folder. A module counts if one of its
functions runs; modules that only hold data are not listed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
import tempfile
import threading
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import httpx

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("calve", "catalog", "ingest")  # query/ starts its processes beside these requests
TABLE = "/v1/main/namespaces/walk/tables/t"
SCHEMA = {
    "type": "struct",
    "schema-id": 0,
    "fields": [{"id": 1, "name": "id", "type": "long", "required": True}],
}
NO_SNAPSHOT: dict[str, Any] = {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": None}


async def load(client: httpx.AsyncClient) -> httpx.Response:
    return await client.get(TABLE)


async def commit(client: httpx.AsyncClient) -> httpx.Response:
    metadata = (await client.get(TABLE)).json()["metadata"]
    snapshot = {
        "snapshot-id": 1,
        "sequence-number": 1,
        "timestamp-ms": metadata["last-updated-ms"],
        "manifest-list": f"{metadata['location']}/metadata/snap-1.avro",
        "summary": {"operation": "append"},
        "schema-id": 0,
    }
    body = {
        "requirements": [{"type": "assert-table-uuid", "uuid": metadata["table-uuid"]}, NO_SNAPSHOT],
        "updates": [
            {"action": "add-snapshot", "snapshot": snapshot},
            {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": 1},
        ],
    }
    with traced():
        return await client.post(TABLE, json=body, headers={"Idempotency-Key": str(uuid.uuid4())})


async def change(client: httpx.AsyncClient) -> httpx.Response:
    return await client.post("/cdc/walk/t", json=[{"id": 1}])


REQUESTS: dict[str, Callable[[httpx.AsyncClient], Awaitable[httpx.Response]]] = {
    "load": load,
    "commit": commit,
    "change": change,
}
_seen: dict[str, None] = {}
_tracing = threading.Event()


def _note(frame: FrameType, event: str, _argument: object) -> None:
    if event != "call" or not _tracing.is_set():
        return
    path = frame.f_code.co_filename
    if path.startswith(str(ROOT)):
        relative = path[len(str(ROOT)) + 1 :]
        # The body of a module runs at its first import, which says nothing about the request.
        if relative.split("/", 1)[0] in PACKAGES and frame.f_code.co_name != "<module>":
            _seen.setdefault(relative)


@contextlib.contextmanager
def traced() -> Iterator[None]:
    """Note the modules of all functions that are called in the block, in every thread."""
    _seen.clear()
    _tracing.set()
    try:
        yield
    finally:
        _tracing.clear()


@contextlib.asynccontextmanager
async def running(home: Path, *, fast_paths: bool) -> AsyncIterator[httpx.AsyncClient]:
    from calve.app import create_app
    from calve.settings import ExplicitSettings

    app = create_app(ExplicitSettings(home=home, fast_paths=fast_paths, worker=False, log_level="error"))
    started, stopped = asyncio.Event(), asyncio.Event()

    async def receive() -> dict[str, str]:
        if not started.is_set():
            return {"type": "lifespan.startup"}
        await stopped.wait()
        return {"type": "lifespan.shutdown"}

    async def send(message: Any) -> None:
        if message["type"] == "lifespan.startup.failed":
            raise RuntimeError(message.get("message"))
        started.set()

    scope: Any = {"type": "lifespan", "asgi": {"version": "3.0"}}
    served: Any = app
    lifespan = asyncio.create_task(served(scope, receive, send))
    await started.wait()
    transport = httpx.ASGITransport(served)
    try:
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8181") as client:
            yield client
    finally:
        stopped.set()
        await lifespan


async def walk(name: str, *, fast_paths: bool) -> list[str]:
    """The modules on the way of the request, in the order in which they are entered."""
    with tempfile.TemporaryDirectory() as home:
        async with running(Path(home), fast_paths=fast_paths) as client:
            await client.post("/v1/main/namespaces", json={"namespace": ["walk"]})
            await client.post("/v1/main/namespaces/walk/tables", json={"name": "t", "schema": SCHEMA})
            # The first request imports and compiles; the second one is the way that counts.
            if name != "commit":
                await REQUESTS[name](client)
                with traced():
                    response = await REQUESTS[name](client)
            else:
                response = await commit(client)
            found = list(_seen)
        if not response.is_success:
            raise SystemExit(f"the request was answered with {response.status_code}: {response.text}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("request", choices=REQUESTS)
    parser.add_argument("--plain", action="store_true", help="without the fast paths")
    arguments = parser.parse_args()
    # Before the server starts its threads: a thread gets the profile function when it begins.
    threading.setprofile(_note)
    sys.setprofile(_note)
    modules = asyncio.run(walk(arguments.request, fast_paths=not arguments.plain))
    for number, module in enumerate(modules, 1):
        print(f"{number:3}  {module}")
    counts = {package: sum(m.startswith(f"{package}/") for m in modules) for package in PACKAGES}
    print("    ", ", ".join(f"{package} {count}" for package, count in counts.items() if count))


if __name__ == "__main__":
    main()
