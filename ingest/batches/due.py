"""Which tables a worker should take next. Pure.

A lane is a set of tables that must be published together: one table, or those that share source transactions.
A lane is due when enough has come together or the oldest change has waited long enough. While a worker is
busy its next batch grows, so a slow merge makes batches larger and not the lag longer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ingest.change import TableName


@dataclass(frozen=True, slots=True)
class Thresholds:
    """When a batch is cut, and how much goes into one job."""

    events: int = 10_000
    stored_bytes: int = 32 * 2**20
    freshness_ms: int = 500
    batch_events_max: int = 200_000
    small_events: int = 5_000  # lanes of this size may share a job
    tables_max: int = 16


class Waiting(Protocol):
    """What the journal says of one table."""

    @property
    def table(self) -> TableName: ...
    @property
    def events(self) -> int: ...
    @property
    def stored_bytes(self) -> int: ...
    @property
    def oldest_ms(self) -> int: ...
    @property
    def last_id(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Lane:
    tables: tuple[TableName, ...]
    events: int
    stored_bytes: int
    oldest_ms: int
    hurried: bool  # somebody asked for it now

    def is_due(self, thresholds: Thresholds, now_ms: int) -> bool:
        return (
            self.hurried
            or self.events >= thresholds.events
            or self.stored_bytes >= thresholds.stored_bytes
            or now_ms - self.oldest_ms >= thresholds.freshness_ms
        )


def lanes(
    waiting: Iterable[Waiting],
    groups: Iterable[frozenset[TableName]],
    hurried: Mapping[TableName, int],
    landed: Mapping[TableName, int],
) -> list[Lane]:
    """The lanes that have something to land, the one that has waited longest first."""
    leader = {table: min(group) for group in groups for table in group}
    gathered: dict[TableName, list[Waiting]] = {}
    for row in waiting:
        if row.last_id > landed.get(row.table, 0):
            gathered.setdefault(leader.get(row.table, row.table), []).append(row)
    found = [
        Lane(
            tables=tuple(sorted(row.table for row in rows)),
            events=sum(row.events for row in rows),
            stored_bytes=sum(row.stored_bytes for row in rows),
            oldest_ms=min(row.oldest_ms for row in rows),
            hurried=any(hurried.get(row.table, 0) > landed.get(row.table, 0) for row in rows),
        )
        for rows in gathered.values()
    ]
    return sorted(found, key=lambda lane: (lane.oldest_ms, lane.tables))


def choose(
    found: Sequence[Lane],
    busy: Collection[TableName],
    thresholds: Thresholds,
    now_ms: int,
    alone: Collection[TableName] = (),
) -> tuple[Lane, ...]:
    """The lanes of the next job; nothing if none is due.

    Small lanes go together, because each publish has a fixed price; a large one goes alone, so that the small
    ones do not wait for it. So does a lane with a table in `alone`, because its last job failed: it must not
    make another job fail.
    """
    free = [lane for lane in found if lane.is_due(thresholds, now_ms) and not _is_any(lane, busy)]
    if not free:
        return ()
    first = free[0]
    if first.events > thresholds.small_events or _is_any(first, alone):
        return (first,)
    chosen, tables = [first], len(first.tables)
    for lane in free[1:]:
        is_small = lane.events <= thresholds.small_events and not _is_any(lane, alone)
        if is_small and tables + len(lane.tables) <= thresholds.tables_max:
            chosen.append(lane)
            tables += len(lane.tables)
    return tuple(chosen)


def _is_any(lane: Lane, tables: Collection[TableName]) -> bool:
    return any(table in tables for table in lane.tables)


def wait_ms(found: Sequence[Lane], thresholds: Thresholds, now_ms: int) -> int | None:
    """How long until the first lane is due; None if nothing waits."""
    if not found:
        return None
    return max(0, min(lane.oldest_ms for lane in found) + thresholds.freshness_ms - now_ms)
