"""Which pages and names an open server listens to."""

from __future__ import annotations

import pytest

from calve.http.origin import cross_origin

OURS = ["127.0.0.1", "127.0.0.1:8181", "localhost", "LocalHost:8181", "[::1]", "[::1]:8181", "127.9.9.9:1"]
THEIRS = [
    "evil.example",
    "evil.example:8181",
    "127.0.0.1.evil.example",
    "localhost.evil.example:8181",
    "127.0.0.1@evil.example",
    "evil.example#127.0.0.1",
    "[::2]",
    "10.0.0.1",
    "0.0.0.0",
    "::1",
    "127.0.0.1:port",
    "",
    "a" * 300,
    "\xe9",
]


@pytest.mark.parametrize("host", OURS)
def test_our_own_names(host: str) -> None:
    assert cross_origin({b"host": host.encode()}, frozenset()) is None
    for scheme in ("http", "https"):
        headers = {b"host": b"127.0.0.1", b"origin": f"{scheme}://{host}".encode()}
        assert cross_origin(headers, frozenset()) is None


@pytest.mark.parametrize("host", THEIRS)
def test_names_of_others(host: str) -> None:
    refused = cross_origin({b"host": host.encode("latin-1")}, frozenset())
    assert refused is not None
    assert "Host" in refused
    headers = {b"host": b"127.0.0.1", b"origin": f"http://{host}".encode("latin-1")}
    refused = cross_origin(headers, frozenset())
    assert refused is not None
    assert "Origin" in refused


@pytest.mark.parametrize(
    "origin", ["null", "", "file://", "127.0.0.1", "http://", "http://127.0.0.1 http://x"]
)
def test_a_page_without_a_place_of_ours(origin: str) -> None:
    assert cross_origin({b"host": b"127.0.0.1", b"origin": origin.encode()}, frozenset()) is not None


def test_the_public_name_is_ours_too() -> None:
    known = frozenset({"lake.example"})
    headers = {b"host": b"lake.example:443", b"origin": b"https://Lake.Example"}
    assert cross_origin(headers, known) is None
    assert cross_origin({b"host": b"www.lake.example"}, known) is not None


def test_programs_that_send_neither_are_heard() -> None:
    assert cross_origin({}, frozenset()) is None
