"""Which tables the driver can write files of by itself, and what their Parquet columns are. Pure.

Tables of format version 2 whose columns are all plain, in one partition: all rows of a batch go into one
file. Everything else (nested columns, uuid, fixed, partitions by value, format version 3 with its deletion
vectors) is left to Spark.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

_TYPES = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", tz="UTC"),
    "string": pa.string(),
    "binary": pa.binary(),
}
_DECIMAL = re.compile(r"decimal\((\d+), ?(\d+)\)")
_PLAIN_NAME = re.compile(r"\w+", re.ASCII)
FIELD_ID = b"PARQUET:field_id"

# Of a file of position deletes, by the spec.
POSITIONS = pa.schema(
    [
        pa.field("file_path", pa.string(), nullable=False, metadata={FIELD_ID: b"2147483546"}),
        pa.field("pos", pa.int64(), nullable=False, metadata={FIELD_ID: b"2147483545"}),
    ]
)


@dataclass(frozen=True, slots=True)
class FileSchema:
    columns: pa.Schema  # with the ids of the table's fields
    day_partition: str | None  # the name of the partition field, where rows are kept by day of their commit

    def partition_path(self, commit_us: int) -> str:
        """`field=value`; "" where there are no partitions."""
        if self.day_partition is None:
            return ""
        day = dt.date(1970, 1, 1) + dt.timedelta(days=commit_us // 86_400_000_000)
        return f"{self.day_partition}={day.isoformat()}"

    def fitted(self, rows: pa.Table) -> pa.Table | None:
        """The rows as the file holds them; None if they do not fit as they are: Spark then says why."""
        given = dict(zip(rows.column_names, rows.columns, strict=True))
        if not given.keys() <= set(self.columns.names) or len(given) != rows.num_columns:
            return None
        columns = []
        for field in self.columns:
            column = given.get(field.name)
            if column is None:
                column = pa.nulls(rows.num_rows, field.type)
            if not field.nullable and column.null_count:
                return None
            try:
                columns.append(column.cast(field.type))
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                return None
        return pa.table(columns, schema=self.columns)


def file_schema(metadata: Mapping[str, Any], commit_timestamp: str) -> FileSchema | None:
    """None if Spark has to write the files of this table."""
    if metadata.get("format-version") != 2 or metadata.get("default-sort-order-id", 0) != 0:
        return None
    schema = next(s for s in metadata["schemas"] if s["schema-id"] == metadata["current-schema-id"])
    fields = [_field(field) for field in schema["fields"]]
    if any(field is None for field in fields):
        return None
    spec = next(s for s in metadata["partition-specs"] if s["spec-id"] == metadata["default-spec-id"])
    if not spec["fields"]:
        return FileSchema(pa.schema(fields), None)
    (part, *others) = spec["fields"]
    of = next((field["name"] for field in schema["fields"] if field["id"] == part["source-id"]), None)
    if (
        others
        or part["transform"] != "day"
        or of != commit_timestamp
        or not _PLAIN_NAME.fullmatch(part["name"])
    ):
        return None
    return FileSchema(pa.schema(fields), part["name"])


def _field(field: Mapping[str, Any]) -> pa.Field | None:
    type_ = _arrow_type(field["type"])
    if type_ is None:
        return None
    ids = {FIELD_ID: str(field["id"]).encode()}
    return pa.field(field["name"], type_, nullable=not field["required"], metadata=ids)


def _arrow_type(type_: Any) -> pa.DataType | None:
    if not isinstance(type_, str):
        return None
    decimal = _DECIMAL.fullmatch(type_)
    return pa.decimal128(int(decimal[1]), int(decimal[2])) if decimal else _TYPES.get(type_)
