"""Results as bytes: JSON objects, compact JSON, NDJSON, CSV, an Arrow stream, Parquet.

A format writes Arrow batches as they come, so a result is never whole in memory. Values keep their exact value:
decimals, 128-bit integers, times and timestamps become text in JSON, in ISO 8601; binary becomes base64;
NaN and the infinities, which JSON lacks, become text too.
"""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

MEDIA_TYPES = {
    "json": "application/json",
    "compact": "application/json",
    "ndjson": "application/x-ndjson",
    "csv": "text/csv; charset=utf-8",
    "arrow": "application/vnd.apache.arrow.stream",
    "parquet": "application/vnd.apache.parquet",
}
FORMATS = tuple(MEDIA_TYPES)


class Format(Protocol):
    """Turns a schema and its batches into pieces of the response body."""

    def head(self) -> bytes: ...
    def rows(self, batch: pa.RecordBatch) -> bytes: ...
    def tail(self, summary: dict[str, Any]) -> bytes: ...


def writer(name: str, schema: pa.Schema, types: list[str]) -> Format:
    """The format of that name. `types` are the SQL types of the columns."""
    if name in ("json", "compact"):
        return _Json(schema, types, as_objects=name == "json")
    if name == "ndjson":
        return _NdJson(schema, types)
    if name == "csv":
        return _Csv(schema)
    return _Stream(schema) if name == "arrow" else _Parquet(schema)


def columns(schema: pa.Schema, types: list[str]) -> list[dict[str, str]]:
    return [{"name": field.name, "type": type_} for field, type_ in zip(schema, types, strict=True)]


class _Json:
    """{"columns": [...], "rows": [...], and the members of the summary}."""

    def __init__(self, schema: pa.Schema, types: list[str], *, as_objects: bool) -> None:
        self._columns = columns(schema, types)
        self._names = unique_names(schema.names)
        self._as_objects = as_objects
        self._is_first = True

    def head(self) -> bytes:
        return b'{"columns":' + orjson.dumps(self._columns) + b',"rows":['

    def rows(self, batch: pa.RecordBatch) -> bytes:
        values = list(row_values(batch))
        found = [dict(zip(self._names, row, strict=True)) for row in values] if self._as_objects else values
        text = orjson.dumps(found)[1:-1]
        if not text:
            return b""
        comma = b"" if self._is_first else b","
        self._is_first = False
        return comma + text

    def tail(self, summary: dict[str, Any]) -> bytes:
        return b"]," + orjson.dumps(summary)[1:] + b"\n"


class _NdJson:
    """One object a line; the last line is {"summary": ...}."""

    def __init__(self, schema: pa.Schema, types: list[str]) -> None:
        self._names = unique_names(schema.names)
        self._columns = columns(schema, types)

    def head(self) -> bytes:
        return b""

    def rows(self, batch: pa.RecordBatch) -> bytes:
        names = self._names
        return b"".join(orjson.dumps(dict(zip(names, row, strict=True))) + b"\n" for row in row_values(batch))

    def tail(self, summary: dict[str, Any]) -> bytes:
        return orjson.dumps({"summary": {"columns": self._columns} | summary}) + b"\n"


class _Csv:
    """RFC 4180 with a header line. Null is an empty field, an empty text is quoted."""

    def __init__(self, schema: pa.Schema) -> None:
        self._names = schema.names

    def head(self) -> bytes:
        return b",".join(_quoted(name) for name in self._names) + b"\r\n"

    def rows(self, batch: pa.RecordBatch) -> bytes:
        lines = [b",".join(_csv_value(value) for value in row) for row in row_values(batch)]
        return b"".join(line + b"\r\n" for line in lines)

    def tail(self, summary: dict[str, Any]) -> bytes:
        return b""


class _Stream:
    """Arrow's IPC stream, as pyarrow, polars and DuckDB read it."""

    def __init__(self, schema: pa.Schema) -> None:
        self._sink = io.BytesIO()
        self._writer = pa.ipc.new_stream(self._sink, schema)

    def head(self) -> bytes:
        return self._taken()

    def rows(self, batch: pa.RecordBatch) -> bytes:
        self._writer.write_batch(batch)
        return self._taken()

    def tail(self, summary: dict[str, Any]) -> bytes:
        self._writer.close()
        return self._taken()

    def _taken(self) -> bytes:
        return _take(self._sink)


class _Parquet:
    """One Parquet file; each batch is a row group."""

    def __init__(self, schema: pa.Schema) -> None:
        self._sink = _Offset()
        self._writer = pyarrow.parquet.ParquetWriter(self._sink, schema, compression="zstd")

    def head(self) -> bytes:
        return self._sink.taken()

    def rows(self, batch: pa.RecordBatch) -> bytes:
        self._writer.write_batch(batch)
        return self._sink.taken()

    def tail(self, summary: dict[str, Any]) -> bytes:
        self._writer.close()
        return self._sink.taken()


class _Offset(io.RawIOBase):
    """A sink that gives away what was written, and still knows how much that was."""

    def __init__(self) -> None:
        super().__init__()
        self._buffer = io.BytesIO()
        self._position = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def write(self, data: Any) -> int:
        count = self._buffer.write(data)
        self._position += count
        return count

    def taken(self) -> bytes:
        return _take(self._buffer)


def _take(sink: io.BytesIO) -> bytes:
    data = sink.getvalue()
    sink.seek(0)
    sink.truncate()
    return data


def unique_names(names: list[str]) -> list[str]:
    """An object has each name once: a second `id` becomes `id_1`."""
    taken: set[str] = set()
    found = []
    for name in names:
        unique, number = name, 0
        while unique in taken or (number and unique in names):
            number += 1
            unique = f"{name}_{number}"
        taken.add(unique)
        found.append(unique)
    return found


def row_values(batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    """The rows as values that JSON can hold exactly."""
    if batch.num_columns == 0:
        return iter([()] * batch.num_rows)
    return zip(*(_column(array) for array in batch.columns), strict=True)


def _column(array: pa.Array) -> list[Any]:
    """Whole columns are converted at once where Arrow can; nested values one by one."""
    type_ = array.type
    if isinstance(type_, pa.BaseExtensionType):
        array, type_ = array.storage, array.storage.type
    if pa.types.is_decimal(type_):
        return array.cast(pa.string()).to_pylist()  # type: ignore[no-any-return]
    if pa.types.is_timestamp(type_):
        return _timestamps(array)
    if pa.types.is_date(type_) or pa.types.is_time(type_):
        return array.cast(pa.string()).to_pylist()  # type: ignore[no-any-return]
    if pa.types.is_floating(type_):
        return [_float(value) for value in array.to_pylist()]
    if _is_plain(type_):
        return array.to_pylist()  # type: ignore[no-any-return]
    convert = _converter(type_)
    return [None if value is None else convert(value) for value in _scalars(array)]


def _is_plain(type_: pa.DataType) -> bool:
    is_text = pa.types.is_string(type_) or pa.types.is_large_string(type_)
    return is_text or pa.types.is_boolean(type_) or pa.types.is_integer(type_) or pa.types.is_null(type_)


def _scalars(array: pa.Array) -> list[Any]:
    return [scalar if scalar.is_valid else None for scalar in array]


def _timestamps(array: pa.Array) -> list[Any]:
    """Arrow counts in UTC, so no time zone has to be looked up."""
    is_zoned = array.type.tz is not None
    texts = array.cast(pa.int64()).cast(pa.timestamp(array.type.unit)).cast(pa.string())
    texts = pc.replace_substring(texts, " ", "T", max_replacements=1)
    if is_zoned:
        texts = pc.binary_join_element_wise(texts, pa.scalar("Z"), "")
    return texts.to_pylist()  # type: ignore[no-any-return]


def _float(value: float | None) -> float | str | None:
    if value is None or math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _converter(type_: pa.DataType) -> Callable[[Any], Any]:
    """For one value of a nested or rare type, as an Arrow scalar."""
    if pa.types.is_binary(type_) or pa.types.is_large_binary(type_) or pa.types.is_fixed_size_binary(type_):
        return lambda scalar: base64.b64encode(scalar.as_py()).decode()
    if pa.types.is_map(type_):
        return lambda scalar: [
            {"key": key, "value": value}
            for key, value in zip(
                _column(scalar.values.field(0)), _column(scalar.values.field(1)), strict=True
            )
        ]
    if pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_):
        return lambda scalar: _column(scalar.values)
    if pa.types.is_struct(type_):
        names = [type_.field(index).name for index in range(type_.num_fields)]
        return lambda scalar: {name: _value(scalar[index]) for index, name in enumerate(names)}
    if pa.types.is_dictionary(type_):
        return lambda scalar: _value(scalar.value)
    return lambda scalar: str(scalar.as_py())


def _value(scalar: Any) -> Any:
    return _column(pa.array([scalar.as_py()], scalar.type))[0] if scalar.is_valid else None


def _csv_value(value: Any) -> bytes:
    if value is None:
        return b""
    if isinstance(value, bool):
        return b"true" if value else b"false"
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, int):
        return str(value).encode()
    if isinstance(value, float):
        return repr(value).encode()
    return _quoted(orjson.dumps(value).decode())


def _quoted(text: str) -> bytes:
    if text and not any(character in text for character in ',"\r\n'):
        return text.encode()
    return b'"' + text.replace('"', '""').encode() + b'"'
