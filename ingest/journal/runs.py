"""The runs of a request: changes of one source and one log, with what decides about their epoch. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ingest.change import Change


@dataclass(frozen=True, slots=True)
class GtidRange:
    """The GTIDs of a run. `last_position` is that of the first change with the last number."""

    series: str
    domain: str | None
    first: int
    last: int
    last_position: str

    @property
    def last_name(self) -> str:
        return f"{self.series}{':' if self.domain is None else '-'}{self.last}"


@dataclass(frozen=True, slots=True)
class Run:
    """Changes of one request, of one source and one origin (the server that wrote them)."""

    source: str
    origin: str = ""
    low: str = ""  # the positions
    high: str = ""
    oldest_ms: int | None = None  # None: a change has no time
    newest_ms: int | None = None
    is_counted: bool = False  # positions are numbers without gaps
    may_fall: bool = False  # rows of a first load may have older positions
    gtids: GtidRange | None = None


def runs_of(changes: Sequence[Change]) -> list[Run]:
    """Return the runs of a request, in the order of their first change."""
    if not changes:
        return []
    gathered: dict[tuple[str, str], list[Change]] = {}
    sources, origins = [change.source for change in changes], [change.origin for change in changes]
    if sources.count(sources[0]) == len(sources) and origins.count(origins[0]) == len(origins):
        gathered[sources[0], origins[0]] = list(changes)
    else:
        for change in changes:
            gathered.setdefault((change.source, change.origin), []).append(change)
    return [_run(source, origin, some) for (source, origin), some in gathered.items() if source]


def _run(source: str, origin: str, changes: list[Change]) -> Run:
    positions = [change.position for change in changes if change.position]
    times = [change.time_ms for change in changes]
    known = [time_ms for time_ms in times if time_ms is not None]
    return Run(
        source,
        origin,
        min(positions, default=""),
        max(positions, default=""),
        min(known) if len(known) == len(times) else None,
        max(known, default=None),
        is_counted=all(change.number is not None for change in changes),
        may_fall=any(change.operation == "read" for change in changes),
        gtids=_gtids(changes),
    )


def _gtids(changes: list[Change]) -> GtidRange | None:
    found = [(change.gtid.number, change.position) for change in changes if change.gtid is not None]
    gtid = changes[0].gtid
    if gtid is None or len(found) < len(changes):
        return None
    first, last = min(found)[0], max(found)[0]
    return GtidRange(gtid.series, gtid.domain, first, last, min(at for number, at in found if number == last))
