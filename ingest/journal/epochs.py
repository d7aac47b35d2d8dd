"""Epochs: one history of a source each, and what the journal remembers of a source in SQL.

Order within a source is (epoch, position). A failover, a restored database or a source that was made anew
begins another epoch. `assign` gives changes their epoch before they are appended, or holds them: positions
that fall while the time of the source rises, with nothing that explains it, are never dropped and never
guessed about.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import orjson
import sqlalchemy as sa

from catalog.errors import NotFound
from catalog.store.database import Database
from catalog.store.statements import among, listed, run_many
from ingest.change import Change
from ingest.journal.encoded_request import EncodedRequest, Run
from ingest.journal.receipts import SourceHeld
from ingest.journal.schema import counters, sources
from ingest.journal.sources import counter_name, has_seen_any

CLOCK_ERROR_MS = 60_000  # times of a log are not exactly in the order of its positions
HISTORY_MAX = 20  # epochs of a source that are shown
ORIGINS_MAX = 50
_EPOCH_MARK = "~"  # sorts behind every position


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


# -- the states of sources in SQL

KEPT_MS = 30 * 24 * 3600 * 1000  # a source in its first epoch that is silent for so long is forgotten

_LOCK = sa.select(counters.c.id).where(counters.c.warehouse == sa.bindparam("w")).with_for_update()
_SOME = sa.select(sources.c.source, sources.c.state).where(
    sources.c.warehouse == sa.bindparam("w"), among(sources.c.source, "names")
)
_ONE = sa.select(sources.c.state).where(
    sources.c.warehouse == sa.bindparam("w"), sources.c.source == sa.bindparam("s")
)
_ALL = (
    sa.select(sources.c.source, sources.c.state, sources.c.updated_ms)
    .where(sources.c.warehouse == sa.bindparam("w"))
    .order_by(sources.c.source)
    .limit(sa.bindparam("limit", type_=sa.Integer))
)
_SET = sa.text(
    "INSERT INTO journal_sources (warehouse, source, state, epoch, updated_ms)"
    " VALUES (:w, :s, :state, :epoch, :now) ON CONFLICT (warehouse, source)"
    " DO UPDATE SET state = excluded.state, epoch = excluded.epoch, updated_ms = excluded.updated_ms"
)
# A later epoch must be remembered: without it, new changes would sort before those that have landed.
_EXPIRE = sa.delete(sources).where(sources.c.epoch == 0, sources.c.updated_ms < sa.bindparam("before"))


class SourceStates:
    """The sources of one group commit, in one warehouse. Under the lock of the head."""

    def __init__(self, connection: sa.Connection, warehouse: str, names: Collection[str]) -> None:
        self._connection = connection
        self._warehouse = warehouse
        self._before = load_states(connection, warehouse, names)
        self._now = dict(self._before)

    def assign(self, request: EncodedRequest, now_ms: int) -> SourceHeld | None:
        """Set the epochs of a request; or why nothing of it may be stored."""
        request.epochs = {}
        states = dict(self._now)
        for run in request.runs:
            state = states.get(run.source, SourceState())
            found = assign(run, state, now_ms, request.epoch)
            if isinstance(found, Hold) and run.is_counted and not self._is_repeated(run, state):
                # Requests of one source may arrive in another order than its numbers.
                found = assign(replace(run, may_fall=True), state, now_ms, request.epoch)
            if isinstance(found, Hold):
                self._now[run.source] = replace(state, held=found.reason, held_ms=now_ms)
                return SourceHeld(self._warehouse, run.source, found.reason)
            epoch, states[run.source] = found
            if epoch:
                request.epochs[run.source, run.origin] = epoch
        self._now = states
        return None

    def _is_repeated(self, run: Run, state: SourceState) -> bool:
        """Whether the source has sent one of these numbers before."""
        counter = counter_name(run.source, state.epoch)
        return has_seen_any(self._connection, self._warehouse, counter, int(run.low, 16), int(run.high, 16))

    def store(self, now_ms: int) -> None:
        changed = {name: state for name, state in self._now.items() if self._before.get(name) != state}
        store_states(self._connection, self._warehouse, changed, now_ms)


def load_states(connection: sa.Connection, warehouse: str, names: Collection[str]) -> dict[str, SourceState]:
    rows = connection.execute(_SOME, {"w": warehouse, "names": listed(connection, names)}).fetchall()
    return {row[0]: _decode(row[1]) for row in rows}


def store_states(
    connection: sa.Connection, warehouse: str, states: Mapping[str, SourceState], now_ms: int
) -> None:
    rows = [
        {"w": warehouse, "s": name, "state": _encode(state), "epoch": state.epoch, "now": now_ms}
        for name, state in sorted(states.items())
    ]
    run_many(_SET, connection, rows)


def all_states(database: Database, warehouse: str, limit: int) -> list[tuple[str, SourceState, int]]:
    """(source, state, last append)."""
    rows = database.fetch_all(_ALL, {"w": warehouse, "limit": limit})
    return [(row[0], _decode(row[1]), row[2]) for row in rows]


def load_state(database: Database, warehouse: str, source: str) -> SourceState:
    row = database.fetch_one(_ONE, {"w": warehouse, "s": source})
    if row is None:
        raise NotFound(f"Source does not exist: {source}")
    return _decode(row[0])


def change_state(
    database: Database,
    warehouse: str,
    source: str,
    change: Callable[[SourceState], SourceState],
    now_ms: int,
) -> SourceState:
    """Under the lock of the appends. NotFound if the source is not known."""

    def work(connection: sa.Connection) -> SourceState:
        connection.execute(_LOCK, {"w": warehouse}).fetchone()
        found = load_states(connection, warehouse, [source]).get(source)
        if found is None:
            raise NotFound(f"Source does not exist: {source}")
        changed = change(found)
        store_states(connection, warehouse, {source: changed}, now_ms)
        return changed

    return database.write(work)


def expire_states(connection: sa.Connection, now_ms: int) -> None:
    connection.execute(_EXPIRE, {"before": now_ms - KEPT_MS})


def new_history(state: SourceState, now_ms: int, reason: str) -> SourceState:
    """An epoch that a person begins: names and servers that were known belong to earlier ones."""
    return replace(begin_epoch(state, now_ms, reason), names={}, origins={})


def _encode(state: SourceState) -> str:
    values: dict[str, Any] = asdict(state)
    values["newest"] = {str(epoch): position for epoch, position in state.newest.items()}
    return orjson.dumps(values).decode()


def _decode(text: str) -> SourceState:
    values = orjson.loads(text)
    values["newest"] = {int(epoch): position for epoch, position in values["newest"].items()}
    values["history"] = tuple(values["history"])
    return SourceState(**values)
