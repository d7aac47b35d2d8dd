"""Events that come late or again: older never wins, what is deleted stays deleted, nothing is told twice."""

from __future__ import annotations

import pytest

from tests.clients.pipeline_events import Event, at, delete, insert, truncate, update
from tests.clients.pipeline_fixtures import Checked, pipeline, pipeline_slots
from tests.clients.pipeline_lake import PipelineLake
from tests.clients.pipeline_random import COLUMNS, RandomChanges

__all__ = ["pipeline", "pipeline_slots"]
# PySpark leaves the socket that rows came through to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


def test_older_never_wins(pipeline: PipelineLake) -> None:
    table = Checked(pipeline.table(COLUMNS))
    table.land(
        at(10, insert(id=1, name="newest", big="B")),
        at(20, insert(id=2, name="was there")),
        at(30, delete(id=2)),
        at(40, insert(id=3, name="third", big="C")),
        at(50, insert(id=4, name="fourth")),
    )
    facts = table.land(
        at(5, update(id=1, name="older")),
        at(25, update(id=2, name="must not come back")),
        at(40, insert(id=3, name="third", big="C")),  # a replay
        at(45, update(id=3, name="newer after all", big="C")),
        at(46, insert(id=5, name="never seen")),
        at(49, delete(id=4)),  # older than its insert
        at(60, update("big", id=1, name="new")),
        at(1, update(id=1, name="of another source"), source="mysql"),
        Event("update", {"id": 4, "name": "without a position: counts by arrival"}),
        late=True,
    )
    assert facts["repeated"] == 1


def test_a_batch_that_was_there_before_changes_nothing(pipeline: PipelineLake) -> None:
    table = Checked(pipeline.table(COLUMNS))
    events = [
        at(1, insert(id=1, name="a")),
        at(2, update(id=1, name="b")),
        at(3, insert(id=2, name="c")),
        at(3, delete(id=2), event_id="another at the same place"),
    ]
    table.land(*events)
    assert table.land(*events, late=True)["repeated"] == 4


def test_late_truncates(pipeline: PipelineLake) -> None:
    table = Checked(pipeline.table(COLUMNS))
    table.land(
        at(10, insert(id=1, name="before")),
        at(20, insert(id=2, name="before")),
        at(40, update(id=1, name="after")),
    )
    table.land(
        at(15, insert(id=3, name="before")),
        at(30, truncate()),
        at(35, insert(id=4, name="after")),
        late=True,
    )
    # What is older than a truncate that has landed does not come back.
    table.land(at(25, insert(id=5, name="too old")), at(31, insert(id=6, name="young enough")), late=True)


def test_without_a_history_arrival_decides(pipeline: PipelineLake) -> None:
    table = pipeline.table(COLUMNS, has_changes=False)
    table.land(at(10, insert(id=1, name="newer")))
    table.land(at(5, update(id=1, name="older")), late=True)
    assert [row["name"] for row in table.mirror()] == ["older"]


def test_late_values_of_columns_that_newer_changes_left_out(pipeline: PipelineLake) -> None:
    table = Checked(pipeline.table(COLUMNS))
    table.land(at(4, insert(id=1, name="a", big="old", n=1.0)), at(5, insert(id=2, name="x", big="X")))
    table.land(at(7, update("big", id=1, name="c", n=3.0)), at(8, update("n", id=2, name="y", big="Y")))
    table.land(
        at(6, update(id=1, name="b", big="new", n=2.0)),
        at(7, update(id=2, name="late", big="late", n=5.0), event_id="other"),
        at(9, update("name", "big", id=1, n=4.0)),
        late=True,
    )
    assert table.model.mirror[1,] == {"id": 1, "name": "c", "big": "new", "n": 4.0}
    assert table.model.mirror[2,] == {"id": 2, "name": "y", "big": "Y", "n": 5.0}


def test_a_repeat_without_a_position_is_not_told_twice(pipeline: PipelineLake) -> None:
    table = Checked(pipeline.table(COLUMNS))
    old, new = insert(id=1, name="old"), update(id=1, name="new")
    table.land(old)
    table.land(new)
    assert table.land(old, late=True)["repeated"] == 1
    assert table.model.mirror[1,]["name"] == "new"


def test_late_appends_are_not_told_twice(pipeline: PipelineLake) -> None:
    table = pipeline.table({"id": "long", "name": "string"}, append_only=True)
    events = [at(1, insert(id=1, name="a")), at(2, insert(id=2, name="b"))]
    table.land(*events)
    facts = table.land(*events, at(3, insert(id=3, name="c")), late=True)
    assert facts["repeated"] == 2
    assert sorted(row["id"] for row in table.mirror()) == [1, 2, 3]


def test_random_late_batches(pipeline: PipelineLake) -> None:
    _random(pipeline, 7, [15, 25, 25])


@pytest.mark.proof
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(200, 210))
def test_many_random_late_batches(pipeline: PipelineLake, seed: int) -> None:
    _random(pipeline, seed, [20, 5, 60, 200, 10, 100, 50, 30])


def _random(pipeline: PipelineLake, seed: int, sizes: list[int]) -> None:
    changes = RandomChanges(seed, keys=10, positions=True)
    table = Checked(pipeline.table(COLUMNS))
    sent: list[Event] = []
    for size in sizes:
        batch = changes.late_batch(size, sent)
        if any(event.operation == "truncate" for event in batch):
            batch = [event for event in batch if not event.absent]
        table.land(*batch, late=bool(sent))
        sent += batch
