"""Trace one real request and print the modules of the project that it passes through, in order.

    python scripts/walk.py load            GET of a table
    python scripts/walk.py commit          POST of an append to a table, with a token and an Idempotency-Key
    python scripts/walk.py change          POST of a change to /cdc, until it is acknowledged
    python scripts/walk.py query           POST of SQL to /query: in the server, then in the query process
    python scripts/walk.py --plain load    the same without the fast paths

The server runs in this process, on a temporary SQLite file and folder. A module counts if one of its
functions runs; modules that only hold data are not listed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import socket
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import httpx

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("calve", "catalog", "ingest", "query")
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


async def query(client: httpx.AsyncClient) -> httpx.Response:
    return await client.post("/query", json={"sql": "SELECT count(*) FROM walk.t"}, timeout=60)


REQUESTS: dict[str, Callable[[httpx.AsyncClient], Awaitable[httpx.Response]]] = {
    "load": load,
    "commit": commit,
    "change": change,
    "query": query,
}
# Run by a query process before anything else: it notes each call of a function of the project.
CHILD = """
import sys, time

def note(frame, event, argument):
    path = frame.f_code.co_filename
    if event == "call" and path.startswith(%(root)r) and frame.f_code.co_name != "<module>":
        out.write(f"{time.monotonic()} {path[len(%(root)r) + 1:]}\\n")

out = open(%(out)r, "w", buffering=1)
sys.setprofile(note)
"""
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


@contextlib.contextmanager
def child_traced(home: Path) -> Iterator[list[str]]:
    """Query processes note what they call: lines of a time and a module.

    They write to a pipe, which they open before they are confined.
    """
    from query import pool

    notes: list[str] = []
    pipe = home / "calls"
    os.mkfifo(pipe)
    (home / "sitecustomize.py").write_text(CHILD % {"root": str(ROOT), "out": str(pipe)})
    environment = pool.environment
    path = f"{home}:{environment()['PYTHONPATH']}"
    pool.environment = lambda: environment() | {"PYTHONPATH": path}
    with os.fdopen(os.open(pipe, os.O_RDWR)) as lines:  # also for writing, so that it never ends
        threading.Thread(target=lambda: notes.extend(iter(lines.readline, "end\n")), daemon=True).start()
        yield notes
        pipe.write_text("end\n")
    pool.environment = environment


def child_modules(notes: list[str], since_s: float) -> list[str]:
    """The modules in which a query process was after a time."""
    pairs = (line.split() for line in list(notes))
    found = dict.fromkeys(path for time_s, path in pairs if float(time_s) >= since_s)
    return [path for path in found if path.split("/", 1)[0] in PACKAGES]


@contextlib.asynccontextmanager
async def running(home: Path, *, fast_paths: bool) -> AsyncIterator[httpx.AsyncClient]:
    """The server; over a port, because query processes read from the catalog."""
    import uvicorn

    from calve.app import create_app
    from calve.settings import ExplicitSettings
    from query import sharing

    sharing.TURN_S = 3600.0  # what the server does beside requests is not on their way
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        settings = ExplicitSettings(
            home=home,
            port=port,
            fast_paths=fast_paths,
            worker=False,
            log_level="error",
            query_processes_max=1,  # another would start beside the query
        )
        server = uvicorn.Server(uvicorn.Config(create_app(settings), log_config=None))
        serving = asyncio.create_task(server.serve([listener]))
        try:
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
                yield client
        finally:
            server.should_exit = True
            await serving


async def walk(name: str, *, fast_paths: bool) -> list[str]:
    """The modules on the way of the request, in the order in which they are entered."""
    with tempfile.TemporaryDirectory() as home, child_traced(Path(home)) as notes:
        async with running(Path(home), fast_paths=fast_paths) as client:
            await client.post("/v1/main/namespaces", json={"namespace": ["walk"]})
            await client.post("/v1/main/namespaces/walk/tables", json={"name": "t", "schema": SCHEMA})
            # The first request imports and compiles; the second one is the way that counts.
            since_s = time.monotonic()
            if name != "commit":
                await REQUESTS[name](client)
                since_s = time.monotonic()
                with traced():
                    response = await REQUESTS[name](client)
            else:
                response = await commit(client)
            found = list(_seen)
            if name == "query":
                found = list(dict.fromkeys([*found, *child_modules(notes, since_s)]))
            else:  # the service of queries does its rounds beside other requests
                found = [module for module in found if not module.startswith("query/")]
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
