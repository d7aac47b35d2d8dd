"""Trace one real request and print the modules of the project that it passes through, in order.

    python scripts/walk.py load            GET of a table
    python scripts/walk.py commit          POST of an append to a table, with a token and an Idempotency-Key
    python scripts/walk.py change          POST of a change to /cdc, the lease of its batch, and the publish
    python scripts/walk.py debezium        the same for a change that Debezium sends
    python scripts/walk.py query           POST of SQL to /query: in the server, then in the query process
    python scripts/walk.py --plain load    the same without the fast paths

The server runs in this process, on a temporary SQLite file and folder. A module counts if one of its
functions runs; modules that only hold data are not listed. Batches are staged in this process too, and this
script answers for the worker: it commits a snapshot without files.
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
    await idle()
    with traced():
        return await client.post(TABLE, json=body, headers={"Idempotency-Key": str(uuid.uuid4())})


async def change(client: httpx.AsyncClient) -> httpx.Response:
    number = time.time_ns()
    event = {"sequence": number, "timestamp": 1_790_000_000_000, "operation": "INSERT", "table": "walk.t"}
    return await _landed(client, {"events": [{**event, "rowId": str(number), "after": {"id": number}}]})


async def debezium(client: httpx.AsyncClient) -> httpx.Response:
    number = time.time_ns()
    source = {
        "connector": "postgresql",
        "name": "walk",
        "db": "d",
        "schema": "walk",
        "table": "t",
        "lsn": number,
    }
    event = {"op": "c", "before": None, "after": {"id": number}, "source": source, "ts_ms": 1_790_000_000_000}
    return await _landed(client, [event])


async def _landed(client: httpx.AsyncClient, body: Any) -> httpx.Response:
    """Post changes, lease their batch, and publish it as a worker does."""
    (await client.post("/cdc", json=body)).raise_for_status()
    leased = await client.post("/lake/v1/jobs/lease", json={"worker": "walk", "wait-s": 20})
    job = leased.json()
    commits = [
        _snapshot_commit(table["namespace"], name, state)
        for table in job["tables"]
        for name, state in table["states"].items()
    ]
    return await client.post(
        f"/lake/v1/jobs/{job['id']}/publish", json={"epoch": job["epoch"], "table-changes": commits}
    )


def _snapshot_commit(namespace: list[str], name: str, state: dict[str, Any]) -> dict[str, Any]:
    """A commit of a snapshot whose files are not there; a catalog does not open them."""
    metadata = state["metadata"]
    snapshot = {
        "snapshot-id": uuid.uuid4().int >> 65,
        "sequence-number": metadata["last-sequence-number"] + 1,
        "timestamp-ms": max(metadata["last-updated-ms"], time.time_ns() // 1_000_000),
        "manifest-list": f"{metadata['location']}/metadata/{uuid.uuid4().hex}.avro",
        "summary": {"operation": "append"},
        "schema-id": metadata["current-schema-id"],
    }
    if metadata.get("current-snapshot-id") not in (None, -1):
        snapshot["parent-snapshot-id"] = metadata["current-snapshot-id"]
    ref = {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch"}
    updates = [
        {"action": "add-snapshot", "snapshot": snapshot},
        {**ref, "snapshot-id": snapshot["snapshot-id"]},
    ]
    return {
        "identifier": {"namespace": namespace, "name": name},
        "requirements": state["requirements"],
        "updates": [*state["updates"], *updates],
    }


def stage_here() -> None:
    """Stage batches in this process, so that their modules are seen."""
    from calve import bootstrap
    from ingest.staging import process

    class StagingHere(process.StagingProcess):
        def __init__(self, open_context: Callable[[], Any]) -> None:
            super().__init__(open_context)
            self._open = open_context

        def _done(self, work: Callable[..., Any], *given: object) -> Any:
            process._context = process._context or self._open()  # noqa: SLF001 - as in its own process
            return work(*given)

    vars(bootstrap)["StagingProcess"] = StagingHere


async def query(client: httpx.AsyncClient) -> httpx.Response:
    return await client.post("/query", json={"sql": "SELECT count(*) FROM walk.t"}, timeout=60)


REQUESTS: dict[str, Callable[[httpx.AsyncClient], Awaitable[httpx.Response]]] = {
    "load": load,
    "commit": commit,
    "change": change,
    "debezium": debezium,
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
_requests: set[asyncio.Task[None]] = set()  # that the server has in hand


async def idle() -> None:
    """Wait for the former request, which ends after its response was sent."""
    await asyncio.gather(*_requests)


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
        pipe.write_text("\nend\n")  # a process that was ended may have left half a line
    pool.environment = environment


def child_modules(notes: list[str], since_s: float) -> list[str]:
    """The modules in which a query process was after a time."""
    pairs = (line.split() for line in list(notes) if line.endswith(".py\n"))
    found = dict.fromkeys(path for time_s, path in pairs if float(time_s) >= since_s)
    return [path for path in found if path.split("/", 1)[0] in PACKAGES]


@contextlib.asynccontextmanager
async def running(home: Path, *, fast_paths: bool) -> AsyncIterator[httpx.AsyncClient]:
    """The server; over a port, because query processes read from the catalog."""
    import uvicorn

    from calve.app import create_app
    from calve.settings import ExplicitSettings
    from ingest.landing import housekeeping
    from query import sharing

    # What the server does beside requests is not on their way.
    sharing.TURN_S = housekeeping.EVERY_S = 3600.0
    stage_here()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        settings = ExplicitSettings(
            home=home,
            port=port,
            fast_paths=fast_paths,
            worker=False,
            log_level="error",
            query_processes_max=1,  # another would start beside the query
            flush_events=1,
            freshness_target_ms=0,
        )
        server = uvicorn.Server(uvicorn.Config(create_app(settings), log_config=None))
        server.server_state.tasks = _requests
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
                await idle()
                since_s = time.monotonic()
                with traced():
                    response = await REQUESTS[name](client)
            else:
                response = await commit(client)
            found = list(_seen)
            if name in ("change", "debezium"):  # publishes are heard by all that read the catalog
                found = [module for module in found if module.startswith("ingest/")]
            elif name == "query":
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
