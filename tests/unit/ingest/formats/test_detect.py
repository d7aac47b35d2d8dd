"""Which format a request is in, and that nothing of it is lost."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.errors import Invalid
from ingest.change import ParsedRequest, RequestContext
from ingest.formats import debezium, detect, native, rows
from ingest.formats.detect import FORMATS, parse, parse_events
from tests.unit.ingest.formats.recorded import SAMPLES, broken, json_values, sample, samples_of

NAMES = sorted(folder.name for folder in SAMPLES.iterdir())
MANY_ROWS = ("canal", "wal2json")  # in one event
HERE = RequestContext()
CONTEXTS = (
    HERE,
    RequestContext(source="s", batch="b"),
    RequestContext(table=("lake", "t"), key=("id",), topic="a.b"),
    RequestContext(content_type="application/x-ndjson"),
    *(RequestContext(format=name, table=("t",)) for name in FORMATS),
)


def _assert_whole(parsed: ParsedRequest) -> None:
    """Each event is one of: changes, a reject, an end, ignored. One with several rows may be several."""
    kinds = [
        {change.index for change in parsed.changes},
        {reject.index for reject in parsed.rejects},
        {end.index for end in parsed.ends},
        set(parsed.ignored),
    ]
    if parsed.format in MANY_ROWS:
        assert set().union(*kinds) == set(range(parsed.events))
    else:
        assert sorted(index for kind in kinds for index in kind) == list(range(parsed.events))
        assert len(parsed.rejects) == len(kinds[1])
    for reject in parsed.rejects:
        assert ":" in reject.reason  # what is wrong, and what to do
        assert reject.code == reject.code.lower()


def _assert_read(body: bytes, context: RequestContext) -> None:
    """Invalid is for a body without events only."""
    try:
        parsed = parse(body, context)
    except Invalid:
        with pytest.raises(Invalid, match="at least one"):
            parse(body, context)
    else:
        _assert_whole(parsed)


def test_there_are_samples_of_every_format_but_rows() -> None:
    assert {name.replace("_", "-") for name in NAMES} == set(FORMATS) - {"rows"}


@pytest.mark.parametrize("name", NAMES)
def test_each_recorded_event_is_its_own_formats(name: str) -> None:
    for event in samples_of(name):
        if event.get("payload", "") is None:
            continue  # a tombstone with a schema is anybody's
        assert detect.module_for(event) is detect.named(name)


@pytest.mark.parametrize("name", NAMES)
def test_a_request_of_recorded_events(name: str) -> None:
    events = samples_of(name)
    for body in (
        orjson.dumps(events),
        b"\n".join(map(orjson.dumps, events)),
        orjson.dumps({"events": events}),
        json.dumps(events, indent=1).encode(),
    ):
        parsed = parse(body, HERE)
        assert (parsed.format, parsed.events) == (name.replace("_", "-"), len(events))
        _assert_whole(parsed)
    assert parse_events(events, HERE) == parse(orjson.dumps(events), HERE)


def test_the_asked_format_wins() -> None:
    event = sample("native", "events")[0]
    parsed = parse(orjson.dumps(event), RequestContext(format="rows", table=("t",)))
    assert (parsed.format, parsed.changes[0].after) == ("rows", event)


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(Invalid, match=r"'avro' is not known.*native, .*rows"):
        parse(b"{}", RequestContext(format="avro"))


def test_the_first_events_may_be_broken() -> None:
    body = orjson.dumps([{"x": 1}, *sample("native", "events")])
    parsed = parse(body, HERE)
    assert parsed.format == "native"
    assert [reject.index for reject in parsed.rejects] == [0]


def test_nobody_knows_a_row() -> None:
    assert detect.module_for({"id": 1}) is rows
    assert not detect.is_event({"id": 1})
    assert detect.is_event(sample("native", "events")[0])


def test_a_body_that_is_not_json_keeps_the_name_that_was_asked_for() -> None:
    assert parse(b"nonsense", HERE).format == "auto"
    assert parse(b"nonsense", RequestContext(format="canal")).format == "canal"


def test_an_event_that_a_format_says_nothing_of_is_a_reject(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(debezium, "add_change", lambda *_: "")
    (reject,) = parse(orjson.dumps(sample("debezium", "oracle")), HERE).rejects
    assert (reject.index, reject.code) == (0, "unread")


def test_several_changes_of_one_event_have_names_in_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    def twice(events: Any, context: RequestContext, parsed: ParsedRequest) -> None:
        for _ in range(2):
            rows.read(events, context, parsed)

    monkeypatch.setattr(native, "read_unmarked", twice)
    body = orjson.dumps(sample("native", "events")[1])
    parsed = parse(body, RequestContext(table=("t",), batch="b"))
    assert [change.identity for change in parsed.changes] == ["t:b:0", "t:b:0:1"]


@settings(max_examples=150, deadline=None)
@given(value=json_values, context=st.sampled_from(CONTEXTS))
def test_any_json(value: Any, context: RequestContext) -> None:
    _assert_read(orjson.dumps(value), context)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=25, deadline=None)
@given(data=st.data(), context=st.sampled_from(CONTEXTS))
def test_broken_events(name: str, data: st.DataObject, context: RequestContext) -> None:
    events = data.draw(st.lists(broken(samples_of(name)), min_size=1, max_size=4))
    _assert_whole(parse(orjson.dumps(events), context))


@settings(max_examples=150, deadline=None)
@given(body=st.binary(max_size=80), context=st.sampled_from(CONTEXTS))
def test_any_bytes(body: bytes, context: RequestContext) -> None:
    _assert_read(body, context)


@pytest.mark.parametrize("name", ["native", "debezium", "debezium_flattened", "cloudevents"])
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_a_repeated_request_has_the_same_identities(name: str, data: st.DataObject) -> None:
    body = orjson.dumps(data.draw(st.lists(broken(samples_of(name)), min_size=1, max_size=4)))
    first, again = (parse(body, RequestContext(table=("t",), batch="b")) for _ in range(2))
    marks = [(change.identity, change.number) for change in first.changes]
    assert marks == [(change.identity, change.number) for change in again.changes]
    assert all(identity or number is not None for identity, number in marks)
