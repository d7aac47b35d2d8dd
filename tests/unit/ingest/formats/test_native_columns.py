"""Native events as columns: the same changes, the same in the journal, as when each is read by itself."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.api.results import RequestSummary
from ingest.change import Change, ParsedRequest, Reject, RequestContext
from ingest.formats import native
from ingest.formats.detect import parse, parse_events
from ingest.journal.encoded_request import EncodedRequest, encode_request
from ingest.journal.encoding import decode

VALUES = st.none() | st.integers(-5, 5) | st.text(max_size=3)
ROW = st.dictionaries(st.sampled_from("abc"), VALUES, max_size=3)
USUAL: dict[str, st.SearchStrategy[Any]] = {
    "sequence": st.integers(0, 2**63 - 1),
    "timestamp": st.integers(-(2**40), 2**43),
    "rowId": st.text(max_size=3),
    "table": st.just("shop.orders"),
}
# Each of these, somewhere in a request, makes its events different from one another, or wrong.
ODD: dict[str, st.SearchStrategy[Any]] = {
    "sequence": st.sampled_from([-1, 2**63, True, None, "7", 1.0]),
    "timestamp": st.sampled_from([2**60, None, "now", False]),
    "rowId": st.sampled_from([None, 7]),
    "operation": st.sampled_from(["TRUNCATE", "UPSERT", None, 3, ["INSERT"], "READ"]),
    "table": st.sampled_from(["orders", "shop.others", "", None, 5, "shop.", ["shop"]]),
    "before": st.sampled_from([{}, None, [], 0, "x", [1], {"a": 1}]),
    "after": st.sampled_from([{}, None, [], False, "x", [1], {"a": 1}]),
    "oldRow": ROW,
    "newRow": ROW,
    "metadata": st.sampled_from([None, {}, 3, {"transactionId": "t"}, {"primaryKey": ["a"]}]),
    "primaryKey": st.just(["a"]),
    "txId": st.just(9),
    "more": VALUES,
}
CONTEXTS = [
    RequestContext(),
    RequestContext(source="s"),
    RequestContext(source="s", table=("p", "q")),
    RequestContext(source="s", key=("a",)),
    RequestContext(source="s", batch="b-1"),
    RequestContext(source="s", namespace=("x", "y")),
]


@st.composite
def usual(draw: st.DrawFn) -> dict[str, Any]:
    event = {name: draw(values) for name, values in USUAL.items()}
    event["operation"] = draw(st.sampled_from(["INSERT", "update", "DELETE"]))
    if event["operation"] != "DELETE":
        event["after"] = draw(ROW.filter(bool))
    if draw(st.booleans()):
        event["before"] = draw(ROW)
    return event


@st.composite
def requests(draw: st.DrawFn) -> list[dict[str, Any]]:
    events = draw(st.lists(usual(), min_size=1, max_size=6))
    for _ in range(draw(st.integers(0, 2))):
        event = events[draw(st.integers(0, len(events) - 1))]
        name = draw(st.sampled_from(sorted(ODD)))
        if draw(st.booleans()):
            event[name] = draw(ODD[name])
        else:
            event.pop(name, None)
    return events


def _one_by_one(body: bytes, context: RequestContext) -> ParsedRequest:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(native, "columns", lambda events, context: None)
        return parse(body, context)


def _kept(packed: EncodedRequest) -> list[tuple[str, list[int], list[Change], list[Reject]]]:
    table = ("any",)
    return [(entry.key, list(entry.slots), *decode(entry.blob, table)) for entry in packed.entries]


def _claims(packed: EncodedRequest) -> list[object]:
    numbered = [(one.source, one.numbers, list(one.slots)) for one in packed.numbered]
    return [numbered, packed.digests, list(packed.digest_slots), packed.indexes, packed.steps]


@settings(max_examples=600, deadline=None)
@given(events=requests(), context=st.sampled_from(CONTEXTS), deduplicate=st.booleans())
def test_as_columns_or_one_by_one(
    events: list[dict[str, Any]], context: RequestContext, deduplicate: bool
) -> None:
    body = json.dumps({"events": events}).encode()
    quick, slow = parse(body, context), _one_by_one(body, context)
    assert RequestSummary.of(quick) == RequestSummary.of(slow)
    found, wanted = (
        encode_request("main", one, priority=1, deduplicate=deduplicate) for one in (quick, slow)
    )
    assert _kept(found) == _kept(wanted)
    assert _claims(found) == _claims(wanted)
    assert found.stored_bytes == sum(len(entry.blob) for entry in found.entries)
    assert quick.changes == slow.changes
    assert quick.rejects == slow.rejects
    assert quick.columns is None  # whoever has seen the list may have changed it


def test_the_usual_request_is_columns() -> None:
    event = {"sequence": 1, "timestamp": 5, "table": "s.t", "rowId": "1"}
    events = [{**event, "operation": "INSERT", "after": {"a": 1}}, {**event, "operation": "DELETE"}]
    for context in (RequestContext(source="s"), RequestContext(source="s", table=("p", "q"))):
        found = parse(orjson.dumps(events), context)
        assert found.columns is not None
        assert found.columns.table == (context.table or ("s", "t"))


def test_so_is_a_message_of_a_connection() -> None:
    event = {"sequence": 1, "timestamp": 5, "operation": "INSERT", "table": "s.t", "rowId": "1"}
    found = parse_events([{**event, "after": {"a": 1}}], RequestContext(source="s", batch="b"))
    assert found.columns is not None
    marked = parse_events([{**event, "after": {"a": f"{native.MARK}12"}}], RequestContext(source="s"))
    assert [change.after for change in marked.changes] == [{"a": 12}]


def test_a_list_that_was_changed_is_what_is_kept() -> None:
    event = {"sequence": 1, "timestamp": 5, "operation": "INSERT", "table": "s.t", "rowId": "1"}
    parsed = parse(orjson.dumps([{**event, "after": {"a": 1}}]), RequestContext(source="s"))
    parsed.changes[0].after = {"a": 2}
    [[_, _, [change], _]] = _kept(encode_request("main", parsed, priority=1, deduplicate=True))
    assert change.after == {"a": 2}
