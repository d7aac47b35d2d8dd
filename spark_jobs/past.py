"""What the changes table knows of a late batch's events. Pure, over Arrow.

An event whose id is there is not written again. An event is current unless a newer one of the same source is
there for its key, or a newer truncate. Events without a position are always current: they count by arrival.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.types as pat

from spark_jobs.job import STAGED
from spark_jobs.lineage import Key


@dataclass(frozen=True, slots=True)
class Past:
    """`known`: (source, event id). `newest`: the newest position for (source, key). `emptied`: the newest
    truncate of a source.
    """

    known: frozenset[tuple[str, str]] = frozenset()
    newest: dict[tuple[str, Key], str] = field(default_factory=dict)
    emptied: dict[str, str] = field(default_factory=dict)

    def is_new(self, table: pa.Table) -> pa.Array:
        marks = zip(texts(table, "source"), texts(table, "event_id"), strict=True)
        return pa.array([mark not in self.known for mark in marks], pa.bool_())

    def is_current(self, table: pa.Table, key: Sequence[str]) -> list[bool]:
        facts = zip(
            texts(table, "operation"),
            texts(table, "source"),
            texts(table, "position"),
            keys_of(table, key),
            strict=True,
        )
        return [
            not position
            or operation == "truncate"  # how it is applied looks at the changes by itself
            or max(self.newest.get((source, row), ""), self.emptied.get(source, "")) <= position
            for operation, source, position, row in facts
        ]


def texts(table: pa.Table, name: str) -> list[str]:
    return [value or "" for value in table.column(f"{STAGED}{name}").to_pylist()]


def keys_of(table: pa.Table, columns: Sequence[str]) -> list[Key | None]:
    """The keys as tuples, None where they are null. Days and instants are numbers in them, because Python's
    calendar is shorter than Arrow's.
    """
    if not columns:
        return [()] * table.num_rows
    values = zip(*(_plain(table.column(column)).to_pylist() for column in columns), strict=True)
    return [None if None in key else key for key in values]


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pat.is_timestamp(column.type):
        return column.cast(pa.int64())
    return column.cast(pa.int32()) if pat.is_date32(column.type) else column
