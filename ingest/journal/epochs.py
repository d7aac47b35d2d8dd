"""The epoch of changes: which history of a source they belong to. Pure.

Order within a source is (epoch, position). A failover, a restored database or a source that was made anew
begins another epoch. `assign` gives changes their epoch before they are appended, or holds them: positions
that fall while the time rises, with nothing that explains it, are never dropped and never guessed about.

With GTIDs, the log of a promoted replica is recognised by them: it has GTIDs that are new, at positions that
are not. The server in a GTID is the one that made the change first, not the one whose log it was read from.

Requests are cut into runs first (`encoded_request.runs_of`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

CLOCK_ERROR_MS = 60_000  # times in a log are not exactly in the order of its positions
HISTORY_MAX = 20  # epochs of a source that are shown
ORIGINS_MAX = 50
_OTHER_LOG = "the log is that of another server: it has the GTID {} at an earlier position"


# -- runs: changes of one source and one log


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


# -- the state of a source

# The GTIDs of a series that came in one epoch: the epoch, the first number, the last number, and the position
# of the first change with the last number.
SeenGtids = tuple[int, int, int, str]


@dataclass(frozen=True, slots=True)
class SourceState:
    """The state of a source in the journal."""

    epoch: int = 0
    names: Mapping[str, int] = field(default_factory=dict)  # of epochs that the producer has named
    origins: Mapping[str, int] = field(default_factory=dict)
    # The GTIDs that were seen, by series, in the order in which the series were seen last.
    gtids: Mapping[str, tuple[SeenGtids, ...]] = field(default_factory=dict)
    newest: Mapping[int, str] = field(default_factory=dict)  # epoch -> position
    time_ms: int | None = None
    may_fall: bool = False  # decreasing positions do not begin another epoch
    held: str | None = None
    held_ms: int | None = None
    history: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Hold:
    """The changes cannot be put in order."""

    reason: str


def assign(
    run: Run, state: SourceState, now_ms: int, name: str | None = None
) -> tuple[int, SourceState] | Hold:
    """Return the epoch of the changes, and the new state of the source. `name` is the epoch that the producer
    names.
    """
    before, epoch = state.epoch, state.epoch
    if name is not None:
        epoch, state = _of_name(name, state, now_ms)
    elif run.gtids is not None:
        if not state.may_fall and (reason := _why_diverged(run.gtids, state)) is not None:
            return Hold(reason)
        epoch, state = _of_gtids(run, run.gtids, state, now_ms)
    elif run.origin:
        epoch, state = _of_origin(run, state, now_ms)
    if name is None and epoch == before and (reason := _why_held(run, state)) is not None:
        return Hold(reason)
    return epoch, _seen(run, state, epoch)


def _of_name(name: str, state: SourceState, now_ms: int) -> tuple[int, SourceState]:
    if name not in state.names:
        if state.names or state.newest:
            state = begin_epoch(state, now_ms, f"the producer named the epoch {name}")
        state = replace(state, names=_bounded({**state.names, name: state.epoch}))
    return state.names[name], state


def _of_origin(run: Run, state: SourceState, now_ms: int) -> tuple[int, SourceState]:
    """Another server has another log. Changes that an earlier server sends again stay in the earlier
    epoch.
    """
    known = state.origins.get(run.origin)
    if known is None:
        falls = bool(run.high) and run.low <= state.newest.get(state.epoch, "")
        begins = falls and bool(state.origins)
    else:
        begins = known < state.epoch and run.high > state.newest.get(known, "")
    if begins:
        state = begin_epoch(state, now_ms, f"the log is that of another server: {run.origin}")
    if begins or known is None:
        known = state.epoch
        state = replace(state, origins=_bounded({**state.origins, run.origin: known}))
    return known, state


def _of_gtids(run: Run, gtids: GtidRange, state: SourceState, now_ms: int) -> tuple[int, SourceState]:
    """Return the epoch in which the GTIDs were seen, or the current one for new ones."""
    seen = state.gtids.get(gtids.series, ())
    newest = seen[-1] if seen else None
    if newest is not None and gtids.last <= newest[2]:
        is_last = gtids.last == newest[2] and gtids.series == [*state.gtids][-1]
        if not is_last or gtids.last_position >= newest[3]:
            known = [epoch for epoch, first, _, _ in seen if first <= gtids.first]
            return (known[-1] if known else seen[0][0]), state
        # The last transaction goes on in the log of another server.
        state = begin_epoch(state, now_ms, _OTHER_LOG.format(gtids.last_name))
    elif state.gtids and gtids.last_position <= state.newest.get(state.epoch, ""):
        state = begin_epoch(state, now_ms, _OTHER_LOG.format(gtids.last_name))
    first = gtids.first
    if seen and seen[-1][0] == state.epoch:
        first = seen[-1][1]
        seen = seen[:-1]
    added = (*seen, (state.epoch, first, gtids.last, gtids.last_position))[-HISTORY_MAX:]
    others = {name: one for name, one in state.gtids.items() if name != gtids.series}
    kept = dict(list(others.items())[-ORIGINS_MAX:])
    return state.epoch, replace(state, gtids={**kept, gtids.series: added})


def _why_diverged(gtids: GtidRange, state: SourceState) -> str | None:
    """Return why the changes are of a history that lacks changes which have arrived; None if nothing says so.

    The servers of a MariaDB domain number their transactions together. So a new number of one server is above
    those of the others that it has.
    """
    seen = state.gtids.get(gtids.series)
    if gtids.domain is None or (seen and gtids.first <= seen[-1][2]):
        return None
    for name, others in state.gtids.items():
        if name.partition("-")[0] == gtids.domain and name != gtids.series and others[-1][2] >= gtids.first:
            return (
                f"the GTID {gtids.series}-{gtids.first} comes after {name}-{others[-1][2]}: its server lacks "
                "changes that have arrived. Begin an epoch and resync the tables"
            )
    return None


def _why_held(run: Run, state: SourceState) -> str | None:
    """Return why changes in the current epoch are held; None if they are not."""
    newest = state.newest.get(state.epoch, "")
    if state.may_fall or run.may_fall or state.time_ms is None or run.oldest_ms is None:
        return None
    if run.is_counted:
        if not newest or run.low > newest or run.oldest_ms <= state.time_ms:
            return None
        return f"the number {int(run.low, 16)} comes with a later time than the newest, {int(newest, 16)}"
    if not run.high or run.high >= newest or run.oldest_ms <= state.time_ms + CLOCK_ERROR_MS:
        return None
    return f"the position {run.high} is before {newest}, but its time is later"


def _seen(run: Run, state: SourceState, epoch: int) -> SourceState:
    newest = {**state.newest, epoch: max(run.high, state.newest.get(epoch, ""))} if run.high else state.newest
    time_ms = state.time_ms
    if run.newest_ms is not None and epoch == state.epoch:
        time_ms = run.newest_ms if time_ms is None else max(time_ms, run.newest_ms)
    return replace(state, newest=newest, time_ms=time_ms, held=None, held_ms=None)


def begin_epoch(state: SourceState, now_ms: int, reason: str) -> SourceState:
    """Begin an epoch. The epochs before it stay known."""
    epoch = state.epoch + 1
    begun = {"epoch": epoch, "began-ms": now_ms, "reason": reason}
    return replace(
        state,
        epoch=epoch,
        time_ms=None,
        may_fall=False,
        held=None,
        held_ms=None,
        history=(*state.history, begun)[-HISTORY_MAX:],
    )


def _bounded(given: dict[str, int]) -> dict[str, int]:
    return dict(list(given.items())[-ORIGINS_MAX:])
