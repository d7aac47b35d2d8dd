"""Reading and expanding bodies within their limit."""

from __future__ import annotations

import asyncio
import gzip
import tracemalloc
import zlib
from collections.abc import Callable

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive

from calve.http.body import Refused, declared_length, expand, read

LIMIT = 10_000


def receive_of(*messages: Message) -> Receive:
    left = list(messages)

    async def receive() -> Message:
        return left.pop(0)

    return receive


def request(body: bytes, *, more: bool = False) -> Message:
    return {"type": "http.request", "body": body, "more_body": more}


def test_a_body_in_one_piece_and_in_many() -> None:
    assert asyncio.run(read(receive_of(request(b"abc")), 3, LIMIT)) == b"abc"
    pieces = (request(b"a", more=True), request(b"", more=True), request(b"bc", more=True), request(b""))
    assert asyncio.run(read(receive_of(*pieces), None, LIMIT)) == b"abc"


@pytest.mark.parametrize("length", [0, 2, 4, 718])
def test_a_body_that_is_not_as_long_as_it_says_is_refused(length: int) -> None:
    with pytest.raises(Refused) as refused:
        asyncio.run(read(receive_of(request(b"abc")), length, LIMIT))
    assert refused.value.status == 400
    assert not refused.value.unread


def test_the_limit_counts_real_bytes() -> None:
    assert len(asyncio.run(read(receive_of(request(b"a" * LIMIT)), None, LIMIT))) == LIMIT
    endless = [request(b"a" * 1000, more=True) for _ in range(100)]
    with pytest.raises(Refused) as refused:
        asyncio.run(read(receive_of(*endless), None, LIMIT))
    assert (refused.value.status, refused.value.unread) == (413, True)


def test_a_client_that_leaves() -> None:
    with pytest.raises(ClientDisconnect):
        asyncio.run(read(receive_of(request(b"a", more=True), {"type": "http.disconnect"}), 5, LIMIT))


def test_the_declared_length_is_checked_before_anything_is_read() -> None:
    assert declared_length({}, LIMIT) is None
    assert declared_length({b"content-length": b"10000"}, LIMIT) == LIMIT
    for text, status in ((b"10001", 413), (b"9" * 40, 413), (b"-1", 400), (b"", 400), (b"1e3", 400)):
        with pytest.raises(Refused) as refused:
            declared_length({b"content-length": text}, LIMIT)
        assert refused.value.status == status


def zstd_of_unknown_size(data: bytes) -> bytes:
    compressor = zstandard.ZstdCompressor().compressobj()
    return compressor.compress(data) + compressor.flush()


PACKERS: dict[str, tuple[bytes, Callable[[bytes], bytes]]] = {
    "gzip": (b"gzip", gzip.compress),
    "zstd": (b"zstd", zstandard.compress),
    "zstd of unknown size": (b"zstd", zstd_of_unknown_size),
}


@pytest.mark.parametrize("packer", PACKERS)
@given(data=st.binary(max_size=LIMIT))
def test_expanding_undoes_packing(packer: str, data: bytes) -> None:
    coding, pack = PACKERS[packer]
    assert expand(pack(data), coding, LIMIT) == data


def test_gzip_of_several_members() -> None:
    assert expand(gzip.compress(b"ab") + gzip.compress(b"c"), b"gzip", LIMIT) == b"abc"


@pytest.mark.parametrize("packer", PACKERS)
def test_the_limit_is_exact(packer: str) -> None:
    coding, pack = PACKERS[packer]
    assert len(expand(pack(b"a" * LIMIT), coding, LIMIT)) == LIMIT
    with pytest.raises(Refused) as refused:
        expand(pack(b"a" * (LIMIT + 1)), coding, LIMIT)
    assert refused.value.status == 413


@pytest.mark.parametrize("packer", PACKERS)
def test_a_bomb_takes_no_memory(packer: str) -> None:
    coding, pack = PACKERS[packer]
    bomb = pack(b"\0" * 50_000_000)
    tracemalloc.start()
    with pytest.raises(Refused) as refused:
        expand(bomb, coding, 100_000)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert refused.value.status == 413
    assert peak_bytes < 5_000_000


@pytest.mark.parametrize("packer", PACKERS)
def test_what_is_not_packed_as_it_says_is_refused(packer: str) -> None:
    coding, pack = PACKERS[packer]
    sound = pack(b"some text that is long enough" * 20)
    broken = [sound[:-5], sound[:10], sound + b"garbage", b"plain text", zlib.compress(b"deflate"), b"\0"]
    for data in broken:
        with pytest.raises(Refused) as refused:
            expand(data, coding, LIMIT)
        assert refused.value.status == 400
