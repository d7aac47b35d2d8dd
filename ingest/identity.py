"""The order of changes, repeated events, key changes, and the key of a table. Pure.

Within a source, positions decide the order; between sources, the order of arrival does. The changes of a
source are sorted by position and put back into the slots that this source had by arrival, so neither order
disturbs the other. In most batches nothing has to change, so each function first checks whole lists and looks
at single changes only if necessary.

The key comes from, in this order: the setting of the table, its identifier fields, the producer, evidence,
the producer's id of the row, a column `id` that every change has (a guess). Without any of them, rows can
only be appended. A guess is checked against later changes (`ingest/evidence.py`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from operator import le
from typing import Any

from ingest.change import Change, Row, original_of, position_of
from ingest.settings import IS_DELETED

_SOFT_DELETE = {IS_DELETED: True}
_COUNTED = re.compile(r"~@[0-9a-f]+$")


def numbered_identity(identity: str, number: int | str) -> str:
    """Return an identity with a part that is used only if the table has no key."""
    return f"{identity}~@{number}"


def plain_identity(identity: str) -> str:
    """Return the identity of an event of a table with a key."""
    return _COUNTED.sub("", identity)


def leave_counts_out(changes: Sequence[Change]) -> None:
    """Remove the counted parts of identities, for a table with a key."""
    for change in changes:
        if change.identity:
            change.identity = plain_identity(change.identity)


def old_key(change: Change, key: Sequence[str]) -> Row | None:
    """Return the key that an update moves a row away from; None if the key stays, or the old one is not
    known.
    """
    before, after = change.before, change.after
    if change.operation != "update" or not before or after is None or not key:
        return None
    if not all(column in before for column in key):
        return None
    if all(column not in after or _is_same(after[column], before[column]) for column in key):
        return None
    return {column: before[column] for column in key}


def _is_same(one: object, other: object) -> bool:
    """Compare key values: a producer may write a key as a number in one event and as text in another."""
    return one == other or str(one) == str(other)


def split_key_change(change: Change, key: Sequence[str], fallback_id: str) -> tuple[Change, ...]:
    """Return the change itself, or its delete and its insert if it changes the key. `fallback_id` identifies
    an event that has neither identity nor number.
    """
    moved_from = old_key(change, key)
    if moved_from is None:
        return (change,)
    name = change.identity or (fallback_id if change.number is None else f"{change.source}:{change.number}")
    gone = replace(change, operation="delete", after=None, identity=f"{name}:before", number=None)
    return gone, replace(change, operation="insert", moved_from=moved_from)


# -- order

# A position of PostgreSQL: the last commit before it (or, while none is known, its own LSN once more), its
# LSN, its number in its transaction.
_DIGITS = 16
_POSTGRES = re.compile(rf"([0-9a-f]{{{_DIGITS}}})/\1/([0-9a-f]{{{_DIGITS}}})")


@dataclass(slots=True)
class ArrivedChange:
    """A change with its position in the journal."""

    journal_id: int
    ordinal: int
    change: Change


JournalPosition = tuple[int, int]  # journal id, ordinal


def journal_position(item: ArrivedChange) -> JournalPosition:
    return item.journal_id, item.ordinal


def event_id(item: ArrivedChange) -> str:
    """Return an id for an event that has none."""
    return f"{item.journal_id}.{item.ordinal}"


def pieces_of(kept: list[ArrivedChange], key: Sequence[str]) -> list[ArrivedChange]:
    """Return the changes, with a delete and an insert in place of each update that changes the key."""
    if not any(old_key(item.change, key) for item in kept):
        return kept
    return [
        ArrivedChange(item.journal_id, item.ordinal, half)
        for item in kept
        for half in split_key_change(item.change, key, event_id(item))
    ]


def after_loads(arrived: Sequence[ArrivedChange], known: Mapping[str, str]) -> Sequence[ArrivedChange]:
    """Move the first transaction after a first load behind it. Returns `arrived`.

    A transaction that was open when the load began has changes with LSNs before the load's. They do not name
    the commit before them, because there was none. But the transaction was committed after the load, which
    does not include it. `known` are the newest positions that the table has.
    """
    loads = {source: position for source, position in known.items() if _is_load(position)}
    if not loads and "read" not in [item.change.operation for item in arrived]:
        return arrived
    for item in arrived:
        change = item.change
        load = loads.get(change.source, "")
        if change.operation == "read":
            if change.position > load and _is_load(change.position):
                loads[change.source] = change.position
        elif change.position < load and _POSTGRES.fullmatch(change.position):
            behind = position_of(int(load[:_DIGITS], 16) + 1)  # before every commit that follows
            change.position = behind + change.position[_DIGITS:]
    return arrived


def _is_load(position: str) -> bool:
    found = _POSTGRES.fullmatch(position)
    return found is not None and int(found[2], 16) == 0


def in_order(arrived: Sequence[ArrivedChange]) -> list[ArrivedChange]:
    """Return the changes in the order in which they apply. `arrived` is in the order of arrival."""
    result = list(arrived)
    if _rises([item.change.position for item in arrived]):
        return result  # a sequence that rises as a whole also rises within each source
    slots: dict[str, list[int]] = {}
    for slot, item in enumerate(arrived):
        if item.change.position:
            slots.setdefault(item.change.source, []).append(slot)
    for own_slots in slots.values():
        positions = [arrived[slot].change.position for slot in own_slots]
        if _rises(positions):
            continue
        moved = sorted((arrived[slot] for slot in own_slots), key=lambda item: item.change.position)
        for slot, item in zip(own_slots, moved, strict=True):
            result[slot] = item
    return result


def _rises(positions: list[str]) -> bool:
    return all(map(le, positions, islice(positions, 1, None)))


def without_repeats(ordered: Sequence[ArrivedChange]) -> list[ArrivedChange]:
    """Return the first change of each event. The journal does this within its window; this check has no
    window.
    """
    marks = [item.change.identity if item.change.number is None else item.change.number for item in ordered]
    if len(set(marks)) == len(marks) or marks.count("") == len(marks):
        return list(ordered)  # no identity is repeated, or there are no identities
    seen: set[tuple[str, str | int]] = set()
    kept = []
    for item in ordered:
        change = item.change
        known = change.number if change.number is not None else change.identity
        if known == "" or known is None:
            kept.append(item)
            continue
        mark = (change.source, known)
        if mark not in seen:
            seen.add(mark)
            kept.append(item)
    return kept


def key_changes(ordered: Sequence[Change], key: Sequence[str]) -> dict[int, Row]:
    """Find inserts that are the second half of a key change, and the key that the row had before.

    A key change arrives as a delete and an insert of one transaction (or one position). This matters in two
    cases: the insert names large values that did not change, and they are in the deleted row; or another row
    has the new key and leaves it later in the same transaction, as when two rows swap keys.
    """
    found: dict[int, Row] = {}
    if not key:
        return found
    deletes = [row for row, change in enumerate(ordered) if _is_delete(change)]
    leaving: dict[tuple[str, str, str], int] = {}
    for row in deletes:
        change = ordered[row]
        if change.transaction is not None:
            leaving[_row_mark(change, change.before, key)] = row
    for row in (delete + 1 for delete in deletes if delete + 1 < len(ordered)):
        change, former = ordered[row], ordered[row - 1]
        if change.operation != "insert" or change.source != former.source:
            continue
        if change.moved_from is not None:
            found[row] = change.moved_from
            continue
        together = (
            change.transaction == former.transaction
            if change.transaction is not None
            else bool(change.position) and change.position == former.position
        )
        after, before = change.after or {}, former.before or {}
        if not together or not all(column in before for column in key):
            continue
        if change.unchanged or leaving.get(_row_mark(change, after, key), -1) > row:
            found[row] = {column: before[column] for column in key}
    return found


def _is_delete(change: Change) -> bool:
    return change.operation == "delete" or (change.operation == "update" and change.after == _SOFT_DELETE)


def _row_mark(change: Change, row: Row | None, key: Sequence[str]) -> tuple[str, str, str]:
    """Identify a row of a table within a source transaction."""
    values = [(row or {}).get(column) for column in key]
    return change.source, change.transaction or "", original_of(values).decode()


def watermarks(changes: Sequence[Change]) -> dict[str, tuple[str, int | None]]:
    """Return the newest position of each source, and its time at the source."""
    sources = [change.source for change in changes]
    if sources and sources.count(sources[0]) == len(sources) and _rises([c.position for c in changes]):
        last = changes[-1]
        return {last.source: (last.position, last.time_ms)} if last.position else {}
    newest: dict[str, tuple[str, int | None]] = {}
    for change in changes:
        if change.position and change.position >= newest.get(change.source, ("", None))[0]:
            newest[change.source] = (change.position, change.time_ms)
    return newest


def is_late(changes: Sequence[Change], known: dict[str, str]) -> bool:
    """Return whether a change is not newer than those that the table has: a replay, or an old change."""
    newest = max(known.values(), default="")
    oldest = min(filter(None, [change.position for change in changes]), default="") if newest else ""
    if not oldest or oldest > newest:
        return False  # nothing to compare, or all are newer than the table's positions of any source
    return any(change.position and change.position <= known.get(change.source, "") for change in changes)


def may_be_repeated(changes: Sequence[Change], known_since_ms: int) -> bool:
    """Return whether a change without number and position is so old at its source that the journal may have
    forgotten its identity. The journal knows the identities that came since `known_since_ms`.
    """
    return any(
        change.identity and change.time_ms is not None and change.time_ms < known_since_ms
        for change in changes
        if not change.position and change.number is None
    )


def load_key(changes: Sequence[Change]) -> str | None:
    """Return the first load that all of these belong to; None if there are other changes."""
    first = changes[0] if changes else None
    if first is None or first.operation != "read":
        return None
    same = (
        [change.operation for change in changes].count("read")
        == [change.source for change in changes].count(first.source)
        == [change.position for change in changes].count(first.position)
        == len(changes)
    )
    return f"{first.source}:{first.position}" if same and first.position else None


# -- the key of a table

ROW_ID = "_cdc_row_id"  # the column for a producer's id of the row, if there is no other key
NO_KEY = (
    "no key is known, so updates and deletes cannot be applied to the table: set one with "
    "PUT /lake/v1/{warehouse}/namespaces/{namespace}/tables/{table}/ingest, with ?key= in the producer's "
    "address, or as identifier fields of the table"
)


SETTING = "setting: the owner of the table has set it"
TABLE = "table: its identifier fields"
PRODUCER = "producer: it names the key of its changes"
ROW_NAME = "producer: its own name for each row"
GUESS = "guess: each change has a column id"


@dataclass(frozen=True, slots=True)
class Key:
    """The key columns of a table, empty if none is known, and the reason why they are the key."""

    columns: tuple[str, ...] = ()
    reason: str | None = None

    @property
    def is_guess(self) -> bool:
        return is_guess(self.reason)


def is_guess(reason: str | None) -> bool:
    return (reason or "").startswith("guess:")


def key_of_table(
    chosen: Sequence[str] | None, schema: Mapping[str, Any] | None, changes: Sequence[Change]
) -> tuple[str, ...]:
    """Return the key columns of a table in which nothing has landed; empty if none is known."""
    return reasoned_key(chosen, schema, changes).columns


def reasoned_key(
    chosen: Sequence[str] | None,
    schema: Mapping[str, Any] | None,
    changes: Sequence[Change],
    known: Key | None = None,
) -> Key:
    """Return the key of a table with its reason.

    `known` is the key by which its rows were landed. A producer's key overrides a guess, and identifier
    fields that were changed since override everything.
    """
    if chosen:
        return Key(tuple(chosen), SETTING)
    rows = [change for change in changes if change.operation != "truncate"]
    named = next((change.key for change in rows if change.key), None)
    identifiers = _identifiers(schema)
    if known is not None and known.columns:
        if named is not None and known.is_guess and set(named) != set(known.columns):
            return Key(named, PRODUCER)
        if not identifiers or set(identifiers) == set(known.columns):
            return known
    if schema is not None:
        return Key(identifiers, TABLE) if identifiers else Key()
    return Key(named, PRODUCER) if named is not None else _guessed(rows)


def _identifiers(schema: Mapping[str, Any] | None) -> tuple[str, ...]:
    if schema is None:
        return ()
    ids = set(schema.get("identifier-field-ids", ()))
    return tuple(field["name"] for field in schema["fields"] if field["id"] in ids)


def _guessed(rows: Sequence[Change]) -> Key:
    named = [change for change in rows if change.row_id is not None]
    if named:
        return Key(("id",) if all(_is_named_by_id(change) for change in named) else (ROW_ID,), ROW_NAME)
    if rows and not is_append_only(rows) and all(_known(change, "id") is not None for change in rows):
        return Key(("id",), GUESS)
    return Key()


def current_schema(metadata: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the current schema in a table's metadata document; None if there is no table."""
    if metadata is None:
        return None
    wanted = metadata["current-schema-id"]
    found: dict[str, Any] = next(s for s in metadata["schemas"] if s["schema-id"] == wanted)
    return found


def with_row_ids(changes: Sequence[Change]) -> None:
    """Put the producer's id of the row into the row, if that is the key."""
    for change in changes:
        if change.row_id is None:
            continue
        if change.after is not None:
            change.after = {**change.after, ROW_ID: change.row_id}
        change.before = {**(change.before or {}), ROW_ID: change.row_id}


def is_append_only(changes: Sequence[Change]) -> bool:
    """Return whether these are plain rows: only inserts, from a producer that declares that they have
    no key.
    """
    return all(change.operation == "insert" and change.key == () for change in changes)


def _known(change: Change, column: str) -> Any:
    row = change.after if change.after is not None else change.before
    return (row or {}).get(column)


def _is_named_by_id(change: Change) -> bool:
    value = _known(change, "id")
    if value is None:
        return change.operation == "delete"  # its row is not sent; the id is enough
    return str(value) == change.row_id
