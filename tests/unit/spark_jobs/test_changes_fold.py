"""The fold of a changes table gives the mirror that landing has made of the same changes."""

from __future__ import annotations

from typing import Any

import pytest

from spark_jobs.landing.fold import Folded
from spark_jobs.verification.changes_fold import Change, fold
from tests.clients.pipeline_model import Model
from tests.clients.pipeline_random import RandomChanges
from tests.unit.spark_jobs.test_fold import (
    NAMED,
    Mirror,
    _applied,
    _fold,
    _past,
    _without_late_gaps,
)


def landed(folded: Folded, batch: int) -> list[Change[Any]]:
    """The rows of the changes table that a batch adds."""
    assert folded.changes is not None
    return [
        Change(
            row["_operation"],
            row["_source"] or "",
            row["_position"] or "",
            row["_transaction"],
            batch,
            f"file-{batch}",
            row_number,
            {column: row[column] for column in NAMED},
        )
        for row_number, row in enumerate(folded.changes.to_pylist())
    ]


def folded_mirror(changes: list[Change[Any]]) -> Mirror:
    truncates = [change for change in changes if change.operation == "truncate"]
    keys = {change.row["id"] for change in changes if change.operation != "truncate"}
    found = {
        key: fold([change for change in changes if change.row["id"] == key], truncates).row for key in keys
    }
    return {key: row for key, row in found.items() if row is not None}


@pytest.mark.parametrize("seed", range(60))
def test_random_histories_give_no_false_alarm(seed: int) -> None:
    source, mirror, changes = RandomChanges(seed, keys=5), Mirror(), list[Change[Any]]()
    for batch, size in enumerate((1, 5, 20, 3, 40)):
        folded = _fold(source.batch(size), mirror)
        mirror = _applied(mirror, folded, [])
        changes += landed(folded, batch)
        assert folded_mirror(changes) == mirror


@pytest.mark.parametrize("seed", range(60))
def test_late_and_repeated_changes_give_no_false_alarm(seed: int) -> None:
    source, model = RandomChanges(seed, keys=6, positions=True), Model(NAMED, ("id",))
    mirror, changes, sent = Mirror(), list[Change[Any]](), list[Any]()
    for batch, size in enumerate((4, 10, 25, 10, 3)):
        events = _without_late_gaps(source.late_batch(size, sent))
        folded = _fold(events, mirror, _past(model), late=True)
        mirror = _applied(mirror, folded, model.history)
        model.land(events, late=True)
        sent += events
        changes += landed(folded, batch)
        assert folded_mirror(changes) == mirror


def change(operation: str, row: str = "", /, **more: Any) -> Change[str]:
    given = {"source": "s", "position": "", "transaction": None, "commit_us": 1, "file": "f", "row_number": 0}
    return Change(operation, row=row, **(given | more))


def test_two_rows_that_swap_their_keys_both_stay() -> None:
    before = change("insert", "old")
    moved = [
        change("insert", "new", transaction="t", commit_us=2),
        change("delete", transaction="t", commit_us=2),
    ]
    assert fold([before, *moved]) == ("new", None)
    assert fold(moved) == (None, None)  # nothing was there that the delete could mean


def test_positions_decide_inside_a_batch_that_a_compaction_has_reordered() -> None:
    rows = [change("update", "new", position="2"), change("insert", "old", position="1", row_number=1)]
    assert fold(rows).row == "new"


def test_changes_behind_a_position_are_left_out() -> None:
    rows = [change("insert", "old", position="1"), change("update", "new", position="2", commit_us=2)]
    assert fold(rows, through={"s": "1"}).row == "old"
    assert fold(rows, through={"other": "0"}).row == "new"


def test_a_truncate_without_a_position_is_a_new_beginning() -> None:
    rows = [
        change("insert", "old", position="5"),
        change("read", "again", position="3", commit_us=2, row_number=2),
    ]
    truncates: list[Change[None]] = [Change("truncate", "", "", None, 2, "f", 1, None)]
    assert fold(rows, truncates).row == "again"
    assert fold(rows[:1], truncates).row is None
