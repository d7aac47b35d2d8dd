"""Write results as bytes: JSON objects, compact JSON, NDJSON, CSV, an Arrow stream, Parquet.

A format writes Arrow batches as they arrive, so a result is never in memory as a whole. Values are exact: in
JSON and CSV, decimals become text; dates, times, timestamps and intervals become text in ISO 8601; binary
becomes base64; NaN and the infinities, which JSON lacks, become text too.
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
import pyarrow.parquet


class Format(Protocol):
    """Converts a schema and its batches to pieces of the response body."""

    def head(self) -> bytes: ...
    def rows(self, batch: pa.RecordBatch) -> bytes: ...
    def tail(self, summary: dict[str, Any]) -> bytes: ...


def writer(name: str, schema: pa.Schema, types: list[str]) -> Format:
    """Return the format with this name. `types` are the SQL types of the columns."""
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
        self._huge = huge_integers(types)
        self._is_first = True

    def head(self) -> bytes:
        return b'{"columns":' + orjson.dumps(self._columns) + b',"rows":['

    def rows(self, batch: pa.RecordBatch) -> bytes:
        found: list[Any] = list(row_values(batch, self._huge))
        if self._as_objects:
            found = [dict(zip(self._names, row, strict=True)) for row in found]
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
        self._huge = huge_integers(types)

    def head(self) -> bytes:
        return b""

    def rows(self, batch: pa.RecordBatch) -> bytes:
        names = self._names
        rows = row_values(batch, self._huge)
        return b"".join(orjson.dumps(dict(zip(names, row, strict=True))) + b"\n" for row in rows)

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
        return self._drain()

    def rows(self, batch: pa.RecordBatch) -> bytes:
        self._writer.write_batch(batch)
        return self._drain()

    def tail(self, summary: dict[str, Any]) -> bytes:
        self._writer.close()
        return self._drain()

    def _drain(self) -> bytes:
        return _take(self._sink)


class _Parquet:
    """One Parquet file; each batch is a row group. Parquet has no intervals: they become text."""

    def __init__(self, schema: pa.Schema) -> None:
        self._sink = _Offset()
        self._as_text = {index for index, field in enumerate(schema) if _has_interval(field.type)}
        fields = [
            pa.field(field.name, pa.string()) if index in self._as_text else field
            for index, field in enumerate(schema)
        ]
        self._schema = pa.schema(fields)
        self._writer = pyarrow.parquet.ParquetWriter(self._sink, self._schema, compression="zstd")

    def head(self) -> bytes:
        return self._sink.drain()

    def rows(self, batch: pa.RecordBatch) -> bytes:
        if self._as_text:
            columns_ = [
                pa.array(map(_as_text, values(array)), pa.string()) if index in self._as_text else array
                for index, array in enumerate(batch.columns)
            ]
            batch = pa.RecordBatch.from_arrays(columns_, schema=self._schema)
        self._writer.write_batch(batch)
        return self._sink.drain()

    def tail(self, summary: dict[str, Any]) -> bytes:
        self._writer.close()
        return self._sink.drain()


def _has_interval(type_: pa.DataType) -> bool:
    inner = (type_.field(index).type for index in range(type_.num_fields))
    return bool(pa.types.is_interval(type_)) or any(map(_has_interval, inner))


def _as_text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else orjson.dumps(value).decode()


class _Offset(io.RawIOBase):
    """A sink from which written bytes can be taken, and which counts all of them."""

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

    def drain(self) -> bytes:
        return _take(self._buffer)


def _take(sink: io.BytesIO) -> bytes:
    data = sink.getvalue()
    sink.seek(0)
    sink.truncate()
    return data


def unique_names(names: list[str]) -> list[str]:
    """Make names unique, as an object needs: a second `id` becomes `id_1`."""
    used: set[str] = set()
    found = []
    for name in names:
        unique, number = name, 0
        while unique in used or (number and unique in names):
            number += 1
            unique = f"{name}_{number}"
        used.add(unique)
        found.append(unique)
    return found


def huge_integers(types: list[str]) -> frozenset[int]:
    """Return the columns of 128-bit integers, such as sums of integers. Arrow has them as decimals."""
    return frozenset(index for index, type_ in enumerate(types) if type_ == "HUGEINT")


def row_values(batch: pa.RecordBatch, huge: frozenset[int] = frozenset()) -> Iterator[tuple[Any, ...]]:
    """Return the rows with values that are exact in JSON. Columns in `huge` become numbers, not text."""
    if batch.num_columns == 0:
        return iter([()] * batch.num_rows)
    found = [values(array) for array in batch.columns]
    for index in huge:
        found[index] = [None if text is None else orjson.Fragment(text) for text in found[index]]
    return zip(*found, strict=True)


def values(array: pa.Array) -> list[Any]:
    """Return the values of a column, each as JSON holds it. Whole columns are converted at once."""
    type_ = array.type
    if isinstance(type_, pa.BaseExtensionType):
        return values(array.storage)
    if pa.types.is_dictionary(type_):
        return values(array.dictionary_decode())
    for is_type, convert in _CONVERTERS:
        if is_type(type_):
            return convert(array)
    return array.to_pylist()  # type: ignore[no-any-return]


def _texts(array: pa.Array) -> list[Any]:
    return array.cast(pa.string()).to_pylist()  # type: ignore[no-any-return]


def _dates(array: pa.Array) -> list[Any]:
    return _with_infinities(array.cast(pa.int32()), _texts(array), INFINITE_DAYS)


def _timestamps(array: pa.Array) -> list[Any]:
    """Convert timestamps. Arrow counts in UTC, so no time zone is looked up."""
    counts = array.cast(pa.int64())
    texts = counts.cast(pa.timestamp(array.type.unit)).cast(pa.string())
    texts = pc.replace_substring(texts, " ", "T", max_replacements=1)
    if array.type.tz is not None:
        texts = pc.binary_join_element_wise(texts, pa.scalar("Z"), "")
    return _with_infinities(counts, texts.to_pylist(), INFINITE_COUNT)


def _with_infinities(counts: pa.Array, texts: list[Any], infinite: int) -> list[Any]:
    """Replace the largest and the smallest count: DuckDB's dates and timestamps at infinity."""
    if not pc.any(pc.greater_equal(pc.abs(counts), infinite)).as_py():
        return texts
    words = {infinite: "infinity", -infinite: "-infinity"}
    return [words.get(count, text) for count, text in zip(counts.to_pylist(), texts, strict=True)]


def _floats(array: pa.Array) -> list[Any]:
    found = array.to_pylist()
    if pc.all(pc.is_finite(array)).as_py() in (True, None):
        return found  # type: ignore[no-any-return]
    return [_float(value) for value in found]


def _float(value: float | None) -> float | str | None:
    if value is None or math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _binaries(array: pa.Array) -> list[Any]:
    return [None if value is None else base64.b64encode(value).decode() for value in array.to_pylist()]


def _intervals(array: pa.Array) -> list[Any]:
    return [None if value is None else duration(*value) for value in array.to_pylist()]


def duration(months: int, days: int, nanoseconds: int) -> str:
    """An interval in ISO 8601. Each part has its own sign, because months, days and seconds do not add up."""
    parts = [f"{months}M"] * bool(months) + [f"{days}D"] * bool(days)
    if nanoseconds or not parts:
        seconds, rest = divmod(abs(nanoseconds), 1_000_000_000)
        fraction = f".{rest:09d}".rstrip("0") if rest else ""
        parts.append(f"T{'-' if nanoseconds < 0 else ''}{seconds}{fraction}S")
    return "P" + "".join(parts)


def _lists(array: pa.Array) -> list[Any]:
    inner, offsets = values(array.values), array.offsets.to_pylist()
    return [
        inner[start:end] if is_valid else None
        for start, end, is_valid in zip(offsets, offsets[1:], array.is_valid().to_pylist(), strict=False)
    ]


def _fixed_lists(array: pa.Array) -> list[Any]:
    inner, size = values(array.values), array.type.list_size
    starts = range(array.offset * size, (array.offset + len(array)) * size, size or 1)
    return [
        inner[start : start + size] if is_valid else None
        for start, is_valid in zip(starts, array.is_valid().to_pylist(), strict=True)
    ]


def _maps(array: pa.Array) -> list[Any]:
    """Return maps as lists of pairs: keys need not be text."""
    keys, items, offsets = values(array.keys), values(array.items), array.offsets.to_pylist()
    return [
        [{"key": keys[index], "value": items[index]} for index in range(start, end)] if is_valid else None
        for start, end, is_valid in zip(offsets, offsets[1:], array.is_valid().to_pylist(), strict=False)
    ]


def _structs(array: pa.Array) -> list[Any]:
    names = [field.name for field in array.type]
    rows = zip(*(values(child) for child in array.flatten()), strict=True) if names else [()] * len(array)
    return [
        dict(zip(names, row, strict=True)) if is_valid else None
        for row, is_valid in zip(rows, array.is_valid().to_pylist(), strict=True)
    ]


INFINITE_COUNT = 2**63 - 1
INFINITE_DAYS = 2**31 - 1
_CONVERTERS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array], list[Any]]], ...] = (
    (pa.types.is_decimal, _texts),
    (pa.types.is_timestamp, _timestamps),
    (pa.types.is_date, _dates),
    (pa.types.is_time, _texts),
    (pa.types.is_floating, _floats),
    (pa.types.is_interval, _intervals),
    (lambda type_: pa.types.is_binary(type_) or pa.types.is_large_binary(type_), _binaries),
    (pa.types.is_fixed_size_binary, _binaries),
    (pa.types.is_map, _maps),
    (lambda type_: pa.types.is_list(type_) or pa.types.is_large_list(type_), _lists),
    (pa.types.is_fixed_size_list, _fixed_lists),
    (pa.types.is_struct, _structs),
)


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
