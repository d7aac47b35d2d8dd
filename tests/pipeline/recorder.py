"""An HTTP server that takes every request and keeps it: what a producer really sends."""

from __future__ import annotations

import contextlib
import http.server
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Taken:
    headers: dict[str, str]
    body: bytes


@dataclass(slots=True)
class Recorder:
    """`url` is where to send to; `taken` what came, in order."""

    url: str
    taken: list[Taken] = field(default_factory=list)


@contextlib.contextmanager
def recording() -> Iterator[Recorder]:
    recorder = Recorder("")

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if len(body) < int(self.headers["Content-Length"]):
                self.close_connection = True  # the sender was killed
                return
            recorder.taken.append(Taken(dict(self.headers.items()), body))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_request(self, code: Any = "-", size: Any = "-") -> None:
            """Not to the terminal."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    recorder.url = f"http://127.0.0.1:{server.server_address[1]}/cdc"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield recorder
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
