"""Whatever JSON comes: each event becomes something, nothing is raised, and what was refused is kept."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.change import RequestContext
from ingest.formats import canal, cockroach, dms, hasura, kafka_rest, maxwell, sequin, supabase, wal2json
from ingest.formats.detect import module_for
from ingest.formats.fields import Format
from tests.unit.ingest.formats.recorded import broken, json_values, parse, samples_of

MODULES: dict[str, Format] = {
    "canal": canal,
    "cockroach": cockroach,
    "dms": dms,
    "hasura": hasura,
    "kafka_rest": kafka_rest,
    "maxwell": maxwell,
    "sequin": sequin,
    "supabase": supabase,
    "wal2json": wal2json,
}
CONTEXTS = (
    RequestContext(),
    RequestContext(table=("lake", "t"), source="s", key=("id",), batch="b"),
    RequestContext(topic="a.b.c", content_type="application/vnd.kafka.binary.v2+json"),
)


def _check(module: Format, events: list[Any], context: RequestContext) -> None:
    for event in events:
        assert module.recognises(event) in (True, False)
    parsed = parse(module, events, context)
    for change in parsed.changes:
        assert all(change.table)
        assert isinstance(change.position, str)
        assert isinstance(change.identity, str)
        assert change.transaction is None or isinstance(change.transaction, str)
        assert (change.after is not None) == (change.operation in ("insert", "update", "read"))
        assert change.operation != "delete" or change.before
    for refused in parsed.rejects:
        assert refused.code == "bad-table" or ": " in refused.reason  # what is wrong: what to do
        orjson.loads(refused.original)


@pytest.mark.parametrize("name", MODULES)
@settings(max_examples=25, deadline=None)
@given(events=st.lists(json_values, max_size=4), context=st.sampled_from(CONTEXTS))
def test_any_values(name: str, events: list[Any], context: RequestContext) -> None:
    _check(MODULES[name], events, context)


@pytest.mark.parametrize("name", MODULES)
@settings(max_examples=60, deadline=None)
@given(data=st.data(), context=st.sampled_from(CONTEXTS))
def test_broken_events(name: str, data: st.DataObject, context: RequestContext) -> None:
    events = data.draw(st.lists(broken(samples_of(name)), min_size=1, max_size=2))
    _check(MODULES[name], events, context)


@pytest.mark.parametrize("name", MODULES)
def test_every_recorded_event_is_its_producers(name: str) -> None:
    for event in samples_of(name):
        assert module_for(event) is MODULES[name]
