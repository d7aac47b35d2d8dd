"""A server that answers what a test tells it to, and remembers what it was asked."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Asked:
    method: str
    path: str
    body: Any
    headers: dict[str, str]


# A status and a body; None closes the connection without an answer.
Answer = tuple[int, Any] | None


@dataclass
class StubServer:
    """`answers[(method, path)]` is used up from the front; its last one stays."""

    url: str = ""
    answers: dict[tuple[str, str], list[Answer]] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)
    otherwise: Callable[[Asked], Answer] = lambda _: (404, refused("nothing here"))

    def on(self, method: str, path: str, *answers: Answer) -> None:
        self.answers[method, path] = list(answers)

    def answer(self, asked: Asked) -> Answer:
        self.asked.append(asked)
        waiting = self.answers.get((asked.method, asked.path))
        if not waiting:
            return self.otherwise(asked)
        return waiting.pop(0) if len(waiting) > 1 else waiting[0]

    def paths(self) -> list[str]:
        return [f"{asked.method} {asked.path}" for asked in self.asked]


def refused(message: str, kind: str = "CommitFailedException") -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "code": 409}}


@contextlib.contextmanager
def stub_server() -> Iterator[StubServer]:
    stub = StubServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            length = int(self.headers.get("content-length", 0))
            raw = self.rfile.read(length)
            is_json = self.headers.get("content-type", "").startswith("application/json")
            body = json.loads(raw) if raw and is_json else raw.decode()
            found = stub.answer(Asked(self.command, self.path, body, dict(self.headers)))
            if found is None:
                self.close_connection = True
                return
            status, given = found
            text = b"" if given is None else json.dumps(given).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_DELETE = do_POST  # noqa: N815 - names of the base class

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    stub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield stub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
