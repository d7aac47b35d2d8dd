"""Folding against a plain model: random batches, gaps, key changes, truncates, replays and late events."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from spark_jobs.landing.fold import BASE, DELETE, Folded, Past, fold
from spark_jobs.landing.late_values import CORRECTION
from spark_jobs.messages import BadJob, TableJob
from tests.clients.pipeline_events import Event, Row, at, delete, insert, truncate, update
from tests.clients.pipeline_model import Model
from tests.clients.pipeline_random import COLUMNS, RandomChanges
from tests.clients.pipeline_staged import NAMES, STAMP_US, staged_rows

Mirror = dict[int, Row]
NAMED = tuple(COLUMNS)


def _job(events: list[Event], **more: Any) -> TableJob:
    counts = dict.fromkeys(("insert", "update", "delete", "read", "truncate"), 0)
    for event in events:
        counts[event.operation] += 1
    job = TableJob(
        namespace=("ns",),
        name="t",
        columns=NAMED,
        key=("id",),
        mirror="t",
        changes="t__changes",
        names=NAMES,
        counts=counts,
        has_absent=any(event.absent for event in events),
        has_moves=any(event.root is not None for event in events),
    )
    return job.model_copy(update=more)


def _fold(events: list[Event], mirror: Mirror, past: Past | None = None, **more: Any) -> Folded:
    def bases(wanted: pa.Table, columns: list[str]) -> pa.Table:
        asked = zip(wanted.column("id").to_pylist(), wanted.column(BASE).to_pylist(), strict=True)
        found = [{BASE: number, **mirror[key]} for key, number in asked if key in mirror]
        types = {"id": pa.int64(), "name": pa.string(), "big": pa.string(), "n": pa.float64()}
        schema = pa.schema([(BASE, pa.int64()), *((column, types[column]) for column in columns)])
        return pa.Table.from_pylist(found[::-1], schema)

    rows = staged_rows(events, COLUMNS, ("id",))
    return fold(rows, _job(events, **more), STAMP_US, past=past, bases=bases)


def _applied(mirror: Mirror, folded: Folded, past: list[tuple[Event, Row]]) -> Mirror:
    assert folded.mirror is not None
    result = {} if folded.mirror.truncated else dict(mirror)
    for late in folded.mirror.late_truncates:
        newer = {
            event.row["id"]
            for event, _ in past
            if event.source == late.source and event.position > late.position and event.row
        }
        result = {key: row for key, row in result.items() if key in newer}
    rows = folded.mirror.rows.to_pylist()
    assert len({row["id"] for row in rows}) == len(rows), "one row of each key"
    for row in rows:
        if row[DELETE]:
            result.pop(row["id"], None)
        else:
            result[row["id"]] = {column: row[column] for column in NAMED}
    return result


def _past(model: Model) -> Past:
    newest: dict[tuple[str, Any], str] = {}
    emptied: dict[str, str] = {}
    left_out: dict[tuple[str, Any], list[tuple[str, frozenset[str]]]] = {}
    for event, _ in model.history:
        if event.operation == "truncate":
            emptied[event.source] = max(emptied.get(event.source, ""), event.position)
            continue
        mark = (event.source, (event.row["id"],))
        newest[mark] = max(newest.get(mark, ""), event.position)
        if not event.id.endswith(CORRECTION):
            absent = event.absent if event.operation == "update" else ()
            left_out.setdefault(mark, []).append((event.position, frozenset(absent)))
    for (source, _), changes in left_out.items():
        changes.append((emptied.get(source, ""), frozenset()))
    known = frozenset((event.source, event.id) for event, _ in model.history)
    return Past(known, newest, emptied, left_out)


def _changes(folded: Folded) -> list[tuple[Any, ...]]:
    assert folded.changes is not None
    rows = folded.changes.to_pylist()
    return [(row["_event_id"], row["_operation"], *(row[column] for column in NAMED)) for row in rows]


def _expected(history: list[tuple[Event, Row]]) -> list[tuple[Any, ...]]:
    return [(event.id, event.operation, *row.values()) for event, row in history]


@pytest.mark.parametrize("seed", range(60))
def test_random_batches_equal_the_model(seed: int) -> None:
    changes, model = RandomChanges(seed, keys=5), Model(NAMED, ("id",))
    mirror: Mirror = {}
    for size in (1, 5, 20, 3, 40):
        events = changes.batch(size)
        before = len(model.history)
        folded = _fold(events, mirror)
        mirror = _applied(mirror, folded, model.history)
        model.land(events)
        assert mirror == {key[0]: row for key, row in model.mirror.items()}
        assert _changes(folded) == _expected(model.history[before:])


@pytest.mark.parametrize("seed", range(60))
def test_random_late_batches_equal_the_model(seed: int) -> None:
    changes, model = RandomChanges(seed, keys=6, positions=True), Model(NAMED, ("id",))
    mirror: Mirror = {}
    sent: list[Event] = []
    for size in (4, 10, 25, 10, 3):
        events = _without_late_gaps(changes.late_batch(size, sent))
        before = len(model.history)
        folded = _fold(events, mirror, _past(model), late=True)
        mirror = _applied(mirror, folded, model.history)
        model.land(events, late=True)
        sent += events
        assert mirror == {key[0]: row for key, row in model.mirror.items()}
        assert _changes(folded) == _expected(model.history[before:])
        added = [event for event, _ in model.history[before:] if not event.id.endswith(CORRECTION)]
        assert folded.repeated == len(events) - len(added)


def _without_late_gaps(events: list[Event]) -> list[Event]:
    """A late truncate leaves rows behind it that the fold does not know of; gaps after it stay gaps."""
    if not any(event.operation == "truncate" for event in events):
        return events
    return [event for event in events if not event.absent]


def test_a_late_value_counts_where_newer_changes_left_its_column_out() -> None:
    """A dead letter that is replayed: it set a large value, which the update after it did not send again."""
    model, mirror = Model(NAMED, ("id",)), dict[int, Row]()
    batches = [
        [at(4, insert(id=1, name="a", big="old", n=1.0))],
        [at(6, update("big", id=1, name="c", n=3.0)), at(7, update("big", "n", id=1, name="d"))],
        [at(5, update(id=1, name="b", big="new", n=2.0)), at(8, update("name", "big", id=1, n=4.0))],
        [at(3, update(id=1, name="x", big="x", n=0.0))],
    ]
    names = []
    for number, events in enumerate(batches):
        folded = _fold(events, mirror, _past(model) if number else None)
        mirror = _applied(mirror, folded, model.history)
        model.land(events, late=bool(number))
        names.append([row[0] for row in _changes(folded)])
        assert mirror == {key[0]: row for key, row in model.mirror.items()}
    assert mirror == {1: {"id": 1, "name": "d", "big": "new", "n": 4.0}}
    assert names[2:] == [["pg-5", f"pg-5{CORRECTION}", "pg-8"], ["pg-3"]]


def test_rows_may_be_out_of_order_in_the_file() -> None:
    events = [insert(id=1, name="a"), update(id=1, name="b"), delete(id=2)]
    rows = staged_rows(events, COLUMNS, ("id",)).take(pa.array([2, 0, 1]))
    folded = fold(rows, _job(events), STAMP_US)
    assert folded.mirror is not None
    assert {row["id"]: row["name"] for row in folded.mirror.rows.to_pylist()} == {1: "b", 2: None}
    assert [row[1] for row in _changes(folded)] == ["insert", "update", "delete"]


def test_what_is_only_appended_is_not_folded() -> None:
    events = [insert(id=1, name="a"), insert(id=1, name="a"), insert(id=None, name="b")]
    folded = _fold(events, {}, append_only=True, key=())
    assert folded.mirror is not None
    assert [row["id"] for row in folded.mirror.rows.to_pylist()] == [1, 1, None]


def test_a_null_key_is_refused() -> None:
    with pytest.raises(BadJob, match="key column id is null"):
        _fold([insert(id=None, name="a")], {})
    _fold([truncate()], {})


def test_a_truncate_empties_the_mirror_first() -> None:
    folded = _fold([delete(id=9), truncate(), insert(id=1, name="a")], {})
    assert folded.mirror is not None
    assert folded.mirror.truncated
    assert [row["id"] for row in folded.mirror.rows.to_pylist()] == [1]
