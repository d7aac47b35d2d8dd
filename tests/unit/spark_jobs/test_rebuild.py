"""A rebuilt mirror is the one that batches have landed."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.landing.fold import BASE, fold
from spark_jobs.landing.late import past_from
from spark_jobs.messages import STAGED, BadJob, KeyFileSettings, TableJob, TableState, WorkItem
from spark_jobs.rewrite import rebuild
from spark_jobs.rewrite.replay import ROW_NUMBER, keyed, missing_key_reason, replayed
from tests.clients.pipeline_events import Event, at, delete, insert, moved, truncate, update
from tests.clients.pipeline_model import Model
from tests.clients.pipeline_random import COLUMNS, RandomChanges
from tests.clients.pipeline_random_tables import RandomTable
from tests.clients.pipeline_staged import NAMES, STAMP_US, staged_rows
from tests.unit.spark_jobs.task_table import TaskTable
from tests.unit.spark_jobs.test_task import _spec

Row = dict[str, Any]


class Changes:
    """A changes table in memory that batches land in, beside the model of its mirror."""

    def __init__(self, columns: dict[str, str], key: tuple[str, ...] = ("id",)) -> None:
        self.columns, self.key = columns, key
        self.model = Model(tuple(columns), key)
        self.batches: list[pa.Table] = []

    def job(self, events: list[Event], **more: Any) -> TableJob:
        counts = {"truncate": sum(event.operation == "truncate" for event in events)}
        return TableJob(
            namespace=("ns",),
            name="t",
            columns=tuple(self.columns),
            key=self.key,
            mirror="t",
            changes="t__changes",
            names=NAMES,
            counts=counts,
            has_absent=any(event.absent for event in events),
            has_moves=any(event.root is not None for event in events),
            **more,
        )

    def land(
        self, events: list[Event], *, late: bool = False, before: list[str | None] | None = None
    ) -> None:
        staged = staged_rows(events, self.columns, self.key)
        if before is not None:
            place = staged.schema.get_field_index(f"{STAGED}before")
            staged = staged.set_column(place, f"{STAGED}before", pa.array(before, pa.string()))
        past = past_from(self._all(), staged, self.key) if late and self.batches else None
        folded = fold(staged, self.job(events), STAMP_US + len(self.batches), past=past, bases=self._bases)
        assert folded.changes is not None
        told = {column: f"{STAGED}{name.replace('-', '_')}" for name, column in NAMES.items()}
        self.batches.append(
            folded.changes.rename_columns([told.get(name, name) for name in folded.changes.column_names])
        )
        self.model.land(events, late=late)

    def _all(self) -> pa.Table:
        return pa.concat_tables(self.batches)

    def _bases(self, wanted: pa.Table, columns: list[str]) -> pa.Table:
        found = []
        for row in wanted.to_pylist():
            known = self.model.mirror.get(tuple(row[column] for column in self.key))
            if known is not None:
                found.append({BASE: row[BASE], **{column: known[column] for column in columns}})
        schema = staged_rows([], self.columns, self.key).schema
        types = pa.schema([(BASE, pa.int64()), *((column, schema.field(column).type) for column in columns)])
        return pa.Table.from_pylist(found, types)

    def rebuilt(self, key: tuple[str, ...] | None = None) -> dict[tuple[Any, ...], Row]:
        job = self.job([], rekeyed=key is not None)
        if key is not None:
            job = job.model_copy(update={"key": key})
        changes = self._all()
        changes = changes.append_column(ROW_NUMBER, pa.array(range(changes.num_rows), pa.int64()))
        given = keyed(changes, job)
        reason = missing_key_reason(given, job)
        if reason is not None:
            raise BadJob(reason)
        # The order of the rows in the table does not matter.
        shuffled = list(range(given.num_rows))
        random.Random(1).shuffle(shuffled)
        rows = replayed(given.take(pa.array(shuffled, pa.int64())), job).drop_columns(["_commit_timestamp"])
        return {tuple(row[column] for column in job.key): row for row in rows.to_pylist()}


@given(st.integers(0, 10**6), st.booleans())
def test_replayed_changes_are_what_batches_landed(seed: int, has_positions: bool) -> None:
    dice, source = random.Random(seed), RandomChanges(seed, keys=6, positions=has_positions)
    changes, sent = Changes(COLUMNS), list[Event]()
    for _ in range(dice.randrange(1, 5)):
        if has_positions and dice.random() < 0.6:
            batch = source.late_batch(dice.randrange(1, 20), sent)
            changes.land(batch, late=True)
        else:
            batch = source.batch(dice.randrange(1, 20))
            changes.land(batch)
        sent += batch
    assert changes.rebuilt() == changes.model.mirror


def test_rows_that_swap_their_keys_stay() -> None:
    changes = Changes({"id": "long", "name": "string"})
    changes.land([at(1, insert(id=1, name="a")), at(2, insert(id=2, name="b"))])
    one, two = (
        [delete(id=1), moved({"id": 1}, id=2, name="a")],
        [delete(id=2), moved({"id": 2}, id=1, name="b")],
    )
    batch = [at(3, one[0]), at(3, one[1], event_id="x"), at(4, two[0]), at(4, two[1], event_id="y")]
    staged = staged_rows(batch, changes.columns, changes.key)
    place = staged.schema.get_field_index(f"{STAGED}transaction")
    staged = staged.set_column(place, f"{STAGED}transaction", pa.array(["7"] * 4, pa.string()))
    changes.model.mirror = {(1,): {"id": 1, "name": "a"}, (2,): {"id": 2, "name": "b"}}
    folded = fold(staged, changes.job(batch), STAMP_US + 1, bases=changes._bases)
    assert folded.changes is not None
    told = {column: f"{STAGED}{name.replace('-', '_')}" for name, column in NAMES.items()}
    named = [told.get(name, name) for name in folded.changes.column_names]
    changes.batches.append(folded.changes.rename_columns(named))
    assert changes.rebuilt() == {(1,): {"id": 1, "name": "b"}, (2,): {"id": 2, "name": "a"}}


def test_another_key_tells_rows_apart_that_overwrote_each_other() -> None:
    columns = {"tenant": "string", "id": "long", "name": "string", "big": "string"}
    changes = Changes(columns)
    changes.land(
        [
            insert(tenant="t1", id=1, name="a", big="A"),
            insert(tenant="t2", id=1, name="b", big="B"),
            update("big", tenant="t1", id=1, name="a2"),
            insert(tenant="t1", id=2, name="c", big="C"),
        ]
    )
    changes.land([delete(id=1)], before=['{"tenant": "t2", "id": 1}'])
    assert changes.rebuilt(("tenant", "id")) == {
        ("t1", 1): {"tenant": "t1", "id": 1, "name": "a2", "big": "A"},
        ("t1", 2): {"tenant": "t1", "id": 2, "name": "c", "big": "C"},
    }


def test_an_update_that_changes_the_new_key_moves_its_row() -> None:
    changes = Changes({"code": "string", "id": "long", "name": "string"})
    changes.land([insert(code="x", id=1, name="a"), insert(code="y", id=2, name="b")])
    swapped = [update(code="y", id=1, name="a"), update(code="x", id=2, name="b")]
    changes.land(swapped, before=['{"code": "x", "id": 1}', '{"code": "y", "id": 2}'])
    changes.batches[-1] = changes.batches[-1].set_column(
        changes.batches[-1].schema.get_field_index(f"{STAGED}transaction"),
        f"{STAGED}transaction",
        pa.array(["7", "7"], pa.string()),
    )
    assert changes.rebuilt(("code",)) == {
        ("y",): {"code": "y", "id": 1, "name": "a"},
        ("x",): {"code": "x", "id": 2, "name": "b"},
    }


def test_a_delete_that_does_not_say_the_new_key_refuses_the_rebuild() -> None:
    changes = Changes({"tenant": "string", "id": "long"})
    changes.land([insert(tenant="t1", id=1), delete(id=1)])
    with pytest.raises(BadJob, match=r"no value in the key column tenant.*resync"):
        changes.rebuilt(("tenant", "id"))


def test_a_late_truncate_leaves_newer_rows() -> None:
    changes = Changes({"id": "long", "n": "long"})
    changes.land([at(1, insert(id=1, n=1)), at(2, insert(id=2, n=1)), at(9, update(id=2, n=9))])
    changes.land([at(5, truncate())], late=True)
    assert changes.rebuilt() == changes.model.mirror == {(2,): {"id": 2, "n": 9}}


@pytest.mark.parametrize("seed", range(6))
def test_files_of_a_rebuild(tmp_path: Path, seed: int) -> None:
    """Types, composite keys, partitions; rows dealt to any number of buckets."""
    found, dice = RandomTable(seed), random.Random(seed)
    table = TaskTable(tmp_path, found.columns, found.key, _spec(found))
    for _ in range(4):
        table.land(*found.batch(dice.choice([1, 10, 60])))
    item = WorkItem(
        job=TableJob(
            namespace=("ns",), name="t", columns=tuple(table.columns), key=table.key, mirror="t", names=NAMES
        ),
        commit_us=STAMP_US,
        shares=dice.choice([1, 2, 5]),
        mirror=TableState(name="t", metadata=table.metadata.model_dump_json()),
        changes=TableState(name="t__changes", metadata=table.changes_metadata.model_dump_json()),
        key_files=KeyFileSettings(folder=str(tmp_path / "keys")),
    )
    buckets: dict[int, list[bytes]] = {}
    for part in enumerate(table.changes_files):
        for bucket, _, text in rebuild.rows_by_bucket(item, part):
            buckets.setdefault(bucket, []).append(text)
    table.commit([rebuild.build(item, bucket, texts) for bucket, texts in buckets.items()])
    assert table.rows() == table.model.mirror
