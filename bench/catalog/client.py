"""A keep-alive HTTP client on a bare socket: the load must cost far less than the server under measurement.

`Connection.send` writes one request and reads one whole answer. It knows what a REST catalog needs of
HTTP/1.1 (lengths, chunks, answers without a body) and nothing else. One connection belongs to one thread.
"""

from __future__ import annotations

import gzip
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import orjson

TIMEOUT_S = 120.0
READ_BYTES = 1 << 18


class WrongAnswer(Exception):
    """The server answered, but not what this request must be answered with."""


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: dict[str, str]  # names in lower case
    body: bytes
    size_bytes: int  # on the wire, head included

    def json(self) -> Any:
        is_gzipped = self.headers.get("content-encoding") == "gzip"
        return orjson.loads(gzip.decompress(self.body) if is_gzipped else self.body)

    def expect(self, status: int, *parts: bytes) -> Answer:
        if self.status != status or any(part not in self.body for part in parts):
            raise WrongAnswer(f"{self.status} instead of {status}: {self.body[:600]!r}")
        return self


class Connection:
    def __init__(self, port: int, headers: dict[str, str] | None = None) -> None:
        extra = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
        self._head = f"Host: 127.0.0.1:{port}\r\nAccept: application/json\r\n{extra}"
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._read = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def send(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        lines = [f"{method} {path} HTTP/1.1\r\n{self._head}"]
        lines += [f"{name}: {value}\r\n" for name, value in (headers or {}).items()]
        if body is not None:
            lines.append(f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n")
        self._socket.sendall("".join([*lines, "\r\n"]).encode() + (body or b""))
        return self._answer(method)

    def _answer(self, method: str) -> Answer:
        head = self._until(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        status = int(first.split(" ", 2)[1])
        headers = {}
        for line in lines:
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        body, framing_bytes = b"", 0
        if method != "HEAD" and status not in (204, 304):
            if "chunked" in headers.get("transfer-encoding", "").lower():
                body, framing_bytes = self._chunks()
            else:
                body = self._exactly(int(headers.get("content-length", "0")))
        return Answer(status, headers, body, len(head) + 4 + len(body) + framing_bytes)

    def _chunks(self) -> tuple[bytes, int]:
        parts: list[bytes] = []
        framing_bytes = 0
        while True:
            line = self._until(b"\r\n")
            size = int(line.split(b";")[0], 16)
            parts.append(self._exactly(size))
            self._until(b"\r\n")
            framing_bytes += len(line) + 4
            if size == 0:
                return b"".join(parts), framing_bytes

    def _until(self, mark: bytes) -> bytes:
        while (at := self._read.find(mark)) < 0:
            self._read += self._more()
        found, self._read = self._read[:at], self._read[at + len(mark) :]
        return found

    def _exactly(self, count: int) -> bytes:
        parts = [self._read]
        have = len(self._read)
        while have < count:
            parts.append(self._more())
            have += len(parts[-1])
        whole = b"".join(parts)
        self._read = whole[count:]
        return whole[:count]

    def _more(self) -> bytes:
        data = self._socket.recv(READ_BYTES)
        if not data:
            raise ConnectionError("the server closed the connection in the middle of an answer")
        return data
