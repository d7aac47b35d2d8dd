"""A change as JSON, as dead letters keep it: what was read, so that it can be shown, fixed and read again."""

from __future__ import annotations

from typing import Any

from ingest.change import Change, TableName

MARK = "calve"  # the field that says: this is a change as Calve had read it
REPLAY = "replay"  # how the identity of a change begins that was a dead letter


def as_kept(change: Change) -> dict[str, Any]:
    return {
        MARK: "change",
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


def from_kept(event: dict[str, Any], table: TableName, known: Change | None = None) -> Change | None:
    """None if this is not such a change. `known` is the change before it was fixed, with what the text does
    not have: the types that its producer declared.
    """
    if event.get(MARK) != "change":
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
    )


def replay_identity(letter_id: str, changed_ms: int, number: int) -> str:
    """Known to the journal only once, even if the call is repeated after a lost answer."""
    return f"{REPLAY}:{letter_id}:{changed_ms}:{number}"


def replayed_letter(change: Change) -> str | None:
    """The id of the letter that this change was; None if it comes from a producer."""
    word, _, rest = change.identity.partition(":")
    return rest.partition(":")[0] if word == REPLAY else None
