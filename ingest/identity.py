"""The order of changes, repeated events, key changes, and the key of a table. Pure.

Within a source, positions decide the order; between sources, arrival does. The changes of a source are sorted
by position and put back into the slots that this source had by arrival, so neither order disturbs the other.
In most batches nothing has to change, so each function first checks whole lists, and looks at single changes
only if it must.

The key comes from, in this order: the setting of the owner, the identifier fields of the table, the producer,
evidence, the producer's own name for the row, a column `id` that every change has, which is a guess. Without
any of them, rows can only be appended. A guess is watched (`ingest/evidence.py`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from operator import le
from typing import Any

from ingest.change import Change, Row, original_of, position_of

_COUNTED = re.compile(r"~@[0-9a-f]+$")


def counted(identity: str, number: int | str) -> str:
    """An identity with a part that counts only where the table has no key."""
    return f"{identity}~@{number}"


def uncounted(identity: str) -> str:
    """The identity of an event of a table with a key."""
    return _COUNTED.sub("", identity)


def old_key(change: Change, key: Sequence[str]) -> Row | None:
    """The key that an update takes a row away from; None if the key stays, or the old one is not known."""
    before, after = change.before, change.after
    if change.operation != "update" or not before or after is None or not key:
        return None
    if not all(column in before for column in key):
        return None
    if all(column not in after or _is_same(after[column], before[column]) for column in key):
        return None
    return {column: before[column] for column in key}


def _is_same(one: object, other: object) -> bool:
    """A producer may write a key as a number here and as text there."""
    return one == other or str(one) == str(other)


def halves(change: Change, key: Sequence[str], fallback_id: str) -> tuple[Change, ...]:
    """The change itself; or, if it changes the key, its delete and its insert. `fallback_id` names an event
    that has neither identity nor number.
    """
    moved_from = old_key(change, key)
    if moved_from is None:
        return (change,)
    name = change.identity or (fallback_id if change.number is None else f"{change.source}:{change.number}")
    gone = replace(change, operation="delete", after=None, identity=f"{name}:before", number=None)
    return gone, replace(change, operation="insert", moved_from=moved_from)


# -- order

# A position of PostgreSQL: the last commit before it (or, while none is known, its own place in the log once
# more), its place in the log, its number in its transaction.
_DIGITS = 16
_POSTGRES = re.compile(rf"([0-9a-f]{{{_DIGITS}}})/\1/([0-9a-f]{{{_DIGITS}}})")


@dataclass(slots=True)
class ArrivedChange:
    """A change with its place in the journal."""

    journal_id: int
    ordinal: int
    change: Change


JournalPosition = tuple[int, int]  # journal id, ordinal


def journal_position(item: ArrivedChange) -> JournalPosition:
    return item.journal_id, item.ordinal


def after_loads(arrived: Sequence[ArrivedChange], known: Mapping[str, str]) -> Sequence[ArrivedChange]:
    """Puts the first transaction after a first load behind it. Answers `arrived`.

    One that was open when the load began has changes with a place before the load's, and they do not name the
    commit before them, as there was none yet; but it was committed behind the load, which does not show them.
    `known` are the newest positions that the table shows.
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
    """`arrived` is in order of arrival."""
    result = list(arrived)
    if _rises([item.change.position for item in arrived]):
        return result  # what rises as a whole rises within each source, too
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
    """The first of each event. The journal has seen to it within its window; this holds beyond it."""
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


def key_changes(ordered: Sequence[Change], columns: Sequence[str], key: Sequence[str]) -> dict[int, Row]:
    """Inserts that are the second half of a key change, and the key that the row had before.

    A key change arrives as a delete and an insert of one transaction (or one position). It matters in two
    cases: the insert lacks large values that did not change, and they are in the deleted row; or the new
    key belongs to another row, which leaves it later in the same transaction, as when two rows swap keys.
    """
    found: dict[int, Row] = {}
    if not key:
        return found
    deletes = [row for row, change in enumerate(ordered) if change.operation == "delete"]
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
        lacks_values = any(column not in after for column in columns)
        if lacks_values or leaving.get(_row_mark(change, after, key), -1) > row:
            found[row] = {column: before[column] for column in key}
    return found


def _row_mark(change: Change, row: Row | None, key: Sequence[str]) -> tuple[str, str, str]:
    """A row of a table within a source transaction."""
    values = [(row or {}).get(column) for column in key]
    return change.source, change.transaction or "", original_of(values).decode()


def watermarks(changes: Sequence[Change]) -> dict[str, tuple[str, int | None]]:
    """The newest position of each source, and the time it had there."""
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
    """Whether something is not newer than what the table shows already: a replay, or an old change."""
    newest = max(known.values(), default="")
    oldest = min(filter(None, [change.position for change in changes]), default="") if newest else ""
    if not oldest or oldest > newest:
        return False  # nothing to compare, or all are newer than what it shows of any source
    return any(change.position and change.position <= known.get(change.source, "") for change in changes)


def load_key(changes: Sequence[Change]) -> str | None:
    """The first load that all of these belong to, if they are nothing else."""
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

ROW_ID = "_cdc_row_id"  # the column that holds a producer's own name for the row, where there is no other key
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
    """The key columns of a table, empty if none is known, and why they are the key."""

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
    """The key columns of a table in which nothing has landed; empty if none is known."""
    return reasoned_key(chosen, schema, changes).columns


def reasoned_key(
    chosen: Sequence[str] | None,
    schema: Mapping[str, Any] | None,
    changes: Sequence[Change],
    known: Key | None = None,
) -> Key:
    """The key of a table, and why. `known` is the one that its rows were landed by; a guess yields to the
    producer's word, and everything to identifier fields that were changed since.
    """
    if chosen:
        return Key(tuple(chosen), SETTING)
    rows = [change for change in changes if change.operation != "truncate"]
    said = next((change.key for change in rows if change.key), None)
    identifiers = _identifiers(schema)
    if known is not None and known.columns:
        if said is not None and known.is_guess and set(said) != set(known.columns):
            return Key(said, PRODUCER)
        if not identifiers or set(identifiers) == set(known.columns):
            return known
    if schema is not None:
        return Key(identifiers, TABLE) if identifiers else Key()
    return Key(said, PRODUCER) if said is not None else _guessed(rows)


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
    """The schema of a table's metadata document that readers see; None where there is no table."""
    if metadata is None:
        return None
    wanted = metadata["current-schema-id"]
    found: dict[str, Any] = next(s for s in metadata["schemas"] if s["schema-id"] == wanted)
    return found


def with_row_ids(changes: Sequence[Change]) -> None:
    """Put the producer's name for the row into it, where that is the key."""
    for change in changes:
        if change.row_id is None:
            continue
        if change.after is not None:
            change.after = {**change.after, ROW_ID: change.row_id}
        change.before = {**(change.before or {}), ROW_ID: change.row_id}


def is_append_only(changes: Sequence[Change]) -> bool:
    """Plain rows: nothing but inserts, from a producer that says that they have no key."""
    return all(change.operation == "insert" and change.key == () for change in changes)


def _known(change: Change, column: str) -> Any:
    row = change.after if change.after is not None else change.before
    return (row or {}).get(column)


def _is_named_by_id(change: Change) -> bool:
    value = _known(change, "id")
    if value is None:
        return change.operation == "delete"  # its row is not sent; the name is enough
    return str(value) == change.row_id
