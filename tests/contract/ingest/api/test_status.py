"""GET /status."""

from __future__ import annotations

import httpx
import orjson
from websockets.sync.client import connect

from tests.contract.ingest.api.api_server import ApiServer, batch, event


def test_everything_that_is_pending_and_known(
    server: ApiServer, client: httpx.Client, warehouse: str
) -> None:
    client.post("/cdc", json=[event(1), event(2, table="shop.items")], headers={"X-Source-Id": "till"})
    with connect(f"{server.ws_url}?warehouse={warehouse}") as socket:
        socket.send(batch(9, [event(9)], sourceDoId="gate"))
        socket.recv()
        told = client.get("/status").json()
    assert told["state"] in ("receiving", "idle")
    assert told["warehouse"] == warehouse
    buffer = told["buffer"]
    assert buffer["eventCount"] >= 3
    assert buffer["totalSizeBytes"] > 0
    assert 0 <= buffer["utilization"] < 1
    assert buffer["oldestBatchTime"] > 0
    assert told["head"] == 2
    assert told["connections"]["open"] == 1
    sources = {state["id"]: state for state in told["sourceStates"]}
    assert set(sources) == {"till", "gate"}
    assert (sources["till"]["lastReceivedSequence"], sources["till"]["lastAckedSequence"]) == (2, 2)
    assert (sources["gate"]["batches"], sources["gate"]["events"]) == (1, 1)
    assert told["loadLevel"] == "normal"
    assert told["circuitBreakerState"] == "closed"
    assert told["landing"]["workers"] == []
    assert told["rateLimits"]["maxPayloadSize"] == 4 * 2**20


def test_why_nothing_lands(server: ApiServer, client: httpx.Client) -> None:
    server.landing.stalled = "no worker has asked for work"
    try:
        told = client.get("/status").json()
    finally:
        server.landing.stalled = None
    assert (told["state"], told["degradedMode"]) == ("recovering", True)
    assert told["landing"]["stalled"] == "no worker has asked for work"


def test_others_do_not_see_it(client: httpx.Client) -> None:
    assert client.get("/status?warehouse=elsewhere").status_code == 404
    assert client.get("/status?warehouse=..").status_code == 400


def test_it_is_json_all_through(client: httpx.Client) -> None:
    orjson.loads(client.get("/status").content)
