"""Messages between the server and a query process: a length, a kind, and JSON or bytes.

The bytes are those of a result, or, from the server, rows that a query adds to a table.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Sequence
from typing import Any

import orjson

MESSAGE = 0  # a JSON object
DATA = 1  # a piece of the response body, or the rows of an overlay
_HEAD = struct.Struct(">IB")
FRAME_BYTES_MAX = 256 * 1024 * 1024


class Closed(ConnectionError):
    """The other side has closed the connection."""


def send(connection: socket.socket, kind: int, payload: bytes) -> None:
    """Send a frame. Blocks while the other side does not read, which bounds the memory of a large result."""
    connection.sendall(_HEAD.pack(len(payload), kind))
    connection.sendall(payload)


def send_message(connection: socket.socket, message: dict[str, Any]) -> None:
    send(connection, MESSAGE, orjson.dumps(message))


def receive_message(connection: socket.socket) -> dict[str, Any]:
    message: dict[str, Any] = orjson.loads(_receive(connection, MESSAGE))
    return message


def receive_data(connection: socket.socket) -> bytes:
    return _receive(connection, DATA)


def _receive(connection: socket.socket, expected: int) -> bytes:
    length, kind = _HEAD.unpack(_exactly(connection, _HEAD.size))
    assert kind == expected, "the server sent a frame of another kind"
    return _exactly(connection, length)


def _exactly(connection: socket.socket, count: int) -> bytes:
    parts = []
    while count:
        part = connection.recv(min(count, 1 << 20))
        if not part:
            raise Closed("the server closed the connection")
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def decode(payload: bytes) -> dict[str, Any]:
    message: dict[str, Any] = orjson.loads(payload)
    return message


async def read_frame(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    try:
        length, kind = _HEAD.unpack(await reader.readexactly(_HEAD.size))
        if length > FRAME_BYTES_MAX:
            raise Closed("the query process sent a frame that is too large")
        return kind, await reader.readexactly(length)
    except (asyncio.IncompleteReadError, OSError) as error:
        raise Closed("the query process ended") from error


async def write_message(
    writer: asyncio.StreamWriter, message: dict[str, Any], data: Sequence[bytes] = ()
) -> None:
    """Send a message, and the data that belongs to it."""
    for kind, payload in ((MESSAGE, orjson.dumps(message)), *((DATA, one) for one in data)):
        writer.write(_HEAD.pack(len(payload), kind))
        writer.write(payload)
    try:
        await writer.drain()
    except OSError as error:
        raise Closed("the query process ended") from error
