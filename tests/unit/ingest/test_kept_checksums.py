"""Kept checksums in SQL: added exactly, or unknown with the reason."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from catalog.store.database import Database
from ingest.store import checksums, schema
from ingest.store.checksums import (
    BatchChecksums,
    Checksums,
    KeptChecksums,
    MirrorChange,
    ReportedChecksums,
    note_checksums,
)
from ingest.store.mirrors import Snapshot

TABLE = ("shop", "orders")
BIG = 2**60 * 10**9  # the sum of the hashes of many rows


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    opened = Database(f"sqlite:///{tmp_path}/landing.db")
    schema.migrate(opened)
    yield opened
    opened.close()


def publish(database: Database, number: int, change: MirrorChange | None) -> KeptChecksums | None:
    database.write(lambda connection: note_checksums(connection, "main", TABLE, number, change))
    return Checksums(database).one("main", TABLE)


def batch(
    rows: int, hash_: int, *, on: int | None, to: int, hashed: str = "a", emptied: bool = False
) -> MirrorChange:
    added = BatchChecksums(hashed, emptied, {"0f": (rows, hash_)})
    equal_ids = frozenset() if on is None else frozenset({on})
    return MirrorChange(Snapshot(0, 0, on is None, on), to, added, equal_ids=equal_ids)


def test_batches_are_added_from_the_first_snapshot_on(database: Database) -> None:
    publish(database, 5, batch(3, BIG, on=None, to=1))
    found = publish(database, 6, batch(-1, -7, on=1, to=2))
    assert found is not None
    assert (found.number, found.snapshot_id, found.buckets) == (6, 2, {"0f": (2, BIG - 7)})
    assert found.described() == {"state": "kept", "number": 6, "rows": 2}
    found = publish(database, 7, None)  # a batch that changes nothing
    assert found is not None
    assert (found.number, found.snapshot_id) == (7, 2)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (batch(1, 1, on=9, to=10), checksums.OTHERS),
        (batch(1, 1, on=1, to=2, hashed="b"), checksums.COLUMNS),
        (batch(-4, -1, on=1, to=2), checksums.BELOW_ZERO),
        (MirrorChange(Snapshot(1, 1, False, 1), 2, None, checksums.REBUILT), checksums.REBUILT),
    ],
)
def test_what_cannot_be_added_is_unknown_until_the_mirror_is_emptied(
    database: Database, change: MirrorChange, reason: str
) -> None:
    publish(database, 5, batch(3, 30, on=None, to=1))
    found = publish(database, 6, change)
    assert found is not None
    assert (found.reason, found.buckets) == (reason, {})
    found = publish(database, 7, batch(1, 1, on=change.snapshot_id, to=20))
    assert found is not None
    assert found.reason == reason  # later batches do not make it known
    found = publish(database, 8, batch(2, 5, on=20, to=21, emptied=True))
    assert found is not None
    assert (found.reason, found.buckets) == (None, {"0f": (2, 5)})


def test_a_table_that_had_rows_before_is_unknown(database: Database) -> None:
    found = publish(database, 5, batch(1, 1, on=1, to=2))
    assert found is not None
    assert found.described()["reason"] == checksums.NOT_FROM_THE_START


def test_snapshots_that_a_compaction_replaced_have_the_same_rows() -> None:
    operations = {1: "append", 2: "overwrite", 3: "replace", 4: "replace"}
    snapshots = [
        {"snapshot-id": number, "parent-snapshot-id": number - 1 or None, "summary": {"operation": name}}
        for number, name in operations.items()
    ]
    assert checksums.equal_snapshots({"snapshots": snapshots}, 4) == {4, 3, 2}
    assert checksums.equal_snapshots({"snapshots": snapshots}, 2) == {2}


def test_what_a_worker_reports_is_removed_of_its_metrics() -> None:
    sums = {"hashed": "a", "emptied": False, "buckets": {"00": [-1, "-12"]}}
    metrics = {"tables": {"a.b": {"rows": 1, "checksums": sums}, "a.c": {"checksums": {"buckets": 3}}}}
    found = ReportedChecksums.reported(metrics, is_rebuild=False)
    assert found.added == {"a.b": BatchChecksums("a", False, {"00": (-1, -12)})}
    assert metrics == {"tables": {"a.b": {"rows": 1}, "a.c": {}}}
