"""What a producer is told about its events. Pure.

An event is `accepted`, `duplicate` (known from before: success, nothing to do), `dead_lettered` (kept, with
the reason, for somebody to fix) or `ignored` (it says nothing about a row). Only those that are not plainly
accepted are listed, unless all are asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from catalog.errors import Invalid
from ingest.change import ChangeColumns, Parsed, TableName
from ingest.door.ports import LandedRow
from ingest.journal.receipts import Receipt

LISTED_MAX = 1000  # of events that are not plainly accepted; `truncated` says that there were more
REASON_DUPLICATE = "received before"


@dataclass(frozen=True, slots=True)
class Summary:
    """What is remembered of a request while it waits for COMMIT: not its rows."""

    format: str
    events: int
    changed: frozenset[int]  # the indexes of events that are changes
    rejects: tuple[tuple[int, str, str], ...]  # index, reason, code
    ignored: Mapping[int, str]
    tables: frozenset[TableName]
    source: str
    number: int  # the source's own, of the last change

    @staticmethod
    def of(parsed: Parsed) -> Summary:
        if parsed.columns is not None and parsed.columns.size == parsed.events:
            return _of_columns(parsed.format, parsed.columns)
        changes, rejects = parsed.changes, parsed.rejects
        tables = {change.table for change in changes}
        tables.update(reject.table for reject in rejects if reject.table is not None)
        return Summary(
            parsed.format,
            parsed.events,
            frozenset([change.index for change in changes]),
            tuple((reject.index, reject.reason, reject.code) for reject in rejects),
            parsed.ignored,
            frozenset(tables),
            changes[0].source if changes else "",
            (changes[-1].number or 0) if changes else 0,
        )


def _of_columns(format_: str, columns: ChangeColumns) -> Summary:
    indexes = range(columns.first_index, columns.first_index + columns.size)
    number = columns.different["number"][-1]
    source = columns.same["source"]
    return Summary(
        format_, columns.size, frozenset(indexes), (), {}, frozenset({columns.table}), source, number
    )


@dataclass(frozen=True, slots=True)
class Outcome:
    """A request whose events are durable."""

    warehouse: str
    summary: Summary
    receipt: Receipt

    @property
    def token_id(self) -> int:
        """The journal id up to which everything that the request holds, new or repeated, becomes visible."""
        return self.receipt.last if self.receipt.last is not None else self.receipt.head

    @property
    def token(self) -> str:
        return f"{self.warehouse}:{self.token_id}"

    @property
    def accepted(self) -> int:
        return len(self.summary.changed - self.receipt.duplicates)

    @property
    def dead_lettered(self) -> int:
        return len({index for index, _, _ in self.summary.rejects} - self.receipt.duplicates)

    @property
    def is_duplicate(self) -> bool:
        """Nothing of it was new."""
        return bool(self.receipt.duplicates) and not self.accepted and not self.dead_lettered


def receipt_answer(outcome: Outcome, *, verbose: bool = False) -> dict[str, Any]:
    """The body of an answer after COMMIT."""
    summary = outcome.summary
    listed = list(_events(outcome, verbose=verbose))
    answer: dict[str, Any] = {
        "success": True,
        "eventsReceived": summary.events,
        "eventsAccepted": outcome.accepted,
        "isDuplicate": outcome.is_duplicate,
        "duplicates": len(outcome.receipt.duplicates),
        "deadLettered": outcome.dead_lettered,
        "token": outcome.token,
        "format": summary.format,
        "events": listed if verbose else listed[:LISTED_MAX],
    }
    if not verbose and len(listed) > LISTED_MAX:
        answer["truncated"] = True
    return answer


def commit_answer(
    outcome: Outcome, landed: Mapping[TableName, LandedRow] | None, *, verbose: bool = False
) -> dict[str, Any]:
    """The body of an answer that waited for the commit; `landed` is None if it did not come in time."""
    answer = receipt_answer(outcome, verbose=verbose)
    answer["committed"] = landed is not None
    answer["snapshots"] = snapshots_answer(landed or {})
    return answer


def snapshots_answer(landed: Mapping[TableName, LandedRow]) -> list[dict[str, Any]]:
    return [
        {
            "table": shown(table),
            "number": row.number,
            "mirror-snapshot-id": row.mirror_snapshot_id,
            "changes-snapshot-id": row.changes_snapshot_id,
            "commit-timestamp": row.commit_us // 1000,
        }
        for table, row in sorted(landed.items(), key=lambda item: item[0])
        if row.number is not None
    ]


def kafka_answer(outcome: Outcome) -> dict[str, Any]:
    """As a Kafka REST proxy says it: an offset for each record, in order.

    A record that became a dead letter is kept, so it has an offset and no error.
    """
    taken = {"partition": 0, "offset": outcome.token_id, "error_code": None, "error": None}
    return {"key_schema_id": None, "value_schema_id": None, "offsets": [taken] * outcome.summary.events}


def shown(table: TableName) -> str:
    return ".".join(table)


def parse_token(text: str) -> tuple[str, int]:
    """Warehouse and journal id of a token that an answer gave."""
    warehouse, _, number = text.rpartition(":")
    if not warehouse or not (number.isascii() and number.isdigit()) or len(number) > 18:
        raise Invalid("token must be what an answer of /cdc gave, such as main:1234")
    return warehouse, int(number)


def _events(outcome: Outcome, *, verbose: bool) -> Iterable[dict[str, Any]]:
    summary = outcome.summary
    found: dict[int, tuple[str, str | None]] = {}
    if verbose:
        found.update((index, ("accepted", None)) for index in range(summary.events))
    found.update((index, ("ignored", why)) for index, why in summary.ignored.items())
    found.update((index, ("dead_lettered", reason)) for index, reason, _ in summary.rejects)
    found.update((index, ("duplicate", REASON_DUPLICATE)) for index in outcome.receipt.duplicates)
    for index in sorted(found):
        status, reason = found[index]
        yield {"index": index, "status": status, "reason": reason}
