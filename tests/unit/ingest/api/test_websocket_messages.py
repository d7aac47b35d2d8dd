"""The messages of the WebSocket protocol."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from ingest.api import websocket_messages as messages
from ingest.api.websocket_messages import Batch, Malformed, batch_of, parse, source_of


def batch(**fields: Any) -> dict[str, Any]:
    events = [{"sequence": 3}, {"sequence": 4}]
    return {"type": "cdc_batch", "sourceDoId": "s", "events": events, "sequenceNumber": 9, **fields}


def test_a_batch() -> None:
    found = batch_of(batch(correlationId="c", firstEventSequence=3, lastEventSequence=4))
    assert found == Batch("s", 9, "c")


def test_its_source_has_the_shard() -> None:
    assert batch_of(batch(sourceShardName="x")).source == "s/x"
    assert source_of({}, "client", "shard") == "client/shard"
    assert source_of({"sourceDoId": "own"}, "client", None) == "own"


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"firstEventSequence": 2}, "invalid_sequence"),
        ({"lastEventSequence": 5}, "invalid_sequence"),
        ({"firstEventSequence": "3"}, "invalid_format"),
        ({"events": []}, "invalid_format"),
        ({"events": {}}, "invalid_format"),
        ({"sourceDoId": ""}, "invalid_format"),
        ({"sourceDoId": 7}, "invalid_format"),
        ({"sourceShardName": "a\nb"}, "invalid_format"),
        ({"sequenceNumber": None}, "invalid_format"),
        ({"sequenceNumber": True}, "invalid_format"),
        ({"sequenceNumber": -1}, "invalid_format"),
    ],
)
def test_a_batch_that_is_not_right(fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(Malformed) as refused:
        batch_of(batch(correlationId="c", **fields))
    assert (refused.value.reason, refused.value.correlation) == (reason, "c")


def test_events_without_numbers_do_not_disagree() -> None:
    assert batch_of(batch(events=[{}], firstEventSequence=1, lastEventSequence=2)).sequence == 9


@pytest.mark.parametrize("raw", [b"", b"[]", b"7", b"{", b'{"type":"other"}', b'{"type":1}', b"\xff", b"{}"])
def test_what_is_no_message(raw: bytes) -> None:
    with pytest.raises(Malformed) as refused:
        parse(raw)
    assert refused.value.reason == "invalid_format"


def test_a_message_with_nan_is_read_all_the_same() -> None:
    message, is_plain = parse(b'{"type":"cdc_batch","events":[NaN]}')
    assert message["type"] == "cdc_batch"
    assert not is_plain


def test_a_nack_says_whether_to_try_again() -> None:
    again = messages.nack("buffer_full", "full", now_ms=5, sequence=3, correlation="c", retry_ms=5000)
    assert again == {
        "type": "nack",
        "timestamp": 5,
        "sequenceNumber": 3,
        "reason": "buffer_full",
        "errorMessage": "full",
        "shouldRetry": True,
        "retryDelayMs": 5000,
        "correlationId": "c",
    }
    never = messages.nack("payload_too_large", "large", now_ms=5, size=(10, 11))
    assert (never["shouldRetry"], never["maxSize"], never["actualSize"]) == (False, 10, 11)


def test_a_pong_echoes_the_time() -> None:
    assert messages.pong({"timestamp": 7, "correlationId": "x"}, 9) == {
        "type": "pong",
        "timestamp": 7,
        "serverTime": 9,
        "correlationId": "x",
    }


def test_the_largest_event() -> None:
    events = [{"a": "x" * 10}, {"a": "x" * 100}]
    assert messages.largest_event({"events": events}) == len(orjson.dumps(events[1]))
