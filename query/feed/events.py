"""Messages to subscribers, and their form as server-sent events.

A change is encoded once for all subscribers that get all of its columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

import orjson

from catalog.moments import AtTime
from query.feed.cursors import ChangeIndex, Cursor
from query.feed.filters import Filter

if TYPE_CHECKING:
    from query.feed.publishes import ChangedTable, Publish, TableChanges

Kind = Literal[
    "change", "begin", "progress", "snapshot-end", "must-refetch", "slow-consumer", "error", "heartbeat"
]
HEARTBEAT = b": heartbeat\n\n"
# Fields of a change beside its table and its rows, with the names that ingest has for them.
FIELDS = ("commit-timestamp", "source-timestamp", "source", "position", "transaction", "event-id")


class Message:
    """One message. `cursor` is where to continue after it."""

    __slots__ = ("_frame", "cursor", "data", "kind")

    def __init__(self, kind: Kind, data: Mapping[str, Any], cursor: Cursor) -> None:
        self.kind = kind
        self.data = data
        self.cursor = cursor
        self._frame: bytes | None = None

    @property
    def frame(self) -> bytes:
        """Return the message as a server-sent event. The id is the token, which a browser sends back as
        Last-Event-ID.
        """
        if self.kind == "heartbeat":
            return HEARTBEAT
        if self._frame is None:
            self._frame = b"id: %b\nevent: %b\ndata: %b\n\n" % (
                self.cursor.token.encode(),
                self.kind.encode(),
                orjson.dumps(self.data),
            )
        return self._frame

    def with_columns(self, wanted: Filter) -> Message:
        """Return the change with the requested columns only."""
        if not wanted.columns:
            return self
        rows = {name: wanted.shown(self.data[name]) for name in ("before", "after")}
        return Message(self.kind, {**self.data, **rows}, self.cursor)


def changes_of(
    former: Cursor, publish: Publish, changed: ChangedTable, found: TableChanges, first: int, count: int
) -> list[Message]:
    """Return some changes of a table as messages. `former` is the cursor before the publish."""
    from query.tables.changes import change_versions

    versions = change_versions(found.rows.slice(first, count), found.names)
    return [
        Message(
            "change",
            {
                "table": changed.name,
                "operation": version["operation"],
                "before": version["before"],
                "after": version["after"],
                "number": publish.number,
                **{name: version[name] for name in (field.replace("-", "_") for field in FIELDS)},
            },
            Cursor(former.generation, former.number, former.time_ms, ChangeIndex(changed.key, change_index)),
        )
        for change_index, version in enumerate(versions, first + 1)
    ]


def begin(cursor: Cursor, publish: Publish) -> Message:
    data = {"number": publish.number, "time": str(AtTime(publish.time_ms))}
    return Message("begin", data, cursor)


@lru_cache(maxsize=64)
def progress(cursor: Cursor, changes: int, head: int) -> Message:
    """Return a message that all changes up to the number have been sent. Equal subscribers share one
    message.
    """
    data = {
        "number": cursor.number,
        "time": str(AtTime(cursor.time_ms)),
        "changes": changes,
        "head": head,
    }
    return Message("progress", data, cursor)
