"""Read and write the files of a table in a Spark task.

PyIceberg writes data files, so field ids, types, partition folders, metrics and `write.*` properties follow
the table. It has no writer for position deletes: `Writer.write_deletes` is one. Each file is described in the
content-file JSON of the REST specification.

The name of a data file ends with `-calve-` and a mark for the key that its rows were folded by. Among the
files with one mark, only the newest file that has a key has its live row.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.conversions import to_json
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import (
    PyArrowFileIO,
    _determine_partitions,
    _to_requested_schema,
    bin_pack_arrow_table,
    pyarrow_to_schema,
    schema_to_pyarrow,
    write_file,
)
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionKey, PartitionSpec
from pyiceberg.schema import Schema, prune_columns
from pyiceberg.table import WriteTask
from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import BucketTransform, UnknownTransform, VoidTransform
from pyiceberg.types import IcebergType, NestedField, PrimitiveType, UUIDType
from pyiceberg.utils.properties import property_as_int

from spark_jobs.messages import BadJob

FIELD_ID = b"PARQUET:field_id"
FILE_PATH_ID, POS_ID = 2147483546, 2147483545  # required by the specification
POSITIONS = pa.schema(
    [
        pa.field("file_path", pa.string(), nullable=False, metadata={FIELD_ID: str(FILE_PATH_ID).encode()}),
        pa.field("pos", pa.int64(), nullable=False, metadata={FIELD_ID: str(POS_ID).encode()}),
    ]
)
TARGET_BYTES = 128 * 2**20
_MAPS = {
    "column_sizes": "column-sizes",
    "value_counts": "value-counts",
    "null_value_counts": "null-value-counts",
    "nan_value_counts": "nan-value-counts",
}


def file_io(properties: Mapping[str, str]) -> FileIO:
    return PyArrowFileIO(dict(properties))


def key_mark(metadata: TableMetadata, key: Sequence[str]) -> str:
    """Return how the names of data files end whose rows were folded by this key, or appended without one."""
    ids = ".".join(str(field_id(metadata.schema(), column)) for column in key)
    return f"-calve-k{ids}" if ids else "-calve-a"


def is_marked(path: str, mark: str) -> bool:
    return path.endswith(f"{mark}.parquet")


def field_id(schema: Schema, column: str) -> int:
    return field_of(schema, column).field_id


def field_of(schema: Schema, column: str) -> NestedField:
    """Return the field with exactly this name: a dot is part of the name."""
    for found in schema.fields:
        if found.name == column:
            return found
    raise BadJob(f"the table has no column {column}")


# -- rows


def fitted(rows: pa.Table, schema: Schema) -> pa.Table:
    """Return the rows with the columns and types of the table. BadJob if they do not fit."""
    given = dict(zip(rows.column_names, rows.columns, strict=True))
    unknown = given.keys() - {found.name for found in schema.fields}
    if unknown:
        raise BadJob(f"the table has no column {min(unknown)}")
    wanted = schema_to_pyarrow(schema, include_field_ids=False)
    columns = []
    for target, found in zip(wanted, schema.fields, strict=True):
        column = given.get(found.name)
        column = pa.nulls(rows.num_rows, target.type) if column is None else column
        if found.required and column.null_count:
            raise BadJob(f"the column {found.name} is required and null in a row of the batch")
        columns.append(cast_column(column, found.field_type, target.type))
    return pa.table(columns, schema=pa.schema(wanted, metadata=None))


def cast_column(
    column: pa.ChunkedArray | pa.Array, type_: IcebergType, target: pa.DataType | None = None
) -> Any:
    """Return a column with the Arrow type that PyIceberg uses for a type."""
    arrow = target if target is not None else schema_to_pyarrow(type_, include_field_ids=False)
    if column.type == arrow:
        return column
    try:
        if isinstance(type_, UUIDType) and not isinstance(column.type, pa.UuidType):
            return pa.ExtensionArray.from_storage(pa.uuid(), _uuid_bytes(column))
        return column.cast(arrow)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as error:
        raise BadJob(f"a value does not fit the type {type_}: {error}") from error


def _uuid_bytes(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Return UUIDs as bytes, from staged text or from bytes."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if column.type == pa.binary(16):
        return column
    texts = column.to_pylist()
    return pa.array([None if text is None else uuid.UUID(text).bytes for text in texts], pa.binary(16))


def without_extension(column: Any) -> Any:
    """Return a uuid column as bytes, which can be compared and grouped."""
    if isinstance(column.type, pa.UuidType):
        if isinstance(column, pa.ChunkedArray):
            chunks = [chunk.storage for chunk in column.chunks]
            return pa.chunked_array(chunks, pa.binary(16))
        return column.storage
    return column


def read_rows(
    io: FileIO,
    path: str,
    metadata: TableMetadata,
    columns: Sequence[str],
    positions: pa.Array | None = None,
    *,
    group: int | None = None,
) -> pa.Table:
    """Read columns of a data file, with the table's current names and types: all rows, those at `positions`,
    in that order, or those of one row group. Only the row groups that are needed are read.
    """
    ids = {field_id(metadata.schema(), column) for column in columns}
    wanted = prune_columns(metadata.schema(), ids, select_full_types=True)
    with io.new_input(path).open() as source:
        file = pq.ParquetFile(source)
        mapping = metadata.schema().name_mapping
        found = pyarrow_to_schema(
            file.schema_arrow,
            name_mapping=mapping,
            downcast_ns_timestamp_to_us=True,
            format_version=metadata.format_version,
        )
        present = prune_columns(found, set(wanted.field_ids), select_full_types=False)
        groups, indices = _groups(file, positions) if group is None else ([group], None)
        read = file.read_row_groups(groups, columns=[found.name for found in present.fields])
    batches = [
        _to_requested_schema(
            wanted, present, batch, downcast_ns_timestamp_to_us=True, allow_timestamp_tz_mismatch=True
        )
        for batch in read.to_batches()
    ]
    target = schema_to_pyarrow(wanted, include_field_ids=False)
    if batches:
        table = pa.Table.from_batches(batches).cast(target)
    else:
        table = target.empty_table()
    return (table if indices is None else table.take(indices)).select(list(columns))


def _groups(file: pq.ParquetFile, positions: pa.Array | None) -> tuple[list[int], pa.Array | None]:
    """Return the row groups that have the positions, and the index of each position in their rows."""
    count = file.metadata.num_row_groups
    if positions is None:
        return list(range(count)), None
    starts = [0]
    for group in range(count):
        starts.append(starts[-1] + file.metadata.row_group(group).num_rows)
    of = pc.search_sorted(pa.array(starts, pa.int64()), positions, side="right")
    needed = sorted({int(number) - 1 for number in pc.unique(of).to_pylist()})
    shift, read = {}, 0
    for group in needed:
        shift[group] = starts[group] - read
        read += starts[group + 1] - starts[group]
    shifts = pa.array([shift[int(number) - 1] for number in of.to_pylist()], pa.int64())
    return needed, pc.subtract(positions, shifts)


# -- data files


@dataclass(frozen=True)
class _NamedTask(WriteTask):
    """Gives a file of PyIceberg's writer a name chosen here."""

    name: str = ""

    def generate_data_file_filename(self, extension: str) -> str:
        return f"{self.name}.{extension}"


@dataclass(frozen=True, slots=True)
class Written:
    """A new data file: its description and its rows."""

    path: str
    json: str
    bytes: int
    rows: pa.Table


@dataclass(slots=True)
class Writer:
    """Writes the files of one table in one task.

    `names` begins every file name. `begun` has the path of every file that may exist, so that a failed task
    can delete them.
    """

    metadata: TableMetadata
    io: FileIO
    names: str
    begun: list[str] = field(default_factory=list)
    _number: int = 0

    def write(self, rows: pa.Table, mark: str) -> Iterator[Written]:
        """Write data files with these rows, one or more for each partition."""
        rows = self._in_sort_order(fitted(rows, self.metadata.schema()))
        if not rows.num_rows:
            return
        target = property_as_int(self.metadata.properties, "write.target-file-size-bytes", TARGET_BYTES)
        for partition, part in self._partitions(rows):
            for batches in bin_pack_arrow_table(part, target or TARGET_BYTES):
                yield self._write_one(partition, batches, mark)

    def _write_one(self, partition: PartitionKey | None, batches: list[pa.RecordBatch], mark: str) -> Written:
        name = self._name(mark)
        task = _NamedTask(
            write_uuid=uuid.UUID(int=0),
            task_id=0,
            schema=self.metadata.schema(),
            record_batches=batches,
            partition_key=partition,
            name=name,
        )
        self.begun.append(self._location(f"{name}.parquet", partition))
        (file,) = write_file(self.io, self.metadata, iter([task]))
        return Written(
            file.file_path,
            data_file_json(file, self.metadata.spec(), self.metadata.schema()),
            file.file_size_in_bytes,
            pa.Table.from_batches(batches),
        )

    def _partitions(self, rows: pa.Table) -> Iterable[tuple[PartitionKey | None, pa.Table]]:
        spec, schema = self.metadata.spec(), self.metadata.schema()
        if all(isinstance(part.transform, VoidTransform) for part in spec.fields):
            return [(None if not spec.fields else _void_key(spec, schema), rows)]
        found = _determine_partitions(spec, schema, rows)
        return [(part.partition_key, part.arrow_table_partition) for part in found]

    def _in_sort_order(self, rows: pa.Table) -> pa.Table:
        """Sort the rows: PyIceberg writes rows as they come, and its files declare no sort order."""
        by = []
        for part in self.metadata.sort_order().fields:
            column = self.metadata.schema().find_column_name(part.source_id)
            if isinstance(part.transform, BucketTransform | UnknownTransform | VoidTransform):
                break
            if column not in rows.column_names or isinstance(rows.schema.field(column).type, pa.UuidType):
                break
            by.append((column, "ascending" if part.direction.value == "asc" else "descending"))
        return rows.sort_by(by) if by and rows.num_rows > 1 else rows

    # -- position deletes

    def write_deletes(
        self, positions: pa.Table, spec_id: int, partition: Sequence[Any]
    ) -> tuple[str, str, int]:
        """Write position deletes for data files of one partition. Returns path, description and size."""
        path = self.begin("-calve-deletes.parquet")
        table = positions.sort_by([("file_path", "ascending"), ("pos", "ascending")]).cast(POSITIONS)
        codec = self.metadata.properties.get("write.parquet.compression-codec", "zstd")
        codec = {"uncompressed": "none"}.get(codec, codec)
        footers: list[pq.FileMetaData] = []
        output = self.io.new_output(path)
        with (
            output.create() as sink,
            pq.ParquetWriter(sink, POSITIONS, compression=codec, metadata_collector=footers) as writer,
        ):
            writer.write_table(table)
        size = len(output)
        return path, _deletes_json(path, size, table, footers[0], spec_id, partition), size

    def begin(self, end: str) -> str:
        """Return the path of a new delete file whose name has this ending."""
        path = self._location(self._name(end), None)
        self.begun.append(path)
        return path

    def _name(self, mark: str) -> str:
        self._number += 1
        return f"{self.names}-{self._number:05d}{mark}"

    def _location(self, name: str, partition: PartitionKey | None) -> str:
        provider = load_location_provider(self.metadata.location, self.metadata.properties)
        return provider.new_data_location(name, partition)


def _void_key(spec: PartitionSpec, schema: Schema) -> PartitionKey:
    from pyiceberg.partitioning import PartitionFieldValue

    return PartitionKey([PartitionFieldValue(part, None) for part in spec.fields], spec, schema)


# -- descriptions


def data_file_json(file: DataFile, spec: PartitionSpec, schema: Schema) -> str:
    """Return the description of a data file in the JSON of the REST specification."""
    given: dict[str, Any] = {
        "content": "data",
        "file-path": file.file_path,
        "file-format": "parquet",
        "spec-id": spec.spec_id,
        "partition": partition_json(file, spec, schema),
        "record-count": file.record_count,
        "file-size-in-bytes": file.file_size_in_bytes,
        "split-offsets": file.split_offsets,
    }
    for attribute, name in _MAPS.items():
        given[name] = _json_map(getattr(file, attribute))
    for name, bounds in (("lower-bounds", file.lower_bounds), ("upper-bounds", file.upper_bounds)):
        given[name] = _json_map({number: value.hex() for number, value in (bounds or {}).items()})
    return json.dumps({name: value for name, value in given.items() if value is not None})


def partition_json(file: DataFile, spec: PartitionSpec, schema: Schema) -> list[Any]:
    types = spec.partition_type(schema).fields
    return [_single_value(types[n].field_type, file.partition[n]) for n in range(len(types))]


def _single_value(type_: IcebergType, value: Any) -> Any:
    if value is None:
        return None
    assert isinstance(type_, PrimitiveType)
    return to_json(
        type_, uuid.UUID(bytes=value) if isinstance(value, bytes) and isinstance(type_, UUIDType) else value
    )


def _json_map(values: Mapping[int, Any] | None) -> dict[str, list[Any]] | None:
    if not values:
        return None
    return {"keys": list(values), "values": list(values.values())}


def _deletes_json(
    path: str, size: int, table: pa.Table, footer: pq.FileMetaData, spec_id: int, partition: Sequence[Any]
) -> str:
    count = table.num_rows
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    sizes = [sum(group.column(index).total_compressed_size for group in groups) for index in (0, 1)]
    paths, ends = table.column("file_path"), pc.min_max(table.column("pos"))
    first, last = paths[0].as_py(), paths[-1].as_py()
    lower = {FILE_PATH_ID: first.encode().hex(), POS_ID: _long(ends["min"].as_py())}
    upper = {FILE_PATH_ID: last.encode().hex(), POS_ID: _long(ends["max"].as_py())}
    given = {
        "content": "position-deletes",
        "file-path": path,
        "file-format": "parquet",
        "spec-id": spec_id,
        "partition": list(partition),
        "record-count": count,
        "file-size-in-bytes": size,
        "column-sizes": _json_map({FILE_PATH_ID: sizes[0], POS_ID: sizes[1]}),
        "value-counts": _json_map({FILE_PATH_ID: count, POS_ID: count}),
        "null-value-counts": _json_map({FILE_PATH_ID: 0, POS_ID: 0}),
        "lower-bounds": _json_map(lower),
        "upper-bounds": _json_map(upper),
    }
    if first == last:
        given["referenced-data-file"] = first
    return json.dumps(given)


def _long(value: int) -> str:
    return value.to_bytes(8, "little", signed=True).hex()
