"""Where the processor's time of one event goes: each step alone, in this process, one after the other.

The steps are those of the API (bytes to COMMIT) and of the staging process (journal to Parquet). What a
request costs beside them is HTTP and the event loop: the servers' own figures have it in them.
"""

from __future__ import annotations

import contextlib
import io
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import orjson
import pyarrow.parquet as pq

from bench.ingest import events
from bench.ingest.report import figure
from catalog.store.database import Database
from ingest.change import RequestContext
from ingest.formats.detect import parse
from ingest.identity import ArrivedChange, in_order, is_late, key_changes, watermarks, without_repeats
from ingest.journal import schema
from ingest.journal.encoded_request import encode_request
from ingest.journal.entries import read_entries
from ingest.journal.group_commit import Appender, now_ms
from ingest.settings import JournalLimits, TableSettings
from ingest.staging.arrow_table import arrow_table
from ingest.staging.targets import plan_table
from ingest.types.schema_plan import policy_violations

TABLE = ("bench", "orders")
BATCH = 1_000
KEYS = 10_000
GIB = 2**30

Costs = dict[str, float]


class _Clock:
    """Notes processor time by step. The median of the batches: other processes disturb single ones."""

    def __init__(self) -> None:
        self._taken_us: dict[str, list[float]] = {}

    @contextlib.contextmanager
    def __call__(self, step: str, count: int) -> Iterator[None]:
        """A step for so many events."""
        began = time.process_time()
        yield
        self._taken_us.setdefault(step, []).append((time.process_time() - began) / count * 1e6)

    def each(self) -> Costs:
        return {step: statistics.median(taken) for step, taken in self._taken_us.items()}


def of_ack(count: int, folder: Path) -> Costs:
    """µs of one event, in requests of 1,000: JSON alone, all of reading it, packing, the SQL transaction."""
    clock = _Clock()
    with _database(folder / "costs-ack.db") as database:
        _filled(database, count, clock)
    found = clock.each()
    found["changes from JSON"] = found.pop("read") - found["JSON"]
    order = ("JSON", "changes from JSON", "pack (columns, JSON, zstd)", "append and COMMIT")
    return {step: found[step] for step in order}


def of_landing(count: int, folder: Path) -> Costs:
    """µs of one event in the staging process."""
    clock = _Clock()
    with _database(folder / "costs-landing.db") as database:
        _filled(database, count, _Clock())
        with clock("read and decode", count):
            arrived = [
                ArrivedChange(entry.id, place, change)
                for entry in read_entries(database, "main", TABLE, 0, count, None)
                for place, change in enumerate(entry.changes)
            ]
    assert len(arrived) == count
    with clock("order, repeats", count):
        ordered = without_repeats(in_order(arrived))
    changes = [item.change for item in ordered]
    with clock("plan of the schema", count):
        found = plan_table(TABLE, TableSettings(), None, None, changes)
    with clock("checks, watermarks", count):
        bad = list(policy_violations(changes, found.plan))
        roots = key_changes(changes, found.key)
        assert not bad, bad[0]
        assert not roots
        assert watermarks(changes)
        assert not is_late(changes, {})
    with clock("Arrow", count):
        ids = [f"{item.journal_id}.{item.ordinal}" for item in ordered]
        typed, unfit = arrow_table(changes, found.plan, found.key, fallback_ids=ids)
    assert not unfit
    with clock("Parquet", count):
        pq.write_table(typed, io.BytesIO(), compression="zstd", row_group_size=100_000)
    return clock.each()


def _filled(database: Database, count: int, clock: _Clock) -> None:
    appender = Appender(database, JournalLimits(bytes_max=GIB))
    orders = events.Orders(".".join(TABLE), KEYS, seed=1)
    context = RequestContext(source="costs")
    for first in range(0, count, BATCH):
        changes = list(orders.changes(first, min(BATCH, count - first)))
        body = events.body(changes)
        with clock("JSON", len(changes)):
            orjson.loads(body)
        with clock("read", len(changes)):
            parsed = parse(body, context)
        with clock("pack (columns, JSON, zstd)", len(changes)):
            packed = encode_request("main", parsed, priority=1, deduplicate=True)
        with clock("append and COMMIT", len(changes)):
            appender.append([packed], now_ms())


@contextlib.contextmanager
def _database(file: Path) -> Iterator[Database]:
    database = Database(f"sqlite:///{file}")
    try:
        schema.migrate(database)
        schema.tune(database)
        yield database
    finally:
        database.close()


def shown(what: str, costs: Costs) -> str:
    parts = ", ".join(f"{step} {figure(value)}" for step, value in costs.items())
    return f"processor time of {what} one event: {figure(sum(costs.values()))} µs ({parts})"
