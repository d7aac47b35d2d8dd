"""What the journal remembers of sources: the identities that it has seen, epochs, and why a source is held.

An event is a duplicate by its number for ever (`numbers`), by its identity within the deduplication window.
The check runs inside the transaction of an append: a duplicate is only reported after the event that it
repeats is durable, and nothing is kept of a request whose transaction did not commit.

Changes get their epoch (`epochs`) in the same transaction, before they are appended.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import orjson
import sqlalchemy as sa

from catalog.store.database import Database
from catalog.store.statements import among, listed, run_many
from ingest.journal.encoded_request import DIGEST_BYTES, EncodedRequest
from ingest.journal.epochs import Hold, Run, SourceState, assign
from ingest.journal.numbers import (
    counter_name,
    has_seen_any,
)
from ingest.journal.receipts import SourceHeld
from ingest.journal.schema import digests, sources

# -- identities of the last minutes

FORGET_AT_A_TIME = 4_000


class DeduplicationWindow:
    """The identities of one warehouse. `read_to` is the journal id up to which all appends are included."""

    def __init__(self, digests_max: int) -> None:
        self.read_to = 0
        self.is_loaded = False
        self._digests_max = digests_max
        self._known: dict[bytes, int] = {}  # -> when it expires
        self._oldest: deque[tuple[int, list[bytes]]] = deque()

    def __len__(self) -> int:
        return len(self._known)

    def known(self, digests: set[bytes], now_ms: int) -> set[bytes]:
        """Return those that are known and not expired."""
        return {digest for digest in self._known.keys() & digests if self._known[digest] > now_ms}

    def add(self, digests: Iterable[bytes], expires_ms: int) -> None:
        added = list(digests)
        if added:
            self._known.update(dict.fromkeys(added, expires_ms))
            self._oldest.append((expires_ms, added))

    def forget(self, now_ms: int) -> int:
        """Remove some expired identities. Returns how many were removed early, because there were too
        many.
        """
        early = left = 0
        while self._oldest and left < FORGET_AT_A_TIME:
            expires_ms, digests = self._oldest[0]
            if expires_ms > now_ms and len(self._known) <= self._digests_max:
                break
            early += len(digests) if expires_ms > now_ms else 0
            left += len(digests)
            self._oldest.popleft()
            for digest in digests:
                if self._known.get(digest) == expires_ms:  # another append may have renewed it
                    del self._known[digest]
        return early


# -- inside the transaction of an append

ROWS_AT_A_TIME = 100
_NEWER_DIGESTS = (
    sa.select(digests.c.id, digests.c.expires_ms, digests.c.marks)
    .where(
        digests.c.warehouse == sa.bindparam("w"),
        digests.c.id > sa.bindparam("after"),
        digests.c.expires_ms > sa.bindparam("now"),
    )
    .order_by(digests.c.id)
    .limit(ROWS_AT_A_TIME)
)
_INSERT_DIGESTS = sa.insert(digests)


@dataclass(frozen=True, slots=True)
class StoredDigests:
    """The identities of one append."""

    journal_id: int
    expires_ms: int
    digests: list[bytes]


class GroupDigests:
    """The identities of one group commit, in one warehouse.

    The window changes only after COMMIT (`after_commit`): until then, what others appended and what this
    group adds may be rolled back.
    """

    def __init__(
        self, connection: sa.Connection, warehouse: str, window: DeduplicationWindow, now_ms: int
    ) -> None:
        self._connection = connection
        self._warehouse = warehouse
        self._window = window
        self._now_ms = now_ms
        self._new: set[bytes] = set()
        self._others: list[StoredDigests] = []  # appended by other processes since the last read
        after = window.read_to
        while True:
            params = {"w": warehouse, "after": after, "now": now_ms}
            rows = [_stored_digests(row) for row in connection.execute(_NEWER_DIGESTS, params).fetchall()]
            self._others += rows
            if len(rows) < ROWS_AT_A_TIME:
                break
            after = rows[-1].journal_id

    def take(self, request: EncodedRequest) -> list[int]:
        """Return the slots of the request whose identities were known, and add the others."""
        if not request.digests:
            return []
        digests = request.digests_in_epochs()
        distinct = set(digests)
        known = self._window.known(distinct, self._now_ms).union(
            *(distinct.intersection(one.digests) for one in self._others)
        )
        seen = known | (self._new & distinct)
        self._new |= distinct - known
        if not seen and len(distinct) == len(digests):
            return []
        repeated = []
        for slot, digest in zip(request.digest_slots, digests, strict=True):
            if digest in seen:
                repeated.append(slot)
            seen.add(digest)
        return repeated

    def is_changed(self, request: EncodedRequest) -> bool:
        """Return whether a request with the same name had another body; otherwise add its name."""
        if request.batch is None:
            return False
        name, body = request.batch
        if self._is_known(name) and not self._is_known(body):
            return True
        self._new |= {digest for digest in request.batch if not self._is_known(digest)}
        return False

    def _is_known(self, digest: bytes) -> bool:
        return (
            digest in self._new
            or bool(self._window.known({digest}, self._now_ms))
            or any(digest in one.digests for one in self._others)
        )

    def store(self, journal_id: int, expires_ms: int) -> None:
        if self._new:
            row = {
                "warehouse": self._warehouse,
                "id": journal_id,
                "expires_ms": expires_ms,
                "marks": b"".join(self._new),
            }
            self._connection.execute(_INSERT_DIGESTS, row)

    def after_commit(self, journal_id: int, expires_ms: int) -> None:
        """After COMMIT."""
        for one in self._others:
            self._window.add(one.digests, one.expires_ms)
        self._window.add(self._new, expires_ms)
        self._window.read_to = journal_id


def load_window(database: Database, warehouse: str, window: DeduplicationWindow, now_ms: int) -> None:
    """Load the identities of the last minutes before the first append, so that no append waits for it."""
    if window.is_loaded:
        return
    while not window.is_loaded:
        params = {"w": warehouse, "after": window.read_to, "now": now_ms}
        rows = [_stored_digests(row) for row in database.fetch_all(_NEWER_DIGESTS, params)]
        for one in rows:
            window.add(one.digests, one.expires_ms)
            window.read_to = one.journal_id
        window.is_loaded = len(rows) < ROWS_AT_A_TIME


def _stored_digests(row: tuple[int, int, bytes]) -> StoredDigests:
    return StoredDigests(row[0], row[1], split_digests(row[2]))


def split_digests(blob: bytes) -> list[bytes]:
    return [blob[at : at + DIGEST_BYTES] for at in range(0, len(blob), DIGEST_BYTES)]


# -- the states of sources in SQL

KEPT_MS = 30 * 24 * 3600 * 1000  # a source in its first epoch is deleted after this time without changes
_SOME = sa.select(sources.c.source, sources.c.state).where(
    sources.c.warehouse == sa.bindparam("w"), among(sources.c.source, "names")
)
_SET = sa.text(
    "INSERT INTO journal_sources (warehouse, source, state, epoch, updated_ms)"
    " VALUES (:w, :s, :state, :epoch, :now) ON CONFLICT (warehouse, source)"
    " DO UPDATE SET state = excluded.state, epoch = excluded.epoch, updated_ms = excluded.updated_ms"
)
# A later epoch is kept: without it, new changes would sort before those that have landed.
_EXPIRE = sa.delete(sources).where(sources.c.epoch == 0, sources.c.updated_ms < sa.bindparam("before"))


class SourceStates:
    """The sources of one group commit, in one warehouse. The counter is locked."""

    def __init__(self, connection: sa.Connection, warehouse: str, names: Collection[str]) -> None:
        self._connection = connection
        self._warehouse = warehouse
        self._before = load_states(connection, warehouse, names)
        self._now = dict(self._before)

    def assign(self, request: EncodedRequest, now_ms: int) -> SourceHeld | None:
        """Set the epochs of a request, or return why nothing of it may be stored."""
        request.epochs = {}
        states = dict(self._now)
        for run in request.runs:
            state = states.get(run.source, SourceState())
            found = assign(run, state, now_ms, request.epoch)
            if isinstance(found, Hold) and run.is_counted and not self._is_repeated(run, state):
                # Requests of one source may arrive in another order than their numbers.
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
        """Return whether the source has sent one of these numbers before."""
        counter = counter_name(run.source, state.epoch)
        return has_seen_any(self._connection, self._warehouse, counter, int(run.low, 16), int(run.high, 16))

    def store(self, now_ms: int) -> None:
        changed = {name: state for name, state in self._now.items() if self._before.get(name) != state}
        store_states(self._connection, self._warehouse, changed, now_ms)


def load_states(connection: sa.Connection, warehouse: str, names: Collection[str]) -> dict[str, SourceState]:
    rows = connection.execute(_SOME, {"w": warehouse, "names": listed(connection, names)}).fetchall()
    return {row[0]: decode_state(row[1]) for row in rows}


def store_states(
    connection: sa.Connection, warehouse: str, states: Mapping[str, SourceState], now_ms: int
) -> None:
    rows = [
        {"w": warehouse, "s": name, "state": _encode(state), "epoch": state.epoch, "now": now_ms}
        for name, state in sorted(states.items())
    ]
    run_many(_SET, connection, rows)


def expire_states(connection: sa.Connection, now_ms: int) -> None:
    connection.execute(_EXPIRE, {"before": now_ms - KEPT_MS})


def _encode(state: SourceState) -> str:
    values: dict[str, Any] = asdict(state)
    values["newest"] = {str(epoch): position for epoch, position in state.newest.items()}
    return orjson.dumps(values).decode()


def decode_state(text: str) -> SourceState:
    values = orjson.loads(text)
    values["newest"] = {int(epoch): position for epoch, position in values["newest"].items()}
    values["history"] = tuple(values["history"])
    values["gtids"] = {name: tuple(map(tuple, seen)) for name, seen in values.get("gtids", {}).items()}
    return SourceState(**values)
