"""Append or overwrite with Parquet files in the warehouse's storage, and export a table to Parquet files."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import Table

from catalog import locations
from catalog.errors import Conflict, FileNotFound, Invalid
from query.tables.access import TableAccess
from query.tables.api.files import ExportRequest, FilesRequest, OverwriteRequest
from query.tables.moments import number_of_version, table_at
from query.tables.opening import errors_as_catalog_errors
from query.tables.predicates import parsed_where
from query.tables.reading import batches, planned, require_columns, scan_at, schema_at

FILE_ROWS_MAX = 1_000_000  # of an exported file


def append_files(access: TableAccess, body: FilesRequest) -> dict[str, Any]:
    table = access.current()
    files, rows = _checked(access, table, body.files)
    with errors_as_catalog_errors("files"):
        table.add_files(files)
    return _answer(access, table, files, rows)


def overwrite_files(access: TableAccess, body: OverwriteRequest) -> dict[str, Any]:
    table = access.current()
    where = parsed_where(body.where, table.schema())
    files, rows = _checked(access, table, body.files)
    with errors_as_catalog_errors("files"):
        transaction = table.transaction()
        if table.current_snapshot() is not None:
            transaction.delete(where)
        transaction.add_files(files)
        transaction.commit_transaction()
    return _answer(access, table, files, rows)


def export_table(access: TableAccess, body: ExportRequest) -> dict[str, Any]:
    location = body.location or f"{access.warehouse.root.rstrip('/')}/exports"
    folder_location = locations.require_below(access.warehouse, location, "location")
    for other, _owner in access.catalog.records.overlapping(access.warehouse.name, folder_location.canonical):
        raise Conflict(f"location: {folder_location.text} overlaps {other}, which belongs to a table")
    moment = table_at(access, None if body.as_of is None else str(body.as_of))
    schema = schema_at(moment)
    require_columns(schema, body.columns or ())
    where = parsed_where(body.where, schema)
    scan = scan_at(moment, where, tuple(body.columns or ("*",)))
    folder = f"{folder_location.text.rstrip('/')}/{access.identifier.name}-{uuid.uuid4().hex}"
    export = _Export(access, folder, schema_to_pyarrow(scan.projection(), include_field_ids=False))
    try:
        for batch in batches(scan, planned(scan)):
            export.write(batch)
        export.close()
    except BaseException:
        export.discard()
        raise
    return {"as_of": moment.as_json(), "files": export.files, "rows": export.rows}


class _Export:
    """Writes files of about `FILE_ROWS_MAX` rows. A table without rows becomes one file without rows."""

    def __init__(self, access: TableAccess, folder: str, schema: pa.Schema) -> None:
        self.files: list[str] = []
        self.rows = 0
        self._io = access.io
        self._folder = folder
        self._schema = schema
        self._writer: pq.ParquetWriter | None = None
        self._sink: Any = None
        self._file_rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        if self._writer is None or self._file_rows + batch.num_rows > FILE_ROWS_MAX:
            self._open()
        assert self._writer is not None
        self._writer.write_table(pa.Table.from_batches([batch]).cast(self._schema))
        self._file_rows += batch.num_rows
        self.rows += batch.num_rows

    def close(self) -> None:
        if not self.files:
            self._open()
        self._end()

    def discard(self) -> None:
        self._end()
        for file in self.files:
            self._io.delete(file)

    def _open(self) -> None:
        self._end()
        file = f"{self._folder}/part-{len(self.files):05d}.parquet"
        self._sink = self._io.new_output(file).create()
        self._writer = pq.ParquetWriter(self._sink, self._schema, compression="zstd")
        self.files.append(file)
        self._file_rows = 0

    def _end(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._sink.close()
            self._writer = None


def _checked(access: TableAccess, table: Table, files: Sequence[str]) -> tuple[list[str], int]:
    """Return the files and their rows. Each must be a Parquet file of the warehouse that no other
    table owns.
    """
    rows = 0
    own = str(table.metadata.table_uuid)
    for file in files:
        folder_location = locations.require_inside(access.warehouse, file, "file", file=True)
        for other, owner in access.catalog.records.overlapping(
            access.warehouse.name, folder_location.canonical
        ):
            if owner != own:
                raise Invalid(f"files: {file} is inside {other}, which belongs to another table")
        try:
            with access.io.new_input(file).open() as source:
                rows += pq.read_metadata(source).num_rows
        except FileNotFoundError as error:
            raise FileNotFound(f"files: there is no file {file}") from error
        except pa.ArrowInvalid as error:
            raise Invalid(f"files: {file} is no Parquet file") from error
    return list(files), rows


def _answer(access: TableAccess, table: Table, files: list[str], rows: int) -> dict[str, Any]:
    snapshot = table.current_snapshot()
    assert snapshot is not None
    return {
        "snapshot_id": snapshot.snapshot_id,
        "number": number_of_version(access, table.metadata_location),
        "files": len(files),
        "rows": rows,
    }
