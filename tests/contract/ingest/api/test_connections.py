"""How many may connect; what a refused client is told, before the connection becomes a WebSocket."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from calve.telemetry.metrics import render
from ingest.api import ApiSettings
from tests.contract.ingest.api.api_server import ApiServer, batch, event, served

MANY = 10_000


@contextlib.contextmanager
def limited(folder: Path, **limits: Any) -> Iterator[tuple[ApiServer, contextlib.ExitStack]]:
    wide = {"connections_per_s": MANY, "connections_per_address_max": MANY}
    with (
        served(folder, settings=ApiSettings(**{**wide, **limits})) as server,
        contextlib.ExitStack() as open_,
    ):
        yield server, open_


def refused(server: ApiServer, **headers: str) -> Any:
    with (
        pytest.raises(InvalidStatus) as answer,
        connect(server.ws_url, additional_headers=headers),
    ):
        pass
    response = answer.value.response
    assert response.status_code == 429
    assert int(response.headers["Retry-After"]) >= 1
    for name in ("X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"):
        assert int(response.headers[name]) >= 0
    told = orjson.loads(response.body or b"")
    assert told["error"]["code"] == 429
    return told["reason"]


def test_of_one_address(tmp_path: Path) -> None:
    with limited(tmp_path, connections_per_address_max=3) as (server, open_):
        sockets = [open_.enter_context(connect(server.ws_url)) for _ in range(3)]
        assert refused(server) == "ip_limit"
        sockets[0].close()
        left_one(server, 2)
        open_.enter_context(connect(server.ws_url))


def left_one(server: ApiServer, count: int) -> None:
    """Until the server has noticed that a connection has ended."""
    name = "calve_ingest_connections "
    while True:
        line = next(line for line in render().decode().splitlines() if line.startswith(name))
        if float(line.removeprefix(name)) == count:
            return


def test_of_one_source_by_its_header(tmp_path: Path) -> None:
    with limited(tmp_path, connections_per_source_max=2) as (server, open_):
        for _ in range(2):
            open_.enter_context(connect(server.ws_url, additional_headers={"X-Client-ID": "c"}))
        assert refused(server, **{"X-Client-ID": "c"}) == "connection_limit"
        open_.enter_context(connect(server.ws_url, additional_headers={"X-Client-ID": "d"}))


def test_connections_of_one_source_named_in_a_batch_are_limited(tmp_path: Path) -> None:
    with limited(tmp_path, connections_per_source_max=1) as (server, open_):
        first: ClientConnection = open_.enter_context(connect(server.ws_url))
        first.send(batch(1, [event(1)]))
        assert orjson.loads(first.recv())["type"] == "ack"
        second: ClientConnection = open_.enter_context(connect(server.ws_url))
        second.send(batch(1, [event(2)]))
        nack = orjson.loads(second.recv())
        assert (nack["reason"], nack["shouldRetry"]) == ("connection_limit", False)
        with pytest.raises(ConnectionClosed) as ended:
            second.recv()
        assert ended.value.rcvd is not None
        assert ended.value.rcvd.code == 1008
        first.send(batch(2, [event(3)]))
        assert orjson.loads(first.recv())["type"] == "ack"


def test_new_ones_in_a_second(tmp_path: Path) -> None:
    with limited(tmp_path, connections_per_s=1) as (server, open_):
        reasons = []
        for _ in range(5):
            try:
                open_.enter_context(connect(server.ws_url))
            except InvalidStatus as answer:
                reasons.append(orjson.loads(answer.response.body or b"")["reason"])
        assert set(reasons) <= {"rate_limited"}
        assert reasons


def test_in_all(tmp_path: Path) -> None:
    with limited(tmp_path, connections_max=1) as (server, open_):
        open_.enter_context(connect(server.ws_url))
        assert refused(server) == "connection_limit"


def test_a_stopping_server_takes_none(tmp_path: Path) -> None:
    with limited(tmp_path) as (server, _):
        server.api.stop()
        with pytest.raises(InvalidStatus) as answer, connect(server.ws_url):
            pass
        assert answer.value.response.status_code == 503


@pytest.mark.parametrize("path", ["/", "/wss", "/ws/", "/cdc", "/v1/config"])
def test_only_ws_is_a_websocket(server: ApiServer, path: str) -> None:
    address = server.ws_url.removesuffix("/ws") + path
    with pytest.raises(InvalidStatus) as refusal, connect(address):
        pass
    assert refusal.value.response.status_code in (403, 404)
