"""Reads that are answered where their head ends: the same answers, in the same order, as the long way."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from calve.serve.middleware import Edge
from calve.serve.protocol import Protocol
from calve.settings import Settings
from catalog.api.calls import Answer
from tests.unit.serve.app import application
from tests.unit.serve.child import head
from tests.unit.serve.test_segments import Transport

LARGE = [b"a" * 100_000, b"b" * 50_000]


class Operation:
    id = "loadTable"


class Call:
    caller = None

    def __init__(self, path: dict[str, str]) -> None:
        self.path = path


class Quick:
    """An endpoint that answers what its path says."""

    operation = Operation()

    def __init__(self) -> None:
        self.asked: list[tuple[str, bytes]] = []

    def stays(self, path: dict[str, str]) -> bool:
        return path["name"] != "slow"

    def call(self, path: dict[str, str], query: bytes, _headers: dict[bytes, bytes]) -> Call:
        self.asked.append((path["name"], query))
        return Call(path)

    def answer(self, call: Call) -> Answer:
        if call.path["name"] == "large":
            return Answer(200, parts=LARGE)
        if call.path["name"] == "known":
            return Answer(304, headers=[(b"etag", b'"x"')])
        return Answer(200, call.path["name"].encode())


class Connection:
    """A protocol without a network."""

    def __init__(self) -> None:
        self.quick = Quick()
        app = Edge.of(application, Settings(log_level="error"), self._find)
        config = uvicorn.Config(app, http=Protocol, log_config=None, interface="asgi3", proxy_headers=False)
        config.load()
        self.transport = Transport()
        self.protocol = Protocol(config, ServerState(), {}, asyncio.get_running_loop())
        self.protocol.connection_made(self.transport)

    def _find(self, _method: str, path: str) -> tuple[Any, dict[str, str]] | None:
        return (self.quick, {"name": path.removeprefix("/q/")}) if path.startswith("/q/") else None

    async def send(self, *requests: bytes) -> bytes:
        self.transport.written.clear()
        self.protocol.data_received(b"".join(requests))
        for _ in range(100):
            await asyncio.sleep(0)
        return bytes(self.transport.written)


def connected(scene: Callable[[Connection], Awaitable[None]]) -> None:
    async def run() -> None:
        connection = Connection()
        await scene(connection)
        connection.protocol.connection_lost(None)

    asyncio.run(run())


def bodies(written: bytes) -> list[bytes]:
    return [part.partition(b"\r\n\r\n")[2] for part in written.split(b"HTTP/1.1 ")[1:]]


def test_a_read_is_answered_before_its_bytes_are_out_of_the_parser() -> None:
    async def scene(connection: Connection) -> None:
        connection.protocol.data_received(head("GET", "/q/one?a=b"))
        answered, _, body = bytes(connection.transport.written).partition(b"\r\n\r\n")
        lines = answered.split(b"\r\n")
        assert lines[0] == b"HTTP/1.1 200 OK"
        assert b"content-length: 3" in lines
        assert b"x-content-type-options: nosniff" in lines
        assert any(line.startswith(b"x-request-id: ") for line in lines)
        assert body == b"one"
        assert connection.quick.asked == [("one", b"a=b")]

    connected(scene)


def test_the_answer_is_whole_whatever_its_size_and_status() -> None:
    async def scene(connection: Connection) -> None:
        assert bodies(await connection.send(head("GET", "/q/large"))) == [b"".join(LARGE)]
        of_head = await connection.send(head("HEAD", "/q/large"))
        assert b"content-length: 150000\r\n" in of_head
        assert of_head.endswith(b"\r\n\r\n")
        known = await connection.send(head("GET", "/q/known"))
        assert known.startswith(b"HTTP/1.1 304 ")
        assert b"content-length" not in known

    connected(scene)


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Length": "0"},
        {"Connection": "close"},
        {"Expect": "100-continue"},
        {"Host": "elsewhere.example"},
    ],
    ids=lambda headers: next(iter(headers)),
)
def test_whatever_is_unusual_goes_the_long_way(headers: dict[str, str]) -> None:
    async def scene(connection: Connection) -> None:
        assert await connection.send(head("GET", "/q/one", headers))
        assert connection.quick.asked == []

    connected(scene)


def test_other_methods_and_endpoints_that_wait_go_the_long_way() -> None:
    async def scene(connection: Connection) -> None:
        assert await connection.send(head("GET", "/q/slow"))
        assert await connection.send(head("DELETE", "/q/one"))
        assert await connection.send(head("GET", "/other"))
        assert connection.quick.asked == []

    connected(scene)


def test_requests_sent_together_are_answered_in_their_order() -> None:
    async def scene(connection: Connection) -> None:
        names = ["one", "slow", "two", "three"]
        written = await connection.send(*(head("GET", f"/q/{name}") for name in names))
        first, second, *rest = bodies(written)
        assert (first, rest[0].startswith(b"{"), rest[1].startswith(b"{")) == (b"one", True, True)
        assert b"/q/slow" in second
        assert b"/q/two" in rest[0]
        assert connection.quick.asked == [("one", b"")]  # behind an open answer nothing is answered at once
        assert bodies(await connection.send(head("GET", "/q/four"))) == [b"four"]

    connected(scene)


def test_a_client_that_does_not_read_is_not_written_to_without_end() -> None:
    async def scene(connection: Connection) -> None:
        connection.protocol.pause_writing()
        assert await connection.send(head("GET", "/q/one")) == b""
        connection.protocol.resume_writing()
        assert await connection.send()
        assert connection.quick.asked == []

    connected(scene)


def test_an_idle_connection_is_closed_and_a_busy_one_is_not() -> None:
    async def scene(connection: Connection) -> None:
        await connection.send(head("GET", "/q/one"))
        connection.protocol.timeout_keep_alive_handler()  # the timer of the time before that request
        assert not connection.transport.closed
        connection.protocol._answered_s -= 2 * connection.protocol.timeout_keep_alive
        connection.protocol.timeout_keep_alive_handler()
        assert connection.transport.closed

    connected(scene)
