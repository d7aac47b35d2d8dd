"""Compare the rows of two sides with bounded memory.

Both sides are inserted into a DuckDB database in a temporary folder, batch by batch, and DuckDB joins them
there, on disk if they exceed its memory. It runs in the server process, because it runs only the SQL of this
module and reads only its own file.
"""

# ruff: noqa: S608 - the SQL has no text from outside: columns are called c0, c1, ...

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from catalog.errors import DeadlineExceeded, Unavailable
from query.tables.reading import json_rows

if TYPE_CHECKING:
    import duckdb

MEMORY = "256MiB"  # of one comparison
AT_ONCE_MAX = 2
WAIT_S = 20.0
OLD, NEW = "old_rows", "new_rows"
ADVICE = "choose moments that are closer together, or raise request_timeout_s"

_running = threading.BoundedSemaphore(AT_ONCE_MAX)


class RowComparison:
    """Compares two sides, which are filled batch by batch."""

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, schema: pa.Schema, deadline_s: float | None
    ) -> None:
        self._connection = connection
        self._schema = schema
        self._deadline_s = deadline_s
        self._columns = _names(schema)  # column names in DuckDB are case-insensitive
        for table in (OLD, NEW):
            self._insert(table, schema.empty_table(), "CREATE TABLE {table} AS FROM part")

    def fill(self, table: str, batches: Iterable[pa.RecordBatch]) -> None:
        for batch in batches:
            if self._deadline_s is not None and time.monotonic() > self._deadline_s:
                raise DeadlineExceeded(f"The rows that differ could not be read in time: {ADVICE}")
            self._insert(table, pa.Table.from_batches([batch]), "INSERT INTO {table} FROM part")

    def compared(self, key: Sequence[str], limit: int) -> dict[str, Any]:
        """Return counts, and at most `limit` rows of each kind."""
        columns = [self._columns[self._schema.names.index(column)] for column in key]
        if columns and all(self._is_unique(table, columns) for table in (OLD, NEW)):
            return {"key": list(key)} | self._by_key(columns, key, limit)
        return {"key": None} | self._as_whole(limit)

    def _insert(self, table: str, part: pa.Table, statement: str) -> None:
        self._connection.register("part", storable(part))
        self._connection.execute(statement.format(table=table))
        self._connection.unregister("part")

    def _is_unique(self, table: str, key: Sequence[str]) -> bool:
        columns = ", ".join(key)
        doubles = f"SELECT 1 FROM {table} GROUP BY {columns} HAVING count(*) > 1 LIMIT 1"
        return self._connection.execute(doubles).fetchone() is None

    def _by_key(self, columns: list[str], key: Sequence[str], limit: int) -> dict[str, Any]:
        values = [column for column in self._columns if column not in columns]
        same = " AND ".join(f"o.{one} IS NOT DISTINCT FROM n.{one}" for one in columns)
        differs = " OR ".join(f"o.{one} IS DISTINCT FROM n.{one}" for one in values)
        changed = f"{OLD} AS o JOIN {NEW} AS n ON {same} WHERE {differs or 'false'}"
        added = f"SELECT n.* FROM {NEW} AS n ANTI JOIN {OLD} AS o ON {same}"
        removed = f"SELECT o.* FROM {OLD} AS o ANTI JOIN {NEW} AS n ON {same}"
        counts = {
            "added_count": self._count(added),
            "removed_count": self._count(removed),
            "changed_count": self._count(f"SELECT 1 FROM {changed}"),
        }
        order = f"ORDER BY {', '.join(columns)} LIMIT {limit}"
        shown = f"ORDER BY {', '.join(f'o.{one}' for one in columns)} LIMIT {limit}"
        was = self._rows(f"SELECT o.* FROM {changed} {shown}")
        now = self._rows(f"SELECT n.* FROM {changed} {shown}")
        return counts | {
            "added": self._rows(f"FROM ({added}) {order}"),
            "removed": self._rows(f"FROM ({removed}) {order}"),
            "changed": [_changed(old, new, key) for old, new in zip(was, now, strict=True)],
            "truncated": max(counts.values()) > limit,
        }

    def _as_whole(self, limit: int) -> dict[str, Any]:
        """Compare whole rows: equal rows on both sides cancel out."""
        columns = ", ".join(self._columns)
        self._connection.execute(
            f"CREATE TABLE left_over AS SELECT {columns}, sum(side)::BIGINT AS side "
            f"FROM (SELECT *, 1 AS side FROM {NEW} UNION ALL SELECT *, -1 AS side FROM {OLD}) "
            f"GROUP BY {columns} HAVING sum(side) <> 0"
        )
        counts = self._connection.execute(
            "SELECT coalesce(sum(greatest(side, 0)), 0), coalesce(sum(greatest(-side, 0)), 0) FROM left_over"
        ).fetchone()
        assert counts is not None
        added, removed = map(int, counts)
        return {
            "added_count": added,
            "removed_count": removed,
            "changed_count": 0,
            "added": self._repeated("side", columns, limit),
            "removed": self._repeated("-side", columns, limit),
            "changed": [],
            "truncated": max(added, removed) > limit,
        }

    def _repeated(self, count: str, columns: str, limit: int) -> list[dict[str, Any]]:
        """Return each row as often as it occurs."""
        query = f"SELECT {{}} FROM left_over WHERE {count} > 0 ORDER BY {columns} LIMIT {limit}"
        counts = self._connection.execute(query.format(count)).fetchall()
        pairs = zip(self._rows(query.format(columns)), counts, strict=True)
        return [row for row, (number,) in pairs for _ in range(min(number, limit))][:limit]

    def _count(self, query: str) -> int:
        found = self._connection.execute(f"SELECT count(*) FROM ({query})").fetchone()
        assert found is not None
        return int(found[0])

    def _rows(self, query: str) -> list[dict[str, Any]]:
        return json_rows(restored(self._connection.execute(query).to_arrow_table(), self._schema))


@contextmanager
def comparison(schema: pa.Schema, deadline_s: float | None) -> Iterator[RowComparison]:
    """Return a comparison of rows of this schema. At most `AT_ONCE_MAX` run at once in a server process."""
    import duckdb

    if not _running.acquire(timeout=WAIT_S):
        raise Unavailable("Other comparisons are running: try again in a moment")
    try:
        with tempfile.TemporaryDirectory(prefix="calve-diff-") as folder:
            config: dict[str, str | bool | int | float | list[str]] = {
                "memory_limit": MEMORY,
                "temp_directory": f"{folder}/spilled",
                "threads": 2,
                "preserve_insertion_order": False,
                "autoinstall_known_extensions": False,
                "autoload_known_extensions": False,
                "python_enable_replacements": False,
            }
            with duckdb.connect(f"{folder}/rows.db", config=config) as connection:
                connection.execute("SET TimeZone='UTC'")
                yield RowComparison(connection, schema, deadline_s)
    finally:
        _running.release()


def _changed(old: dict[str, Any], new: dict[str, Any], key: Sequence[str]) -> dict[str, Any]:
    columns = [column for column in old if column not in key and old[column] != new[column]]
    return {
        "key": {column: new[column] for column in key},
        "old": {column: old[column] for column in columns},
        "new": {column: new[column] for column in columns},
    }


def _names(schema: pa.Schema) -> list[str]:
    return [f"c{index}" for index in range(len(schema))]


def storable(table: pa.Table) -> pa.Table:
    """Cast to types that DuckDB keeps exactly: it has no UUID as bytes, and no nanoseconds with a zone."""
    return pa.table(list(map(_storable, table.columns)), names=_names(table.schema))


def _storable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    type_ = column.type
    if isinstance(type_, pa.BaseExtensionType):
        chunks = [chunk.storage for chunk in column.chunks]
        return pa.chunked_array(chunks, type_.storage_type)
    if pa.types.is_timestamp(type_) and type_.unit == "ns" and type_.tz is not None:
        return column.cast(pa.int64())
    return column


def restored(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Restore the names of the columns, and their types as far as those matter in JSON."""
    columns = []
    for field, column in zip(schema, table.columns, strict=True):
        is_counted = pa.types.is_timestamp(field.type) and pa.types.is_integer(column.type)
        columns.append(column.cast(field.type) if is_counted else column)
    return pa.table(columns, names=schema.names)
