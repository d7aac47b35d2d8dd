"""Bodies as the producers post them, from bytes to changes."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from ingest.change import RequestContext
from ingest.formats.detect import parse
from tests.unit.ingest.formats.recorded import sample


def _body(wrapper: str, events: list[Any]) -> bytes:
    if wrapper == "alone":
        (event,) = events
        return orjson.dumps(event)
    if wrapper == "array":
        return orjson.dumps(events)
    if wrapper == "lines":
        return b"\n".join(orjson.dumps(event) for event in events)
    if wrapper == "one after the other":
        return b"".join(orjson.dumps(event) for event in events)
    extra = {"length": len(events)} if wrapper == "payload" else {}
    return orjson.dumps({wrapper: events, **extra})


@pytest.mark.parametrize(
    ("producer", "name", "wrapper", "changes"),
    [
        ("sequin", "changes", "data", 4),
        ("sequin", "changes", "array", 4),
        ("maxwell", "transaction", "lines", 3),
        ("maxwell", "ddl", "lines", 0),
        ("canal", "changes", "array", 6),
        ("canal", "changes", "lines", 6),
        ("wal2json", "version1", "lines", 4),
        ("wal2json", "version2", "lines", 4),
        ("dms", "changes", "lines", 4),
        ("dms", "control", "array", 0),
        ("cockroach", "wrapped", "payload", 4),
        ("cockroach", "deletes", "payload", 0),
        ("supabase", "changes", "array", 3),
        ("hasura", "changes", "array", 4),
        ("kafka_rest", "version2", "records", 3),
        ("kafka_rest", "version3", "one after the other", 4),
    ],
)
def test_a_request(producer: str, name: str, wrapper: str, changes: int) -> None:
    events = sample(producer, name)
    parsed = parse(_body(wrapper, events), RequestContext(topic="srv.public.orders"))
    assert parsed.format.replace("-", "_") == producer
    assert parsed.events == len(events)
    assert len(parsed.changes) == changes


@pytest.mark.parametrize("producer", ["sequin", "dms", "supabase", "hasura"])
def test_the_key_of_the_request_is_that_of_changes_without_one(producer: str) -> None:
    body = orjson.dumps(sample(producer, "changes"))
    assert {change.key for change in parse(body, RequestContext()).changes} == {None}
    keyed = parse(body, RequestContext(key=("region", "id")))
    assert {change.key for change in keyed.changes} == {("region", "id")}


def test_the_producer_knows_its_key_better_than_the_request() -> None:
    body = orjson.dumps(sample("canal", "changes"))
    named = {change.key for change in parse(body, RequestContext()).changes}
    assert named >= {("id",)}
    keyed = {change.key for change in parse(body, RequestContext(key=("region",))).changes}
    assert keyed >= {("id",)}


@pytest.mark.parametrize(
    ("producer", "name"), [("canal", "changes"), ("wal2json", "version1"), ("supabase", "changes")]
)
def test_one_event_alone(producer: str, name: str) -> None:
    parsed = parse(_body("alone", sample(producer, name)[:1]), RequestContext())
    assert (parsed.format, parsed.events) == (producer, 1)
    assert parsed.changes


def test_enriched_messages_of_a_changefeed() -> None:
    parsed = parse(_body("payload", sample("cockroach", "enriched")), RequestContext())
    assert parsed.format == "cockroach"
    assert [change.operation for change in parsed.changes] == ["insert", "update", "delete", "insert"]


def test_in_a_named_batch_every_change_has_its_own_identity() -> None:
    body = _body("array", [*sample("supabase", "changes"), *sample("supabase", "changes")])
    first, again = (parse(body, RequestContext(batch="w1")).changes for _ in range(2))
    identities = [change.identity for change in first]
    assert len(set(identities)) == 6
    assert [change.identity for change in again] == identities
    without_ids = [{"change": sample("wal2json", "version1")[0]["change"]}]
    rows = parse(_body("array", without_ids), RequestContext(batch="w1")).changes
    assert len({change.identity for change in rows}) == len(rows) == 4
