"""Dead letters: events that could not land, stored with the reason and the original bytes.

A change that could not land is stored as JSON, so that it can be shown, fixed and parsed again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, Literal, get_args

import sqlalchemy as sa

from catalog.errors import Conflict, Invalid, NotFound
from catalog.store.database import Database
from catalog.store.statements import among, listed, run_many
from ingest.change import Change, TableName, table_key, table_name
from ingest.journal.schema import dead_letters as letters

CHANGE_FIELD = "calve"  # the field that marks a change in Calve's own form
REPLAY = "replay"  # prefix of the identity of a change that was a dead letter


def change_as_json(change: Change) -> dict[str, Any]:
    return {
        CHANGE_FIELD: "change",
        "operation": change.operation,
        "table": ".".join(change.table),
        "before": change.before,
        "after": change.after,
        "key": list(change.key) if change.key else None,
        "rowId": change.row_id,
        "source": change.source,
        "position": change.position,
        "transaction": change.transaction,
        "timestamp": change.time_ms,
    }


def change_from_json(event: dict[str, Any], table: TableName, known: Change | None = None) -> Change | None:
    """Return the change; None if the event is not one in Calve's form. `known` is the change before it was
    fixed, with what the text lacks: the types that its producer declared.
    """
    if event.get(CHANGE_FIELD) != "change":
        return None
    return Change(
        0,
        table,
        event["operation"],
        before=event.get("before"),
        after=event.get("after"),
        key=tuple(event["key"]) if event.get("key") else None,
        row_id=event.get("rowId"),
        source=event.get("source") or "",
        position=event.get("position") or "",
        transaction=known.transaction if known is not None else None,
        time_ms=event.get("timestamp"),
        declared=known.declared if known is not None else None,
        unchanged=known.unchanged if known is not None else None,
    )


def replay_identity(letter_id: str, changed_ms: int, number: int) -> str:
    """Return an identity that the journal accepts only once, even if the call is repeated after a lost
    response.
    """
    return f"{REPLAY}:{letter_id}:{changed_ms}:{number}"


def replayed_letter(change: Change) -> str | None:
    """Return the id of the letter that this change was; None if it comes from a producer."""
    word, _, rest = change.identity.partition(":")
    return rest.partition(":")[0] if word == REPLAY else None


# -- dead letters in SQL

State = Literal["staged", "open", "fixed", "replayed", "dropped"]
STATES: tuple[State, ...] = get_args(State)
WAITING: tuple[State, ...] = ("staged", "open", "fixed")
LETTERS_PAGE = 1_000

_COLUMNS = (
    "id",
    "warehouse",
    "table_key",
    "journal_id",
    "ordinal",
    "key",
    "code",
    "reason",
    "original",
    "source",
    "position",
    "received_ms",
    "state",
    "replaced",
    "changed_ms",
    "change",
    "context",
    "job_id",
)
_columns = [letters.c[name] for name in _COLUMNS]
_RESTAGED = ("key", "code", "reason", "original", "change", "context", "job_id")
_INSERT = sa.text(
    f"INSERT INTO journal_dead_letters ({', '.join(_COLUMNS)})"  # noqa: S608 - fixed names
    f" VALUES ({', '.join(':' + name for name in _COLUMNS)}) ON CONFLICT (id)"
    f" DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in _RESTAGED)}"
    " WHERE journal_dead_letters.state = 'staged'"
)
_DISCARD = sa.delete(letters).where(letters.c.job_id == sa.bindparam("job"), letters.c.state == "staged")
_STAGED = (
    sa.select(letters.c.job_id, letters.c.warehouse, letters.c.table_key, sa.func.min(letters.c.journal_id))
    .where(letters.c.state == "staged")
    .group_by(letters.c.job_id, letters.c.warehouse, letters.c.table_key)
)
_ONE = sa.select(*_columns).where(letters.c.id == sa.bindparam("id"))
_journal_order = sa.tuple_(letters.c.journal_id, letters.c.ordinal, letters.c.id)
# Parameters say whether any table and any state match. A staged letter is not published yet.
_wanted = (
    letters.c.warehouse == sa.bindparam("w"),
    sa.or_(sa.bindparam("any_table", type_=sa.Integer) == 1, letters.c.table_key == sa.bindparam("t")),
    sa.or_(
        sa.and_(sa.bindparam("any_state", type_=sa.Integer) == 1, letters.c.state != "staged"),
        letters.c.state == sa.bindparam("s"),
    ),
)
_ALL = (
    sa.select(*_columns)
    .where(
        *_wanted,
        _journal_order
        > sa.tuple_(
            sa.bindparam("after_id", type_=sa.BigInteger),
            sa.bindparam("after_ordinal", type_=sa.Integer),
            sa.bindparam("after"),
        ),
    )
    .order_by(letters.c.journal_id, letters.c.ordinal, letters.c.id)
    .limit(sa.bindparam("limit", type_=sa.Integer))
)
_COUNTS = (
    sa.select(letters.c.table_key, letters.c.state, sa.func.count())
    .where(letters.c.warehouse == sa.bindparam("w"), letters.c.state != "staged")
    .group_by(letters.c.table_key, letters.c.state)
)
_waits = sa.or_(letters.c.state == "open", letters.c.state == "fixed")
_same = (letters.c.table_key, letters.c.source, letters.c.code, letters.c.reason)
_REASONS = (
    sa.select(
        *_same,
        sa.func.count(),
        sa.func.sum(sa.case((_waits, 1), else_=0)),
        sa.func.min(letters.c.received_ms),
        sa.func.max(letters.c.received_ms),
        sa.func.coalesce(sa.func.max(sa.case((_waits, letters.c.id))), sa.func.max(letters.c.id)),
    )
    .where(*_wanted)
    .group_by(*_same)
)
_FIX = (
    sa.update(letters)
    .where(letters.c.id == sa.bindparam("letter"), _waits)
    .values(state="fixed", replaced=sa.bindparam("bytes"), changed_ms=sa.bindparam("now"))
)
_SET_STATE = (
    sa.update(letters)
    .where(among(letters.c.id, "ids"))
    .values(state=sa.bindparam("to"), changed_ms=sa.bindparam("now"))
)
_OPEN_KEYS = (
    sa.select(letters.c.key)
    .where(
        letters.c.warehouse == sa.bindparam("w"),
        letters.c.table_key == sa.bindparam("t"),
        sa.or_(_waits, letters.c.state == "staged"),
        letters.c.key.is_not(None),
    )
    .distinct()
)


@dataclass(frozen=True, slots=True)
class DeadLetter:
    id: str
    warehouse: str
    table: TableName
    journal_id: int
    ordinal: int  # its index in the entry of the journal
    key: str | None  # of the row, as JSON, if it is known
    code: str
    reason: str
    original: bytes
    source: str
    position: str
    received_ms: int
    state: State = "open"
    replaced: bytes | None = None
    changed_ms: int = 0
    change: bytes | None = None  # in the journal's encoding, if the event could be parsed
    context: str | None = None  # JSON: how the request was parsed
    job_id: str | None = None


@dataclass(frozen=True, slots=True)
class ReasonCount:
    """Dead letters that could not land for the same reason."""

    table: TableName
    source: str
    code: str
    reason: str  # without the values of single events
    count: int
    waiting: int  # open or fixed
    first_ms: int
    last_ms: int
    example: str  # the id of one of them, which waits if any does


def general_reason(reason: str) -> str:
    """Return the reason without the parts that differ between events: values, keys, ids."""
    for pattern, text in _SINGLE:
        reason = pattern.sub(text, reason, count=1)
    return reason


_SINGLE = (
    (re.compile(r'^(column ".*?": ).* (does not fit )', re.DOTALL), r"\1… \2"),
    (
        re.compile(r"^the row .* waits for .*: fix", re.DOTALL),
        "the row waits for an earlier change: fix",
    ),
    (re.compile(r" \([^()]*[0-9][^()]*\):"), ":"),  # where in a body JSON ends
)


def letter_id(warehouse: str, table: TableName, journal_id: int, ordinal: int) -> str:
    """Return an id that depends only on the position of the event. Tables of one request share the journal
    id, so the id includes a digest of the table.
    """
    where = f"{warehouse}\0{table_key(table)}".encode()
    return f"{journal_id}.{ordinal}.{blake2b(where, digest_size=4).hexdigest()}"


class DeadLetters:
    def __init__(self, database: Database, clock: Callable[[], int]) -> None:
        self._database = database
        self._clock = clock

    def add(self, found: Iterable[DeadLetter]) -> None:
        """Add letters. Those that were published stay as they are."""
        rows = [_row(letter) for letter in found]
        if rows:
            self._database.write(lambda connection: run_many(_INSERT, connection, rows))

    def discard(self, job_id: str) -> None:
        """Delete the letters of a job that will not be published."""
        self._database.write(lambda connection: connection.execute(_DISCARD, {"job": job_id}))

    def staged(self) -> list[tuple[str, str, TableName, int]]:
        """Return (job, warehouse, table, first journal id) of letters that were neither opened nor
        discarded.
        """
        rows = self._database.fetch_all(_STAGED, {})
        return [(str(row[0]), row[1], table_name(row[2]), row[3]) for row in rows]

    def all(
        self,
        warehouse: str,
        table: TableName | None = None,
        state: State | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> list[DeadLetter]:
        """Return letters in the order of the journal; `after` is the id of the last one seen."""
        last = self._find(after) if after is not None else None
        params = {
            "w": warehouse,
            "any_table": int(table is None),
            "t": table_key(table),
            "any_state": int(state is None),
            "s": state or "",
            "after_id": last.journal_id if last else -1,
            "after_ordinal": last.ordinal if last else 0,
            "after": last.id if last else "",
            "limit": limit,
        }
        return [_letter(row) for row in self._database.fetch_all(_ALL, params)]

    def waiting(self, warehouse: str, table: TableName) -> list[DeadLetter]:
        """Return all letters of a table that are open, fixed or staged, in the order of the journal."""
        found: list[DeadLetter] = []
        for state in WAITING:
            after = None
            while page := self.all(warehouse, table, state, after, LETTERS_PAGE):
                found += page
                after = page[-1].id
        return sorted(found, key=lambda letter: (letter.journal_id, letter.ordinal))

    def get(self, id_: str) -> DeadLetter:
        found = self._find(id_)
        if found is None or found.state == "staged":
            raise NotFound(f"Dead letter does not exist: {id_}")
        return found

    def _find(self, id_: str) -> DeadLetter | None:
        row = self._database.fetch_one(_ONE, {"id": id_})
        return None if row is None else _letter(row)

    def counts(self, warehouse: str) -> dict[TableName, dict[State, int]]:
        found: dict[TableName, dict[State, int]] = {}
        for key, state, count in self._database.fetch_all(_COUNTS, {"w": warehouse}):
            found.setdefault(table_name(key), {})[state] = count
        return found

    def reasons(
        self, warehouse: str, table: TableName | None = None, state: State | None = None
    ) -> list[ReasonCount]:
        """Count the letters of each table and source that have the same reason; the most frequent first."""
        params = {
            "w": warehouse,
            "any_table": int(table is None),
            "t": table_key(table),
            "any_state": int(state is None),
            "s": state or "",
        }
        found: dict[tuple[str, ...], ReasonCount] = {}
        for key, source, code, reason, *numbers in self._database.fetch_all(_REASONS, params):
            general = general_reason(reason)
            one = ReasonCount(table_name(key), source, code, general, *numbers)
            known = found.get((key, source, code, general))
            found[key, source, code, general] = one if known is None else _joined(known, one)
        return sorted(found.values(), key=lambda one: (-one.count, one.table, one.source, one.code))

    def fix(self, id_: str, replaced: bytes) -> None:
        """Set new bytes, which a replay sends instead of the original."""
        params = {"letter": id_, "bytes": replaced, "now": self._clock()}
        if self._database.write(lambda connection: connection.execute(_FIX, params).rowcount) != 1:
            raise Conflict(f"Dead letter {id_} is {self.get(id_).state}: only one that waits can be fixed")

    def set_state(self, ids: Collection[str], state: State) -> None:
        if state not in STATES:
            raise Invalid(f"the state of a dead letter is one of {', '.join(STATES)}")

        def work(connection: sa.Connection) -> None:
            params = {"ids": listed(connection, ids), "to": state, "now": self._clock()}
            connection.execute(_SET_STATE, params)

        self._database.write(work)

    def open_keys(self, warehouse: str, table: TableName) -> set[str]:
        """Return the keys of rows that have an open or fixed letter."""
        rows = self._database.fetch_all(_OPEN_KEYS, {"w": warehouse, "t": table_key(table)})
        return {row[0] for row in rows}


def _joined(one: ReasonCount, other: ReasonCount) -> ReasonCount:
    return replace(
        one if one.waiting else other,
        count=one.count + other.count,
        waiting=one.waiting + other.waiting,
        first_ms=min(one.first_ms, other.first_ms),
        last_ms=max(one.last_ms, other.last_ms),
    )


def _row(letter: DeadLetter) -> dict[str, Any]:
    texts = ("key", "reason", "source", "position", "context")
    row = {name: getattr(letter, name) for name in _COLUMNS if name != "table_key"}
    row |= {name: _storable(row[name]) for name in texts}
    return row | {"table_key": table_key(letter.table), "changed_ms": letter.changed_ms or letter.received_ms}


def _storable(text: str | None) -> str | None:
    """Replace NUL, which PostgreSQL cannot store, and surrogates, which neither database can store."""
    if text is None or (text.isascii() and "\0" not in text):
        return text
    return text.encode("utf-8", "replace").decode().replace("\0", "\N{SYMBOL FOR NULL}")


def _letter(row: Any) -> DeadLetter:
    values = dict(zip(_COLUMNS, row, strict=True))
    return DeadLetter(table=table_name(values.pop("table_key")), **values)
