"""Epochs: one history of a source each. Pure.

Order within a source is (epoch, position). A failover, a restored database or a source that was made anew
begins another epoch. `assign` gives changes their epoch before they are appended, or holds them: positions
that fall while the time of the source rises, with nothing that explains it, are never dropped and never
guessed about.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ingest.change import Change

CLOCK_ERROR_MS = 60_000  # times of a log are not exactly in the order of its positions
HISTORY_MAX = 20  # epochs of a source that are shown
ORIGINS_MAX = 50
_EPOCH_MARK = "~"  # sorts behind every position


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
    may_fall: bool = False  # rows of a first load may have positions of an earlier time


@dataclass(frozen=True, slots=True)
class SourceState:
    """What the journal remembers of a source."""

    epoch: int = 0
    names: Mapping[str, int] = field(default_factory=dict)  # of epochs that the producer has named
    origins: Mapping[str, int] = field(default_factory=dict)
    newest: Mapping[int, str] = field(default_factory=dict)  # epoch -> position
    time_ms: int | None = None
    may_fall: bool = False  # its owner says that falling positions are no other history
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
    """The epoch of the changes, and what is known of the source then. `name` is the epoch that the producer
    has named.
    """
    before, epoch = state.epoch, state.epoch
    if name is not None:
        epoch, state = _of_name(name, state, now_ms)
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
    """Another server has another log. What an earlier one sent again stays in the earlier epoch."""
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


def _why_held(run: Run, state: SourceState) -> str | None:
    """Of changes that would be in the current epoch."""
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
    """From now on, positions count anew. The epochs before it stay known."""
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


def in_epoch(position: str, epoch: int) -> str:
    """A position that sorts behind all those of earlier epochs. The first epoch leaves it as it is."""
    return f"{_EPOCH_MARK}{epoch:08x}/{position}" if epoch and position else position


def put_in_epoch(change: Change, epoch: int) -> None:
    """Its position, and what identifies it: another epoch counts anew."""
    change.position = in_epoch(change.position, epoch)
    if change.number is not None:
        change.identity, change.number = f"{change.source}:{change.number}", None
    if change.identity:
        change.identity = f"{_EPOCH_MARK}{epoch}/{change.identity}"


def runs_of(changes: Sequence[Change]) -> list[Run]:
    """The runs of a request, in the order of their first change."""
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
    )
