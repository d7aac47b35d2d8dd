"""The protocol without a network: the same bytes, cut at every place, give the same requests."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from typing import Any

import pytest
import uvicorn
from hypothesis import given, settings
from hypothesis import strategies as st
from uvicorn.server import ServerState

from calve.http import wrap
from calve.server.protocol import PROTOCOLS
from calve.settings import Settings
from tests.unit.server.app import application
from tests.unit.server.child import chunked, head
from tests.unit.server.test_protocol import OFFER

STREAM = b"".join(
    (
        head("POST", "/one", {**OFFER, "Content-Length": "7"}) + b'{"a":1}',
        head("POST", "/two", {**OFFER, "Transfer-Encoding": "chunked"}) + chunked(b"hello world", 4),
        head("GET", "/three", OFFER),
        head("PUT", "/four%20and", {"Content-Length": "3", "Connection": "Upgrade", "Upgrade": "other/2"}),
        b"abc",
        head("POST", "/five", {"Content-Length": "2"}) + b"{}",
    )
)
EXPECTED = [
    ("POST", "/one", 7),
    ("POST", "/two", 11),
    ("GET", "/three", 0),
    ("PUT", "/four%20and", 3),
    ("POST", "/five", 2),
]


BOTH = pytest.mark.parametrize("parser", PROTOCOLS)


class Transport(asyncio.Transport):
    """Collects what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.closed = False

    def write(self, data: Any) -> None:
        self.written += data

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        """Nothing is read here."""

    def resume_reading(self) -> None:
        """Nothing is read here."""


async def answers_to(parser: str, segments: list[bytes], count: int) -> list[Any]:
    """What the application answers when the bytes arrive like this: what was requested."""
    app, protocol_class = wrap(application, Settings(log_level="error")), PROTOCOLS[parser]
    config = uvicorn.Config(app, http=protocol_class, log_config=None, interface="asgi3", proxy_headers=False)
    config.load()
    protocol = protocol_class(config, ServerState(), {}, asyncio.get_running_loop())
    transport = Transport()
    protocol.connection_made(transport)
    for segment in segments:
        protocol.data_received(segment)
        await asyncio.sleep(0)
    for _ in range(count * 100):
        if transport.written.count(b'"pid":') == count:
            break
        await asyncio.sleep(0)
    protocol.connection_lost(None)
    parts = re.split(rb"HTTP/1.1 200 (?:OK)?\r\n", bytes(transport.written))[1:]
    return [json.loads(part.partition(b"\r\n\r\n")[2]) for part in parts]


def requests_of(parser: str, segments: list[bytes]) -> list[tuple[str, str, int]]:
    answers = asyncio.run(answers_to(parser, segments, len(EXPECTED)))
    return [(answer["method"], answer["path"], answer["length"]) for answer in answers]


@BOTH
@pytest.mark.parametrize("cut", range(1, len(STREAM), 7))
def test_one_cut(cut: int, parser: str) -> None:
    for at in range(cut, min(cut + 7, len(STREAM))):
        assert requests_of(parser, [STREAM[:at], STREAM[at:]]) == EXPECTED


@BOTH
@pytest.mark.parametrize("size", [1, 2, 3, 5, 16, 64])
def test_equal_pieces(size: int, parser: str) -> None:
    pieces = [STREAM[at : at + size] for at in range(0, len(STREAM), size)]
    assert requests_of(parser, pieces) == EXPECTED


@BOTH
@given(cuts=st.sets(st.integers(1, len(STREAM) - 1), max_size=12))
@settings(deadline=None, max_examples=60)
def test_any_cuts(parser: str, cuts: set[int]) -> None:
    places = [0, *sorted(cuts), len(STREAM)]
    pieces = [STREAM[start:end] for start, end in itertools.pairwise(places)]
    assert requests_of(parser, pieces) == EXPECTED


@BOTH
def test_many_offers_in_one_segment(parser: str) -> None:
    """Hundreds of pipelined offers are neither deep recursion nor lost."""
    one = head("POST", "/one", {**OFFER, "Content-Length": "2"}) + b"{}"
    answers = asyncio.run(answers_to(parser, [one * 1200], 1200))
    assert [answer["length"] for answer in answers] == [2] * 1200
