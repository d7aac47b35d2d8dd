"""Read rows of a table as Arrow and as JSON, with bounded memory.

PyIceberg plans a scan and reads its files. It reads all files of a scan at once, regardless of the limit.
This module reads one file after the other, so that a request holds one file and its result.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.io.pyarrow import ArrowScan, schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.table import DataScan, FileScanTask, IncrementalAppendScan

from catalog.errors import Invalid, TooLarge
from query.formats import row_values
from query.tables.moments import TableMoment
from query.tables.opening import errors_as_catalog_errors

Scan = DataScan | IncrementalAppendScan
ALWAYS = AlwaysTrue()


def schema_at(moment: TableMoment) -> Schema:
    """Return the schema at the moment."""
    return scan_at(moment).projection()


def scan_at(
    moment: TableMoment, row_filter: BooleanExpression = ALWAYS, columns: Sequence[str] = ("*",)
) -> DataScan:
    current = moment.table.current_snapshot()
    is_current = current is None or current.snapshot_id == moment.snapshot_id
    snapshot_id = None if is_current else moment.snapshot_id
    return moment.table.scan(row_filter=row_filter, selected_fields=tuple(columns), snapshot_id=snapshot_id)


def planned(scan: Scan) -> list[FileScanTask]:
    """Return the files of a scan after pruning, always in the same order."""
    with errors_as_catalog_errors():
        return sorted(scan.plan_files(), key=lambda task: task.file.file_path)


def batches(
    scan: Scan, tasks: Iterable[FileScanTask], limit: int | None = None, schema: Schema | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of some files of a scan, at most `limit`, in columns of `schema`."""
    with errors_as_catalog_errors():
        projected = schema if schema is not None else scan.projection()
        left = limit
        for task in tasks:
            if left == 0:
                return
            reader = ArrowScan(
                scan.table_metadata, scan.io, projected, scan.row_filter, scan.case_sensitive, left
            )
            for batch in reader.to_record_batches([task]):
                left = None if left is None else left - batch.num_rows
                yield batch


def read(
    scan: Scan, tasks: Iterable[FileScanTask], limit: int | None = None, schema: Schema | None = None
) -> pa.Table:
    """Return the same as one table."""
    arrow_schema = schema_to_pyarrow(schema or scan.projection(), include_field_ids=False)
    found = [pa.Table.from_batches([batch]) for batch in batches(scan, tasks, limit, schema)]
    return pa.concat_tables([arrow_schema.empty_table(), *found], promote_options="permissive")


def read_within(
    scan: Scan, tasks: Sequence[FileScanTask], rows_max: int, advice: str, schema: Schema | None = None
) -> pa.Table:
    """Return the same, or raise TooLarge if there are more than `rows_max` rows."""
    found = read(scan, tasks, rows_max + 1, schema)
    if found.num_rows > rows_max:
        raise TooLarge(f"More than {rows_max} rows would have to be read: {advice}")
    return found


def json_rows(table: pa.Table) -> list[dict[str, Any]]:
    """Return the rows as objects whose values are exact in JSON."""
    names = table.column_names
    return [
        dict(zip(names, row, strict=True))
        for batch in table.combine_chunks().to_batches()
        for row in row_values(batch)
    ]


def json_columns(schema: Schema) -> list[dict[str, str]]:
    return [{"name": field.name, "type": str(field.field_type)} for field in schema.fields]


def require_columns(schema: Schema, names: Iterable[str], what: str = "columns") -> None:
    known = {field.name for field in schema.fields}
    for name in names:
        if name not in known:
            raise Invalid(f"{what}: there is no column {name}; there are {', '.join(sorted(known))}")
