"""Bodies to events: every shape, bad pieces by themselves, exact numbers."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.errors import Invalid
from ingest.change import ParsedRequest, RequestContext
from ingest.formats.detect import is_event
from ingest.formats.json_body import add_events, has_long_number, split_events

HERE = RequestContext()
NATIVE = {"sequence": 1, "timestamp": 2, "operation": "INSERT", "table": "t", "rowId": "1", "after": {"a": 1}}


def split(body: bytes, context: RequestContext = HERE) -> tuple[list[tuple[int, Any]], ParsedRequest]:
    parsed = ParsedRequest("auto")
    return split_events(body, context, is_event, parsed), parsed


def values(body: bytes, context: RequestContext = HERE) -> list[Any]:
    events, parsed = split(body, context)
    assert [index for index, _ in events] == list(range(parsed.events))
    assert not parsed.rejects
    return [event for _, event in events]


@pytest.mark.parametrize(
    "body",
    [
        b'[{"a":1},{"a":2}]',
        b'\xef\xbb\xbf[{"a":1},{"a":2}]',
        b'[\n {"a": 1},\n {"a": 2}\n]\n',
        b'{"a":1}\n{"a":2}\n',
        b'{"a":1}\r\n\r\n{"a":2}',
        b'{"a":1}{"a":2}',
        b'{\n "a": 1\n}\n{\n "a": 2\n}',
        b' {"a":1} \t {"a":2} ',
        b'[{"a":1}]\n[{"a":2}]',
        b'{"events":[{"a":1},{"a":2}]}',
        b'{"data":[{"a":1},{"a":2}]}',
        b'{"records":[{"a":1},{"a":2}],"value_schema_id":3}',
        b'{"payload":[{"a":1},{"a":2}],"length":2}',
        b'{"type":"cdc_batch","sourceDoId":"x","events":[{"a":1},{"a":2}],"sequenceNumber":1}',
    ],
)
def test_shapes(body: bytes) -> None:
    assert values(body) == [{"a": 1}, {"a": 2}]


@pytest.mark.parametrize(
    "whole",
    [
        {"a": 1},
        {"id": 1, "data": [1, 2]},
        {"id": 1, "events": [{"kind": "click"}]},
        {"id": 1, "payload": {"x": 1}},
        {"change": [{"kind": "insert"}], "xid": 1},
        {"data": [NATIVE], "table": "t", "type": "INSERT", "isDdl": False, "database": "d"},
        {"resolved": "1.0"},
    ],
)
def test_an_object_that_is_an_event_itself_stays_whole(whole: dict[str, Any]) -> None:
    assert values(orjson.dumps(whole)) == [whole]


def test_a_wrapper_with_more_fields_is_known_by_what_it_holds() -> None:
    assert values(orjson.dumps({"events": [NATIVE], "client": "x"})) == [NATIVE]


@pytest.mark.parametrize(
    "body", [b"", b" \n\t", b"\xef\xbb\xbf", b"[]", b'{"events":[]}', b'{"data":[]}\n[]']
)
def test_a_body_without_events_is_refused(body: bytes) -> None:
    with pytest.raises(Invalid, match="at least one"):
        split(body)


@pytest.mark.parametrize(
    "body",
    [
        b"nonsense",
        b"\xff\xfe",
        b'{"a":',
        b'[{"a":1},\n{"a":2}',
        b"{" * 2000,
        b"[" * 5000 + b"]" * 5000,
        b"a\nb",
    ],
)
def test_a_body_of_which_nothing_can_be_read_is_one_reject(body: bytes) -> None:
    events, parsed = split(body, RequestContext(table=("a", "b"), source="s"))
    assert events == []
    assert parsed.events == 1
    (reject,) = parsed.rejects
    assert (reject.index, reject.original, reject.code) == (0, body, "not-json")
    assert (reject.table, reject.source) == (("a", "b"), "s")
    assert "send a JSON object" in reject.reason


@pytest.mark.parametrize(
    ("body", "bad"),
    [
        (b'{"a":0}\n{"a":\n{"a":2}', b'{"a":'),
        (b'nonsense\n{"a":1}\n{"a":2}', b"nonsense"),
        (b'{"a":0}\n{"a":"\xff"}\n{"a":2}', b'{"a":"\xff"}'),
        (b'{"a":0}\n{"a":NaN}\n{"a":2}', b'{"a":NaN}'),
        (b'[{"a":0},{"a":NaN},{"a":2}]', b'{"a":"NaN"}'),
        (b'[{"a":0},{"a":1e999},{"a":2}]', b'{"a":"1e999"}'),
        (b'[{"a":0},{"a":"\\ud800"},{"a":2}]', b'{"a":"\\ud800"}'),
        (b'{"events":[{"a":0},{"\\udfff":1},{"a":2}]}', b'{"\\udfff":1}'),
        (
            b'[{"a":0},' + b'{"a":' * 120 + b"1" + b"}" * 120 + b',{"a":2}]',
            b'{"a":' * 120 + b"1" + b"}" * 120,
        ),
        (b'[{"a":0},7,{"a":2}]', b"7"),
        (b'[{"a":0},[{"a":1}],{"a":2}]', b'[{"a":1}]'),
        (b'{"a":0}{"a":1}{"a":', b'{"a":'),
    ],
)
def test_a_bad_piece_does_not_hurt_the_others(body: bytes, bad: bytes) -> None:
    events, parsed = split(body)
    assert len(events) == 2
    assert all(event == {"a": index} for index, event in events)
    (reject,) = parsed.rejects
    assert reject.original == bad
    assert {reject.index, *(index for index, _ in events)} == {0, 1, 2}
    assert ":" in reject.reason


def test_null_is_a_tombstone() -> None:
    events, parsed = split(b'[null,{"a":1}]')
    assert parsed.ignored == {0: "tombstone"}
    assert events == [(1, {"a": 1})]


def test_lines_can_be_asked_for_by_the_content_type() -> None:
    events, parsed = split(b'[{"a":1},\n{"a":2}', RequestContext(content_type="application/x-ndjson"))
    assert events == [(1, {"a": 2})]
    assert parsed.rejects[0].original == b'[{"a":1},'


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("18446744073709551615", 2**64 - 1),
        ("18446744073709551616", 2**64),
        ("-99999999999999999999999999999999999999", -(10**38) + 1),
        ("12345678901234567.89", Decimal("12345678901234567.89")),
        ("0.1234567890123456789", Decimal("0.1234567890123456789")),
        ("0.10000000000000001", 0.1),  # a double, as some write it
        ("0.100000000000000000000000", 0.1),
        ("1763280000000000000", 1763280000000000000),
        ("12.5", 12.5),
        ('"12345678901234567890.5"', "12345678901234567890.5"),
    ],
)
def test_numbers_are_exact(text: str, value: object) -> None:
    for body in (f'[{{"a":{text}}}]', f'{{"a": {text}}}\n{{"b":1}}', f'{{"x":[{text}]}}{{"b":1}}'):
        first = values(body.encode())[0]
        held = first["a"] if "a" in first else first["x"][0]
        assert held == value
        assert type(held) is type(value)


def test_ordinary_numbers_keep_to_the_quick_way() -> None:
    assert not has_long_number(b'{"ts_ns":1763280000000000000,"v":"3.6.0.Final","d":0.1234567890123456}')
    assert not has_long_number(b'{"card":"12345678901234567890123"}')
    assert has_long_number(b'{"n":9223372036854775808}')
    assert has_long_number(b'{"n":-12345678901234567.8}')


def test_depth_is_limited_to_what_can_be_written_again() -> None:
    deep: Any = {"a": 1}
    for _ in range(95):
        deep = {"a": deep}
    assert values(orjson.dumps([deep] * 3)) == [deep] * 3
    large = [{"a": "[" * 50_000}, {"b": 10**30}]
    assert values(json.dumps(large).encode()) == large


def test_decoded_events() -> None:
    parsed = ParsedRequest("auto")
    assert add_events([{"a": 1}, 7, None], HERE, parsed) == [(0, {"a": 1})]
    assert (parsed.events, parsed.rejects[0].code, parsed.ignored) == (3, "not-object", {2: "tombstone"})
    with pytest.raises(Invalid, match="at least one"):
        add_events([], HERE, ParsedRequest("auto"))


@settings(max_examples=200, deadline=None)
@given(body=st.binary(max_size=60) | st.text('{}[]":,1e9.- \nabn\\u', max_size=40).map(str.encode))
def test_any_bytes(body: bytes) -> None:
    parsed = ParsedRequest("auto")
    try:
        events = split_events(body, HERE, is_event, parsed)
    except Invalid:
        return
    found = [*(index for index, _ in events), *(r.index for r in parsed.rejects), *parsed.ignored]
    assert sorted(found) == list(range(parsed.events))
