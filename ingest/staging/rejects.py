"""Handle changes that cannot land, or wait for a dead letter: letters for the journal, rows for the rejects
table; and name the columns that are not stored. Pure.

A change waits only if the table has the setting `after-reject: wait`. It becomes a dead letter too, and a
replay appends it after the one that it waited for.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
import pyarrow as pa

from ingest.change import Change, Row, TableName, original_of
from ingest.formats.json_body import decode
from ingest.identity import ArrivedChange, JournalPosition, journal_position, old_key
from ingest.journal.dead_letters import DeadLetter, change_as_json, letter_id, replayed_letter
from ingest.journal.encoding import encode
from ingest.types.schema_plan import SchemaPlan

NOTICE_CHARS_MAX = 1_000

REJECTS_ARROW = pa.schema(
    [
        ("_rejected_at", pa.timestamp("us", tz="UTC")),
        ("_reason", pa.string()),
        ("_code", pa.string()),
        ("_source", pa.string()),
        ("_position", pa.string()),
        ("_original", pa.binary()),
        ("_dead_letter", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class RejectedChange:
    """One event that does not land, with its position in the journal."""

    journal_id: int
    ordinal: int
    reason: str
    code: str
    original: bytes
    source: str
    position: str
    change: Change | None
    context: Row | None = None


def rejected(item: ArrivedChange, code: str, reason: str) -> RejectedChange:
    change = item.change
    original = original_of(change_as_json(change))
    return RejectedChange(
        item.journal_id, item.ordinal, reason, code, original, change.source, change.position, change
    )


def rejects_table(letters: Sequence[DeadLetter], commit_us: int) -> pa.Table:
    """Return the rows of `<table>__rejects`."""
    columns: dict[str, list[Any]] = {
        "_rejected_at": [commit_us] * len(letters),
        "_reason": [letter.reason for letter in letters],
        "_code": [letter.code for letter in letters],
        "_source": [letter.source for letter in letters],
        "_position": [letter.position for letter in letters],
        "_original": [letter.original for letter in letters],
        "_dead_letter": [letter.id for letter in letters],
    }
    return pa.table(columns, schema=REJECTS_ARROW)


def columns_not_stored(plan: SchemaPlan) -> str | None:
    """Return which columns of the source are not stored, although the policy is to store all of them."""
    if plan.policy != "evolve":
        return None
    reasons = (f'column "{name}": {reason}' for name, reason in sorted(plan.refused.items()))
    return f"not stored: {'; '.join(reasons)}"[:NOTICE_CHARS_MAX]


def dead_letters(
    job: tuple[str, str], table: TableName, refused: Sequence[RejectedChange], key: Sequence[str], now_ms: int
) -> list[DeadLetter]:
    """Return the dead letters of a batch. `job` is a warehouse and the id of a job. The same event gives the
    same letter, however often it is staged. It is opened when the job is published.
    """
    warehouse, job_id = job
    return [
        DeadLetter(
            id=letter_id(warehouse, table, item.journal_id, item.ordinal),
            warehouse=warehouse,
            table=table,
            journal_id=item.journal_id,
            ordinal=item.ordinal,
            key=key_text(item.change, key),
            code=item.code,
            reason=item.reason,
            original=item.original,
            source=item.source,
            position=item.position,
            received_ms=now_ms,
            state="staged",
            change=encode([item.change], ()) if item.change is not None else None,
            context=original_of(item.context).decode() if item.context is not None else None,
            job_id=job_id,
        )
        for item in refused
    ]


def key_text(change: Change | None, key: Sequence[str]) -> str | None:
    """Return the key of a change as text that can be compared; None if it has none."""
    if change is None or not key:
        return None
    row = change.after if change.after is not None else change.before
    if row is None or not all(column in row for column in key):
        return None
    return original_of([row[column] for column in key]).decode()


def blocked_changes(
    ordered: Sequence[ArrivedChange],
    failed: Collection[JournalPosition],
    letters: Sequence[DeadLetter],
    key: Sequence[str],
    from_id: int,
) -> dict[JournalPosition, str]:
    """Return the changes that wait, with the reason. `failed` are changes of the batch that cannot land.

    `letters` are those that are open; letters of this batch itself (after `from_id`), which an earlier
    attempt left, are ignored.
    """
    returning = {replayed_letter(item.change) for item in ordered}
    known: dict[str, list[DeadLetter]] = {}
    for letter in letters:
        if letter.key is not None and letter.journal_id <= from_id and letter.id not in returning:
            known.setdefault(_comparable(letter.key), []).append(letter)
    found: dict[JournalPosition, str] = {}
    blocked: set[str] = set()
    for item in ordered:
        own = keys_of(item.change, key)
        letters_of = [letter for one in own for letter in known.get(one, ())]
        if journal_position(item) in failed:
            blocked |= own
        elif own & blocked:
            found[journal_position(item)] = _reason(item.change, key, "an earlier change of this batch")
            blocked |= own
        elif (earlier := _before(item.change, letters_of)) is not None:
            found[journal_position(item)] = _reason(item.change, key, f"the dead letter {earlier.id}")
            blocked |= own
    return found


def keys_of(change: Change, key: Sequence[str]) -> set[str]:
    """Return the rows that a change concerns: two if it changes the key."""
    moved_from = old_key(change, key)
    former = (
        None
        if moved_from is None
        else comparable_key(Change(0, change.table, "delete", before=moved_from), key)
    )
    return {one for one in (comparable_key(change, key), former) if one is not None}


def comparable_key(change: Change, key: Sequence[str]) -> str | None:
    """Return the key for comparisons: a producer's id of the row is text, where the row may have a number."""
    text = key_text(change, key)
    if text is not None:
        return _comparable(text)
    return orjson.dumps([change.row_id]).decode() if len(key) == 1 and change.row_id is not None else None


def _comparable(text: str) -> str:
    return orjson.dumps([str(part) for part in decode(text.encode())]).decode()


def _before(change: Change, letters: Sequence[DeadLetter]) -> DeadLetter | None:
    """Return the first letter that is before this change."""
    own = replayed_letter(change)
    for letter in letters:
        if change.source == letter.source and change.position and letter.position:
            if letter.position <= change.position:
                return letter
        elif own is None or (letter.journal_id, letter.ordinal) < _position_of_letter(own):
            return letter
    return None


def _position_of_letter(letter_id: str) -> JournalPosition:
    journal_id, ordinal, _ = letter_id.split(".")
    return int(journal_id), int(ordinal)


def _reason(change: Change, key: Sequence[str], what: str) -> str:
    row = key_text(change, key) or change.row_id
    return f"the row {', '.join(key)} = {row} waits for {what}: fix that one, then replay both"
