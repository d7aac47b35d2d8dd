"""/ws: the protocol, message by message."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from ingest.api import ApiSettings
from tests.contract.ingest.api.api_server import ApiServer, batch, event, events_in, served

ACK_DETAILS = {
    "eventsProcessed",
    "bufferUtilization",
    "timeUntilFlush",
    "remainingTokens",
    "bucketCapacity",
    "suggestedDelayMs",
    "circuitBreakerState",
}


@pytest.fixture
def socket(server: ApiServer, warehouse: str) -> Iterator[ClientConnection]:
    with connect(f"{server.ws_url}?warehouse={warehouse}", max_size=None) as found:
        yield found


def told(socket: ClientConnection) -> Any:
    return orjson.loads(socket.recv(timeout=60))


def asked(socket: ClientConnection, message: str | bytes | dict[str, Any]) -> Any:
    socket.send(message if isinstance(message, str | bytes) else orjson.dumps(message).decode())
    return told(socket)


def closing_code(socket: ClientConnection) -> int:
    try:
        while True:
            socket.recv(timeout=60)
    except ConnectionClosed as ended:
        return ended.rcvd.code if ended.rcvd is not None else 0


def test_a_plain_ping(socket: ClientConnection) -> None:
    socket.send("ping")
    assert socket.recv(timeout=60) == "pong"
    socket.send(b"ping")
    assert socket.recv(timeout=60) == "pong"


def test_connect_is_answered_with_the_status(socket: ClientConnection) -> None:
    capabilities = {"binaryProtocol": True, "compression": False, "batching": True, "maxBatchSize": 1000}
    hello = {
        "type": "connect",
        "timestamp": 1,
        "correlationId": "c1",
        "sourceDoId": "do-1",
        "sourceShardName": "shard-1",
        "lastAckSequence": 0,
        "protocolVersion": 1,
        "capabilities": capabilities,
    }
    status = asked(socket, hello)
    assert (status["type"], status["correlationId"]) == ("status", "c1")
    assert status["state"] in ("idle", "receiving", "flushing", "recovering", "error")
    assert {"batchCount", "eventCount", "totalSizeBytes", "utilization"} <= set(status["buffer"])
    assert status["connectedSources"] >= 1


def test_a_batch_is_acknowledged_when_it_is_durable(
    server: ApiServer, socket: ClientConnection, warehouse: str
) -> None:
    ack = asked(socket, batch(7, [event(1), event(2)], correlationId="c7", sourceShardName="s1"))
    assert (ack["type"], ack["sequenceNumber"], ack["status"]) == ("ack", 7, "ok")
    assert (ack["correlationId"], ack["batchId"]) == ("c7", f"{warehouse}:1")
    assert ack["details"].keys() >= ACK_DETAILS
    assert ack["details"]["eventsProcessed"] == 2
    assert ack["rateLimit"].keys() == {"limit", "remaining", "resetAt"}
    assert [(change.source, change.number) for change in events_in(server.journal, warehouse)] == [
        ("source/s1", 1),
        ("source/s1", 2),
    ]


def test_a_repeat_is_a_duplicate_for_ever(socket: ClientConnection) -> None:
    first = asked(socket, batch(1, [event(1), event(2)]))
    again = asked(socket, batch(1, [event(1), event(2)], isRetry=True, retryCount=1))
    assert [first["status"], again["status"]] == ["ok", "duplicate"]
    overlapping = asked(socket, batch(2, [event(2), event(3)]))
    assert (overlapping["status"], overlapping["details"]["duplicates"]) == ("ok", 1)


def test_the_numbers_of_http_and_websocket_are_the_same(
    server: ApiServer, socket: ClientConnection, client: Any
) -> None:
    client.post("/cdc", json=[event(1)], headers={"X-Source-Id": "source"})
    assert asked(socket, batch(1, [event(1)]))["status"] == "duplicate"


def test_binary_frames(socket: ClientConnection) -> None:
    assert asked(socket, batch(1, [event(1)]).encode())["status"] == "ok"


def test_a_message_in_fragments(socket: ClientConnection) -> None:
    text = batch(1, [event(1), event(2)])
    socket.send(text[at : at + 50] for at in range(0, len(text), 50))
    assert told(socket)["details"]["eventsProcessed"] == 2


def test_one_batch_at_a_time_if_so_set(tmp_path_factory: pytest.TempPathFactory) -> None:
    settings = ApiSettings(batches_in_flight_max=1)
    with (
        served(tmp_path_factory.mktemp("one"), settings=settings) as server,
        connect(server.ws_url) as socket,
    ):
        for number in range(1, 21):
            socket.send(batch(number, [event(number)]))
        assert [told(socket)["sequenceNumber"] for _ in range(20)] == list(range(1, 21))


def test_many_batches_in_flight_are_acknowledged_each(
    server: ApiServer, socket: ClientConnection, warehouse: str
) -> None:
    for number in range(1, 41):
        socket.send(batch(number, [event(10 * number + place) for place in range(10)]))
    acks = [told(socket) for _ in range(40)]
    assert sorted(ack["sequenceNumber"] for ack in acks) == list(range(1, 41))
    assert {ack["type"] for ack in acks} == {"ack"}
    numbers = [change.number for change in events_in(server.journal, warehouse)]
    assert numbers == list(range(10, 410)), "in the order in which they were sent"


def test_one_bad_event_is_a_dead_letter(server: ApiServer, socket: ClientConnection, warehouse: str) -> None:
    ack = asked(socket, batch(1, [event(1), {**event(2), "operation": "NOTHING"}, event(3)]))
    assert (ack["type"], ack["details"]["deadLettered"]) == ("ack", 1)
    assert len(events_in(server.journal, warehouse)) == 2


def test_an_invalid_number_rejects_only_its_event(
    server: ApiServer, socket: ClientConnection, warehouse: str
) -> None:
    text = batch(1, [event(1), event(2, after={"x": "NUMBER"}), event(3)]).replace('"NUMBER"', "NaN")
    ack = asked(socket, text)
    assert (ack["type"], ack["details"]["deadLettered"]) == ("ack", 1)
    assert [change.number for change in events_in(server.journal, warehouse)] == [1, 3]


def test_heartbeats(socket: ClientConnection) -> None:
    beat = {"type": "heartbeat", "timestamp": 5, "sourceDoId": "s", "lastAckSequence": 0, "pendingEvents": 0}
    pong = asked(socket, beat | {"correlationId": "h"})
    assert (pong["type"], pong["timestamp"], pong["correlationId"]) == ("pong", 5, "h")
    assert abs(pong["serverTime"] - time.time() * 1000) < 3_600_000


def test_flush(server: ApiServer, socket: ClientConnection) -> None:
    asked(socket, batch(1, [event(1)]))
    server.landing.lands_on_flush = True
    try:
        wish = {"type": "flush_request", "timestamp": 1, "sourceDoId": "source", "reason": "manual"}
        answer = asked(socket, wish | {"correlationId": "f"})
    finally:
        server.landing.lands_on_flush = False
    assert (answer["type"], answer["correlationId"]) == ("flush_response", "f")
    result = answer["result"]
    assert (result["success"], result["eventsFlushed"], result["batchesFlushed"]) == (True, 1, 1)
    assert {"bytesWritten", "paths", "durationMs", "usedFallback"} <= result.keys()


def test_disconnect_ends_after_the_acks(socket: ClientConnection) -> None:
    for number in range(1, 6):
        socket.send(batch(number, [event(number)]))
    socket.send(orjson.dumps({"type": "disconnect", "timestamp": 1, "sourceDoId": "source"}).decode())
    acks = [told(socket) for _ in range(5)]
    assert [ack["type"] for ack in acks] == ["ack"] * 5
    assert closing_code(socket) == 1000


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("", "invalid_format"),
        ("not json", "invalid_format"),
        ("[]", "invalid_format"),
        ('{"type": "surprise"}', "invalid_format"),
        ('{"type": "cdc_batch"}', "invalid_format"),
        (batch(1, [event(1)], sourceDoId=None), "invalid_format"),
        (batch(1, [event(1)], sequenceNumber="1"), "invalid_format"),
        (batch(1, [event(1)], lastEventSequence=2), "invalid_sequence"),
        (batch(1, [event(1)], firstEventSequence=0), "invalid_sequence"),
    ],
)
def test_messages_that_are_not_right(socket: ClientConnection, message: str, reason: str) -> None:
    nack = asked(socket, message)
    assert (nack["type"], nack["reason"], nack["shouldRetry"]) == ("nack", reason, False)
    assert nack["errorMessage"]
    assert asked(socket, batch(5, [event(5)]))["type"] == "ack", "the connection goes on"


def test_an_empty_list_of_events(socket: ClientConnection) -> None:
    message = orjson.loads(batch(3, [event(1)])) | {"events": []}
    nack = asked(socket, message)
    assert (nack["reason"], nack["sequenceNumber"]) == ("invalid_format", 3)


def test_sizes_are_violated_three_times_and_no_more(
    server: ApiServer, socket: ClientConnection, warehouse: str
) -> None:
    large = asked(socket, "x" * (4 * 2**20 + 1))
    assert (large["reason"], large["maxSize"], large["actualSize"]) == (
        "payload_too_large",
        4 * 2**20,
        4 * 2**20 + 1,
    )
    event_too_large = asked(socket, batch(2, [event(2, after={"x": "y" * 2**20})], correlationId="e"))
    assert (event_too_large["reason"], event_too_large["sequenceNumber"]) == ("event_too_large", 2)
    assert event_too_large["correlationId"] == "e"
    assert (event_too_large["maxSize"], event_too_large["shouldRetry"]) == (2**20, False)
    assert event_too_large["actualSize"] > 2**20
    assert asked(socket, batch(3, [event(3)]))["type"] == "ack"
    socket.send("x" * (4 * 2**20 + 1))
    assert closing_code(socket) == 1008
    assert [change.number for change in events_in(server.journal, warehouse)] == [3]


def test_a_large_message_of_small_events(server: ApiServer, socket: ClientConnection, warehouse: str) -> None:
    many = [event(number, after={"x": "y" * 200_000}) for number in range(15)]
    assert asked(socket, batch(1, many))["details"]["eventsProcessed"] == 15


def test_changes_of_a_disconnected_client_are_stored(server: ApiServer, warehouse: str) -> None:
    with connect(f"{server.ws_url}?warehouse={warehouse}") as socket:
        for number in range(1, 21):
            socket.send(batch(number, [event(number)]))
        socket.socket.close()
    deadline_s = time.monotonic() + 30
    seen: list[int] = []
    while time.monotonic() < deadline_s and len(seen) < 20:
        time.sleep(0.05)
        now = [change.number for change in events_in(server.journal, warehouse)]
        if now == seen and now:
            break  # the rest never arrived
        seen = now
    assert seen == list(range(1, len(seen) + 1)), "no gap: what was read was stored"


def test_a_stopping_server_refuses_batches(tmp_path_factory: pytest.TempPathFactory) -> None:
    with served(tmp_path_factory.mktemp("stopping")) as server:
        with connect(server.ws_url) as socket:
            assert asked(socket, batch(1, [event(1)]))["type"] == "ack"
            server.api.stop()
            nack = asked(socket, batch(2, [event(2)]))
            assert (nack["reason"], nack["shouldRetry"], nack["sequenceNumber"]) == ("shutting_down", True, 2)
        assert len(events_in(server.journal, "main")) == 1


def test_too_many_messages(tmp_path_factory: pytest.TempPathFactory) -> None:
    settings = ApiSettings(messages_per_s=5, messages_burst=2, messages_refill_per_s=0.001)
    with served(tmp_path_factory.mktemp("rate"), settings=settings) as server:
        with connect(server.ws_url) as socket:
            for number in range(1, 30):
                socket.send(batch(number, [event(number)]))
            answers = [told(socket) for _ in range(29)]
        nacks = [answer for answer in answers if answer["type"] == "nack"]
        acked = {answer["sequenceNumber"] for answer in answers if answer["type"] == "ack"}
        assert nacks
        assert {nack["reason"] for nack in nacks} == {"rate_limited"}
        assert all(nack["shouldRetry"] and nack["retryDelayMs"] > 0 for nack in nacks)
        assert {change.number for change in events_in(server.journal, "main")} == acked
