"""Read from the changes table which events of a late batch it already has, and which of its changes are
newer.

A task reads its own share of the keys. PyIceberg reads a few columns, of files whose positions are not all
older than the oldest position of the batch.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat
from pyiceberg.expressions import And, BooleanExpression, GreaterThanOrEqual, In, LessThanOrEqual
from pyiceberg.io import FileIO
from pyiceberg.table import DataScan
from pyiceberg.table.metadata import TableMetadata

from spark_jobs.landing.columns import keys_of, texts
from spark_jobs.landing.fold import LateTruncate, Past
from spark_jobs.landing.late_values import CORRECTION
from spark_jobs.messages import STAGED, TableJob
from spark_jobs.tables.data_files import without_extension
from spark_jobs.tables.key_files import encode


class Changes:
    """The changes table for one task, as it is before the batch."""

    def __init__(self, metadata: TableMetadata, io: FileIO, job: TableJob) -> None:
        self._metadata = metadata
        self._io = io
        self._job = job

    def past_of(self, batch: pa.Table) -> Past:
        """Return what the changes table has of a batch. `batch` is the task's share of the staged rows."""
        has_mirror = self._job.mirror is not None and not self._job.append_only
        key = self._job.key if has_mirror else ()
        events = pc.unique(batch.column(f"{STAGED}event_id"))
        keys = pc.unique(encode([batch.column(column) for column in key])) if key else None
        oldest = min(texts(batch, "position"), default="")
        found = []
        for read in self._read(set(texts(batch, "source")), oldest, key, _times(batch)):
            part = _like(read, batch.schema, key)
            mask = pc.is_in(part.column(f"{STAGED}event_id"), events)
            mask = pc.or_(mask, pc.equal(part.column(f"{STAGED}operation"), "truncate"))
            if keys is not None:
                mask = pc.or_(mask, pc.is_in(encode([part.column(column) for column in key]), keys))
            found.append(part.filter(mask))
        return past_from(pa.concat_tables(found), batch, key) if found else Past()

    def newer_than(self, truncate: LateTruncate, schema: pa.Schema) -> pa.Array:
        """Return the encoded keys that have a newer change of the same source, with the key types of the
        batch.
        """
        key, found = self._job.key, []
        for part in self._read({truncate.source}, truncate.position, key):
            mask = pc.and_(
                pc.greater(part.column(f"{STAGED}position"), truncate.position),
                pc.not_equal(part.column(f"{STAGED}operation"), "truncate"),
            )
            newer = _like(part.filter(mask), schema, key)
            found.append(pc.unique(encode([newer.column(column) for column in key])))
        none = encode([pa.array([], schema.field(column).type) for column in key])
        return pc.unique(pa.chunked_array([none, *found]))

    def _read(
        self, sources: set[str], oldest: str, key: Sequence[str], times_us: tuple[int, int] | None = None
    ) -> Iterator[pa.Table]:
        """Read the columns of `_METADATA` and the key, of changes from a position on, or between two times at
        the source.
        """
        names, schema = self._job.names, self._metadata.schema()
        # A table whose last batch an older version landed does not have this column.
        has_absent = any(one.name == names["absent"] for one in schema.fields)
        present = [name for name in _METADATA if name != "absent" or has_absent]
        metadata = {f"{STAGED}{name.replace('-', '_')}": names[name] for name in present}
        where: BooleanExpression = In(names["source"], sources)  # type: ignore[call-arg, arg-type]
        if oldest:
            where = And(where, GreaterThanOrEqual(names["position"], oldest))  # type: ignore[call-arg, arg-type]
        elif times_us is not None:
            since, until = times_us
            where = And(where, GreaterThanOrEqual(names["source-timestamp"], since))  # type: ignore[call-arg, arg-type]
            where = And(where, LessThanOrEqual(names["source-timestamp"], until))  # type: ignore[call-arg, arg-type]
        reader = DataScan(
            table_metadata=self._metadata,
            io=self._io,
            row_filter=where,
            selected_fields=(*metadata.values(), *key),
            case_sensitive=True,
        ).to_arrow_batch_reader()
        for batch in reader:
            facts = [batch.column(column) for column in metadata.values()]
            facts = [one if pat.is_timestamp(one.type) else one.cast(pa.string()) for one in facts]
            keys = [without_extension(batch.column(column)) for column in key]
            rows = pa.table([*facts, *keys], names=[*metadata, *key])
            absent = pa.nulls(rows.num_rows, pa.string())
            yield rows if has_absent else rows.append_column(f"{STAGED}absent", absent)


_METADATA = ("operation", "source", "position", "event-id", "absent", "source-timestamp")


def _times(batch: pa.Table) -> tuple[int, int] | None:
    """Return the first and the last time at the source, if no change has a position. A repeated event has the
    same time as before.
    """
    times = batch.column(f"{STAGED}source_timestamp")
    if any(texts(batch, "position")) or times.null_count or not len(times):
        return None
    found = pc.min_max(times.cast(pa.int64()))
    return found["min"].as_py(), found["max"].as_py()


def past_from(changes: pa.Table, batch: pa.Table, key: Sequence[str]) -> Past:
    """Return the events of the batch that `changes` has; with a key, also the newest position of each key and
    source.
    """
    wanted = {event for event in texts(batch, "event_id") if event}
    marks = zip(texts(changes, "source"), texts(changes, "event_id"), strict=True)
    known = frozenset((source, event) for source, event in marks if event in wanted)
    if not key:
        return Past(known)
    keys = set(keys_of(batch, key))
    newest: dict[tuple[str, object], str] = {}
    emptied: dict[str, str] = {}
    left_out: dict[tuple[str, object], list[tuple[str, frozenset[str]]]] = {}
    times_us: dict[tuple[str, object], int | None] = {}
    names = ("operation", "source", "position", "event_id", "absent")
    times = changes.column(f"{STAGED}source_timestamp").cast(pa.int64()).to_pylist()
    facts = zip(*(texts(changes, name) for name in names), times, keys_of(changes, key), strict=True)
    for operation, source, position, event, absent, time_us, row in facts:
        if operation == "truncate":
            emptied[source] = max(emptied.get(source, ""), position)
        elif row in keys:
            if position >= newest.get((source, row), ""):
                newest[source, row], times_us[source, row] = position, time_us
            if not event.endswith(CORRECTION):
                columns = frozenset(json.loads(absent) if absent else ())
                left_out.setdefault((source, row), []).append((position, columns))
    # A value from before a truncate does not count, also if newer changes left its column out.
    for source, position in emptied.items():
        for mark, known_changes in left_out.items():
            if mark[0] == source:
                known_changes.append((position, frozenset()))
    partial = {mark: found for mark, found in left_out.items() if any(columns for _, columns in found)}
    return Past(known, newest, emptied, partial, times_us)


def _like(changes: pa.Table, schema: pa.Schema, key: Sequence[str]) -> pa.Table:
    """Cast the keys to the types of the batch, so that equal keys compare equal."""
    for column in key:
        index, type_ = changes.schema.get_field_index(column), schema.field(column).type
        found = changes.column(column)
        if found.type == pa.binary(16) and not pat.is_fixed_size_binary(type_):
            values = [None if value is None else str(uuid.UUID(bytes=value)) for value in found.to_pylist()]
            found = pa.array(values, pa.string())  # a uuid is text in staged files
        changes = changes.set_column(index, column, found.cast(type_))
    return changes
