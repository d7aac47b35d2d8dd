"""What could not land: dead letters for the journal, rows for the rejects table. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ingest.change import Change, Row, TableName
from ingest.formats.contract import original_of
from ingest.journal.dead_letters import DeadLetter, letter_id
from ingest.journal.encoding import encode

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
class Refused:
    """One event that does not land, with its place in the journal."""

    journal_id: int
    ordinal: int
    reason: str
    code: str
    original: bytes
    source: str
    position: str
    change: Change | None
    context: Row | None = None


def rejects_table(letters: Sequence[DeadLetter], commit_us: int) -> pa.Table:
    """The rows of `<table>__rejects`."""
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


def dead_letters(
    job: tuple[str, str], table: TableName, refused: Sequence[Refused], key: Sequence[str], now_ms: int
) -> list[DeadLetter]:
    """`job` is a warehouse and the id of a job. The same event is the same letter, however often it is
    staged. It is opened when the job is published.
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
    """The key of a change as text that can be compared; None if it has none."""
    if change is None or not key:
        return None
    row = change.after if change.after is not None else change.before
    if row is None or not all(column in row for column in key):
        return None
    return original_of([row[column] for column in key]).decode()
