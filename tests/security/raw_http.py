"""HTTP as no library would send it: bytes on a socket, and what comes back."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def is_error(self) -> bool:
        """Whether it is an error in Iceberg's form."""
        error: Any = json.loads(self.body).get("error")
        return set(error) == {"message", "type", "code"} and error["code"] == self.status


def connect(port: int, timeout_s: float = 60) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=timeout_s)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def head(method: str, path: str, headers: Mapping[str, str] | None = None) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def read(connection: socket.socket, method: str = "GET") -> Answer:
    """The next answer on the connection."""
    response = http.client.HTTPResponse(connection, method=method)
    response.begin()
    body = response.read()
    return Answer(response.status, {name.lower(): value for name, value in response.getheaders()}, body)


def ask(port: int, *pieces: bytes, method: str = "GET") -> Answer:
    """The answer to these bytes, sent on a connection of its own."""
    with connect(port) as connection:
        for piece in pieces:
            connection.sendall(piece)
        return read(connection, method)
