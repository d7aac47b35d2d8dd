"""What an acknowledgement cannot be quicker than, measured in the same run.

    python -m bench.ingest.floors --port N      a bare ASGI app that reads a body and answers 202

`synced` writes the same bytes to a file and syncs it, in a loop; the bare app shows what HTTP alone costs
with the same server program and the same producers.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from pathlib import Path
from typing import Any

from bench.ingest import load
from bench.rivals.server import Server
from tests.harness.ports import free_port
from tests.harness.process import Child

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

ANSWER = b'{"success":true}'
HEAD = {
    "type": "http.response.start",
    "status": 202,
    "headers": [(b"content-type", b"application/json"), (b"content-length", str(len(ANSWER)).encode())],
}


def synced(folder: Path, events: int, seconds: float) -> load.Sent:
    """One writer: a body, a sync, the next body."""
    prepared = load.bodies(events)
    sent = load.Sent()
    file = os.open(folder / "floor", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    began = time.perf_counter()
    try:
        while time.perf_counter() - began < seconds:
            body = prepared[len(sent.latencies_ms) % len(prepared)]
            asked = time.perf_counter()
            os.write(file, body)
            os.fsync(file)
            sent.latencies_ms.append((time.perf_counter() - asked) * 1000)
            sent.body_bytes += len(body)
        sent.seconds = time.perf_counter() - began
    finally:
        os.close(file)
        (folder / "floor").unlink()
    sent.events = len(sent.latencies_ms) * events
    return sent


@contextlib.contextmanager
def bare(folder: Path) -> Iterator[Server]:
    port = free_port()
    words = [sys.executable, "-m", "bench.ingest.floors", "--port", str(port)]
    child = Child(words, log=folder / "bare.log", environment=dict(os.environ))
    child.start(lambda: _listens(port), timeout_s=60)
    try:
        yield Server("bare", port, "", child.pid, 0.0, 0.0)
    finally:
        child.stop()


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] != "http":
        return
    while (await receive()).get("more_body"):
        pass
    await send(HEAD)
    await send({"type": "http.response.body", "body": ANSWER})


def main() -> None:
    import uvicorn

    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--port", type=int, required=True)
    uvicorn.run(
        app, host="127.0.0.1", port=arguments.parse_args().port, log_level="warning", access_log=False
    )


if __name__ == "__main__":
    main()
