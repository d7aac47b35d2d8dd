"""The small application of app.py in a child process, and raw HTTP against it."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.harness.components import ROOT
from tests.harness.ports import accepts, free_port
from tests.harness.process import Child
from tests.harness.server import environment


@dataclass(frozen=True, slots=True)
class Answer:
    """One HTTP answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        """The error model; every error has exactly these keys."""
        error: dict[str, Any] = self.json["error"]
        assert set(self.json) == {"error"}
        assert set(error) == {"message", "type", "code"}
        assert error["code"] == self.status
        return error


class SmallServer:
    """The server, with settings of its own."""

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        self.port = free_port()
        self.parser = (settings or {}).get("CALVE_HTTP_PARSER", "zttp")
        self.child = Child(
            [sys.executable, "-m", "tests.unit.server.app"],
            log=folder / "server.log",
            environment=environment(
                {
                    "CALVE_HOME": str(folder / "lake"),
                    "CALVE_PORT": str(self.port),
                    "PYTHONPATH": str(ROOT),
                    **(settings or {}),
                }
            ),
            folder=folder,
        )

    @classmethod
    @contextlib.contextmanager
    def started(cls, folder: Path, settings: Mapping[str, str] | None = None) -> Iterator[SmallServer]:
        server = cls(folder, settings)
        server.child.start(lambda: "Three things to try next" in server.log and accepts(server.port))
        try:
            yield server
        finally:
            server.child.kill()

    @property
    def log(self) -> str:
        return self.child.log.read_text()

    def lines(self, message: str) -> list[dict[str, Any]]:
        """The log lines with this message."""
        lines = [json.loads(line) for line in self.log.splitlines() if line.startswith("{")]
        return [line for line in lines if line["message"] == message]

    def connect(self, timeout_s: float = 60) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=timeout_s)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def get(self, path: str, headers: Mapping[str, str] | None = None, method: str = "GET") -> Answer:
        return self.ask(head(method, path, headers or {}))

    def ask(self, *segments: bytes) -> Answer:
        """Send these segments on a connection of its own, and read one answer."""
        with self.connect() as connection:
            for segment in segments:
                connection.sendall(segment)
            return read_answers(connection, 1)[0]


def head(method: str, path: str, headers: Mapping[str, str] | None = None) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def chunked(body: bytes, size: int = 1000) -> bytes:
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


def read_answers(connection: socket.socket, count: int, methods: Iterable[str] = ()) -> list[Answer]:
    """The next answers on the connection, in order."""
    given = list(methods) or ["GET"] * count
    file = _Unclosed(connection)
    answers = []
    for method in given[:count]:
        response = http.client.HTTPResponse(file, method=method)  # type: ignore[arg-type]
        response.begin()
        body = response.read()
        answers.append(Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, body))
    return answers


class _Unclosed:
    """Lets http.client read several answers from one buffer."""

    def __init__(self, connection: socket.socket) -> None:
        self._file = connection.makefile("rb")

    def makefile(self, _mode: str) -> _Unclosed:
        return self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def close(self) -> None:
        """Not yet."""

    def flush(self) -> None:
        """Nothing to do."""
