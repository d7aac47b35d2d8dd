"""Collect the facts about the sources of a warehouse: rules, pauses, how far each has landed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import sqlalchemy as sa

from ingest.change import SEPARATOR, TableName
from ingest.journal.journal import Journal
from ingest.journal.schema import ranges
from ingest.sources.rules import SourceRules
from ingest.sources.store import Pause, SourceStore
from ingest.store.tables import LandingTables, Watermark

_NUMBERS = (
    sa.select(
        ranges.c.source,
        sa.func.sum(ranges.c.last - ranges.c.first + 1),
        sa.func.max(ranges.c.last),
        sa.func.count(),
    )
    .where(ranges.c.warehouse == sa.bindparam("w"))
    .group_by(ranges.c.source)
)


@dataclass(frozen=True, slots=True)
class Numbers:
    """The numbers of a source that numbers its events."""

    count: int
    last: int
    gaps: int


@dataclass(slots=True)
class SourceFacts:
    name: str
    rules: SourceRules | None = None
    pause: Pause | None = None
    numbers: Numbers | None = None
    pending_events: int = 0
    watermarks: dict[TableName, Watermark] = field(default_factory=dict)


class SourceOverview:
    def __init__(self, journal: Journal, tables: LandingTables, store: SourceStore) -> None:
        self._journal = journal
        self._tables = tables
        self._store = store

    def all(self, warehouse: str) -> dict[str, SourceFacts]:
        """Return every source that has rules, is paused, has sent a change, or numbers its events."""
        return gathered(
            self._store.rules(warehouse).by_source,
            self._store.pauses(warehouse).sources,
            self._tables.watermarks(warehouse),
            {
                row[0]: Numbers(int(row[1]), row[2], row[3] - 1)
                for row in self._journal.database.fetch_all(_NUMBERS, {"w": warehouse})
            },
            _pending(self._journal.pending_by_sources(warehouse)),
        )


def _pending(rows: Sequence[tuple[TableName, str, int, int]]) -> dict[str, int]:
    """Return the pending events by source. An entry with several sources counts for each of them."""
    found: dict[str, int] = {}
    for _, names, _, events in rows:
        for name in names.split(SEPARATOR):
            if name:
                found[name] = found.get(name, 0) + events
    return found


def gathered(
    rules: Mapping[str, SourceRules],
    pauses: Mapping[str, Pause],
    watermarks: Sequence[Watermark],
    numbers: Mapping[str, Numbers],
    pending: Mapping[str, int],
) -> dict[str, SourceFacts]:
    names = sorted({*rules, *pauses, *numbers, *pending, *(mark.source for mark in watermarks)} - {""})
    found = {
        name: SourceFacts(name, rules.get(name), pauses.get(name), numbers.get(name), pending.get(name, 0))
        for name in names
    }
    for mark in watermarks:
        if mark.source:
            found[mark.source].watermarks[mark.table] = mark
    return found
