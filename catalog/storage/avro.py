"""Read one column of an Avro file from untrusted bytes.

    for path in strings(data, ("data_file", "file_path")): ...

fastavro decodes the values, because it accepts any schema: PyIceberg's reader refuses manifests with
partition types that it does not know, such as nanosecond timestamps. This module reads the container itself,
because a small file can expand there: blocks are inflated up to a limit, the number of records is checked
against the number of bytes, and schemas are refused that allow items of zero size (an endless array in five
bytes) or recursive records.

All errors in the data raise `NotAvro`.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import fastavro
import orjson
import zstandard

BLOCK_BYTES_MAX = 256 * 1024 * 1024
_MAGIC = b"Obj\x01"
_SYNC_BYTES = 16
_CHECKSUM_BYTES = 4
_VARINT_BYTES_MAX = 10
_DELETED = 2  # the status of a manifest entry
_SIZED = frozenset(("boolean", "int", "long", "float", "double", "bytes", "string"))
_ITEMS = {"array": "items", "map": "values"}

Schema = Any  # a name, a list (union) or a dict, as parsed from JSON


class NotAvro(ValueError):
    """Not an Avro file, damaged, or not a file that a writer of Iceberg would produce."""


def strings(
    data: bytes, path: tuple[str, ...], *, block_bytes_max: int = BLOCK_BYTES_MAX, live_only: bool = False
) -> Iterator[str]:
    """The string at `path` of every record. With `live_only`, entries of a manifest that are marked deleted
    are left out.
    """
    cursor = _Cursor(data)
    meta = _header(cursor)
    sync = cursor.take(_SYNC_BYTES)
    try:
        schema = orjson.loads(meta.get("avro.schema", b""))
        _may_be_empty(schema, set())
        writer, reader = (
            fastavro.parse_schema(schema),
            fastavro.parse_schema(_pruned(schema, path, live_only)),
        )
    except (ValueError, KeyError, TypeError, RecursionError, fastavro.schema.SchemaParseException) as error:
        raise NotAvro(f"the schema cannot be read: {error}") from error
    codec = meta.get("avro.codec", b"null").decode(errors="replace")
    while not cursor.at_end:
        count = cursor.long()
        block = _inflated(codec, cursor.take(cursor.long()), block_bytes_max)
        if cursor.take(_SYNC_BYTES) != sync:
            raise NotAvro("a block does not end with the file's marker")
        if not 0 <= count <= len(block):
            raise NotAvro("a block counts more records than it has bytes")
        yield from _decoded(block, count, writer, reader, path, live_only)


def _decoded(
    block: bytes, count: int, writer: Schema, reader: Schema, path: tuple[str, ...], live_only: bool
) -> Iterator[str]:
    stream = io.BytesIO(block)
    for _ in range(count):
        try:
            value: Any = fastavro.schemaless_reader(stream, writer, reader)
            if live_only and value["status"] == _DELETED:
                continue
            for name in path:
                value = value[name]
        except (ArithmeticError, EOFError, LookupError, MemoryError, TypeError, ValueError) as error:
            raise NotAvro(f"a record cannot be read: {error}") from error
        if not isinstance(value, str):
            raise NotAvro(f"{'.'.join(path)} is not a string")
        yield value


class _Cursor:
    """Reads forward through bytes, never beyond their end."""

    def __init__(self, data: bytes) -> None:
        self._data = memoryview(data)
        self._at = 0

    @property
    def at_end(self) -> bool:
        return self._at == len(self._data)

    def take(self, size: int) -> memoryview:
        end = self._at + size
        if size < 0 or end > len(self._data):
            raise NotAvro("the file ends too early")
        chunk = self._data[self._at : end]
        self._at = end
        return chunk

    def long(self) -> int:
        """A zigzag variable-length integer."""
        value = 0
        for shift in range(0, 7 * _VARINT_BYTES_MAX, 7):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if not byte & 0x80:
                return (value >> 1) ^ -(value & 1)
        raise NotAvro("a number is too long")

    def bytes(self) -> bytes:
        return bytes(self.take(self.long()))


def _header(cursor: _Cursor) -> Mapping[str, bytes]:
    if cursor.take(len(_MAGIC)) != _MAGIC:
        raise NotAvro("the file does not begin as Avro does")
    meta: dict[str, bytes] = {}
    while count := cursor.long():
        if count < 0:  # its size in bytes follows
            count = -count
            cursor.long()
        for _ in range(count):
            name = cursor.bytes().decode(errors="replace")
            meta[name] = cursor.bytes()
    return meta


def _inflated(codec: str, block: memoryview, bytes_max: int) -> bytes:
    try:
        if codec == "null":
            return bytes(block)
        if codec == "deflate":
            inflated = zlib.decompressobj(-zlib.MAX_WBITS).decompress(block, bytes_max + 1)
        elif codec == "zstandard":
            with zstandard.ZstdDecompressor().stream_reader(block) as stream:
                inflated = stream.read(bytes_max + 1)
        elif codec == "snappy":
            inflated = _decompress_snappy(block, bytes_max)
        else:
            raise NotAvro(f"the codec {codec} is not one of Iceberg's")
    except (zlib.error, zstandard.ZstdError, OSError) as error:
        raise NotAvro(f"a block cannot be inflated: {error}") from error
    if len(inflated) > bytes_max:
        raise NotAvro(f"a block is larger than {bytes_max} bytes")
    return inflated


def _decompress_snappy(block: memoryview, bytes_max: int) -> bytes:
    # pyarrow is slow to import, and engines use snappy for manifests only if configured to.
    import pyarrow

    if len(block) <= _CHECKSUM_BYTES:
        raise NotAvro("a block is too short")
    size = _plain_varint(block)
    if size > bytes_max:
        raise NotAvro(f"a block is larger than {bytes_max} bytes")
    inflated: bytes = pyarrow.decompress(
        bytes(block[:-_CHECKSUM_BYTES]), decompressed_size=size, codec="snappy", asbytes=True
    )
    if zlib.crc32(inflated).to_bytes(_CHECKSUM_BYTES, "big") != block[-_CHECKSUM_BYTES:]:
        raise NotAvro("a block does not fit its checksum")
    return inflated


def _plain_varint(block: memoryview) -> int:
    value = 0
    for index, byte in enumerate(block[:5]):
        value |= (byte & 0x7F) << (7 * index)
        if not byte & 0x80:
            break
    return value


def _pruned(schema: Schema, path: tuple[str, ...], with_status: bool) -> Schema:
    """The schema of the record reduced to `path`, so that the decoder skips the other fields."""
    name, rest = path[0], path[1:]
    (field,) = (field for field in schema["fields"] if field["name"] == name)
    kept = {**field, "type": _pruned(field["type"], rest, with_status=False)} if rest else field
    status = [field for field in schema["fields"] if field["name"] == "status"] if with_status else []
    return {**schema, "fields": [*status, kept]}


def _may_be_empty(schema: Schema, named: set[str]) -> bool:
    """Whether a value of this type may take zero bytes. Raises NotAvro for types that could decode without
    end.

    `named` collects the types that later parts may refer to by name. It contains no records: Iceberg never
    repeats a record type, and the data of a recursive record would determine the depth of the decoder.
    """
    if isinstance(schema, str):
        if schema != "null" and schema not in _SIZED and schema not in named:
            raise NotAvro(f"the type {schema} is not one of Iceberg's")
        return schema == "null"
    if isinstance(schema, list):
        for branch in schema:
            _may_be_empty(branch, named)
        return False  # a union stores the index of its branch first
    kind = schema["type"]
    if kind == "record":
        # A list, because every field has to be checked.
        return all([_may_be_empty(field["type"], named) for field in schema["fields"]])  # noqa: C419
    if kind in _ITEMS:
        if _may_be_empty(schema[_ITEMS[kind]], named):
            raise NotAvro(f"the items of an {kind} have no size")
        return False
    if kind == "fixed":
        named.add(schema["name"])
        return int(schema["size"]) == 0
    return _may_be_empty(kind, named)
