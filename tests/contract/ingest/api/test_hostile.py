"""Requests that are broken, hostile, slow or odd. None may be answered with success and then be lost."""

from __future__ import annotations

import contextlib
import gzip
import socket
import time
from pathlib import Path

import httpx
import orjson
import pytest

from tests.contract.ingest.api.api_server import (
    BODY_BYTES_MAX,
    ApiServer,
    Producer,
    event,
    events_in,
    served,
)

H2C = (
    "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
    "HTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAA\r\n"
)


def raw(server: ApiServer, data: bytes, *, half: bool = False) -> bytes:
    """Send bytes, and read until the server ends the connection or an answer is whole."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as wire:
        wire.sendall(data)
        if half:
            wire.shutdown(socket.SHUT_WR)
        found = b""
        with contextlib.suppress(TimeoutError):
            while piece := wire.recv(65536):
                found += piece
                head, separator, rest = found.partition(b"\r\n\r\n")
                length = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
                if separator and length and len(rest) >= int(length[0].split(b":")[1]):
                    break
        return found


def head(warehouse: str, length: int, more: str = "") -> bytes:
    return (
        f"POST /cdc?warehouse={warehouse} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        f"Content-Type: application/json\r\nContent-Length: {length}\r\n{more}\r\n"
    ).encode()


@pytest.mark.parametrize("size", [1, 40, 2000])
def test_an_offer_of_http2_loses_nothing(server: ApiServer, warehouse: str, size: int) -> None:
    """Java's client, and so Debezium Server, makes this offer with every request."""
    body = orjson.dumps([event(number) for number in range(size)])
    answer = raw(server, head(warehouse, len(body), H2C) + body)
    assert answer.startswith(b"HTTP/1.1 202")
    assert len(events_in(server.journal, warehouse)) == size


def test_an_incomplete_body_is_refused(server: ApiServer, warehouse: str) -> None:
    body = orjson.dumps([event(1)])
    answer = raw(server, head(warehouse, len(body) + 10) + body, half=True)
    assert b" 202" not in answer
    assert events_in(server.journal, warehouse) == []


def test_a_body_of_no_bytes_that_said_it_had_some(server: ApiServer, warehouse: str) -> None:
    answer = raw(server, head(warehouse, 100, H2C), half=True)
    assert b" 202" not in answer
    assert b" 200" not in answer
    assert events_in(server.journal, warehouse) == []


def test_a_slow_body_does_not_delay_others(server: ApiServer, client: httpx.Client, warehouse: str) -> None:
    body = orjson.dumps([event(1)])
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as wire:
        wire.sendall(head(warehouse, len(body)) + body[:10])
        assert client.post("/cdc", json=[event(2)]).status_code == 202
        for at in range(10, len(body)):
            wire.sendall(body[at : at + 1])
        assert wire.recv(100).startswith(b"HTTP/1.1 202")
    assert len(events_in(server.journal, warehouse)) == 2


def test_too_large_states_the_limit(client: httpx.Client) -> None:
    answer = client.post("/cdc", content=b"x" * (BODY_BYTES_MAX + 1))
    assert answer.status_code == 413
    assert str(BODY_BYTES_MAX) in answer.json()["error"]["message"]


def test_a_gzip_bomb(server: ApiServer, client: httpx.Client, warehouse: str) -> None:
    bomb = gzip.compress(b" " * (200 * 2**20))
    assert len(bomb) < BODY_BYTES_MAX
    answer = client.post("/cdc", content=bomb, headers={"Content-Encoding": "gzip"})
    assert answer.status_code == 413
    assert events_in(server.journal, warehouse) == []


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_a_body_with_a_wrong_content_encoding(client: httpx.Client, coding: str) -> None:
    answer = client.post("/cdc", content=b"[{}]", headers={"Content-Encoding": coding})
    assert answer.status_code == 400


def test_a_coding_that_is_not_known(client: httpx.Client) -> None:
    answer = client.post("/cdc", content=b"[{}]", headers={"Content-Encoding": "br"})
    assert answer.status_code == 415


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"\x00\x01\xff",
        b'{"id": 1e999}',
        b'{"id": NaN}',
        b'{"id": "\\ud800"}',
        b"9" * 100_000,
        b'"text"',
        b"null",
        b'[null, 1, [], "x", {}]',
        b'{"events": [1, 2], "events": [3]}',
    ],
)
def test_odd_bodies_are_kept_or_refused_but_never_break_the_server(client: httpx.Client, body: bytes) -> None:
    answer = client.post("/cdc/n/t", content=body)
    assert answer.status_code in (202, 400)
    told = answer.json()
    if answer.status_code == 202:
        ignored = [item for item in told["events"] if item["status"] == "ignored"]
        assert told["eventsAccepted"] + told["deadLettered"] + len(ignored) == told["eventsReceived"]


def test_changes_of_a_disconnected_client_are_stored(server: ApiServer, warehouse: str) -> None:
    body = orjson.dumps([event(number) for number in range(500)])
    with socket.create_connection(("127.0.0.1", server.port)) as wire:
        wire.sendall(head(warehouse, len(body)) + body)
    deadline_s = time.monotonic() + 30
    while len(events_in(server.journal, warehouse)) != 500:
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def test_the_deadline_of_the_edge_comes_after_our_answer(tmp_path: Path) -> None:
    """wait=commit with more patience than the edge has: 202, and not the edge's 504."""
    with served(tmp_path, timeout_s=2.0) as server, Producer(server.url, "main") as client:
        answer = client.post("/cdc?wait=commit&timeout_s=50", json=[event(1)])
        assert (answer.status_code, answer.json()["committed"]) == (202, False)
