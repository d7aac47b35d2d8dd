"""One column of an Avro file: all codecs, types that Iceberg allows, and files that are out to do harm."""

from __future__ import annotations

import contextlib
import io
import json
import zlib
from typing import Any

import fastavro
import pyarrow as pa
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from catalog.storage.avro import NotAvro, strings

FILE_PATH = ("data_file", "file_path")
SYNC = b"0123456789abcdef"


def schema(*partition: dict[str, Any]) -> dict[str, Any]:
    """A manifest's schema, cut down to the kinds of fields that it has."""
    counts = {
        "type": "record",
        "name": "k117_v118",
        "fields": [_field("key", "int"), _field("value", "long")],
    }
    fields = [
        _field("content", "int"),
        _field("file_path", "string"),
        _field("partition", {"type": "record", "name": "r102", "fields": list(partition)}),
        _field("value_counts", ["null", {"type": "array", "items": counts, "logicalType": "map"}]),
        _field("split_offsets", ["null", {"type": "array", "items": "long"}]),
    ]
    data_file = {"type": "record", "name": "r2", "fields": fields}
    return {
        "type": "record",
        "name": "manifest_entry",
        "fields": [_field("status", "int"), _field("data_file", data_file)],
    }


def _field(name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": kind}


def entry(path: str, **partition: Any) -> dict[str, Any]:
    return {
        "status": 1,
        "data_file": {
            "content": 0,
            "file_path": path,
            "partition": partition,
            "value_counts": [{"key": 1, "value": 10}, {"key": 2, "value": -10}],
            "split_offsets": [4, 1_000],
        },
    }


def written(kind: dict[str, Any], entries: list[dict[str, Any]], **options: Any) -> bytes:
    file = io.BytesIO()
    fastavro.writer(file, kind, entries, **options)
    return file.getvalue()


def container(kind: Any, codec: str | None, *blocks: tuple[int, bytes]) -> bytes:
    """An Avro file by hand, so that it can say anything."""
    meta = {"avro.schema": json.dumps(kind).encode()} | ({"avro.codec": codec.encode()} if codec else {})
    head = _long(len(meta)) + b"".join(_bytes(name.encode()) + _bytes(value) for name, value in meta.items())
    body = b"".join(_long(count) + _bytes(data) + SYNC for count, data in blocks)
    return b"Obj\x01" + head + _long(0) + SYNC + body


def _long(number: int) -> bytes:
    rest, out = (number << 1) ^ (number >> 63), bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*out, rest])


def _bytes(data: bytes) -> bytes:
    return _long(len(data)) + data


def _block(count: int) -> bytes:
    """`count` records of `schema()`, as a block holds them."""
    file = io.BytesIO()
    for number in range(count):
        fastavro.schemaless_writer(file, schema(), entry(f"s3://b/{number}"))
    return file.getvalue()


PATHS = [f"s3://bucket/t/data/{number}.parquet" for number in range(1_000)]


@pytest.mark.parametrize("codec", ["null", "deflate"])
@pytest.mark.parametrize("sync_interval", [100, 1_000_000])
def test_every_record_of_every_block(codec: str, sync_interval: int) -> None:
    entries = [entry(path) for path in PATHS]
    data = written(schema(), entries, codec=codec, sync_interval=sync_interval)
    assert list(strings(data, FILE_PATH)) == PATHS


@pytest.mark.parametrize("sized", [True, False], ids=["with its size", "streamed"])
def test_zstandard(sized: bool) -> None:
    pack = zstandard.ZstdCompressor(write_content_size=sized).compress
    data = container(schema(), "zstandard", (2, pack(_block(2))), (1, pack(_block(1))))
    assert list(strings(data, FILE_PATH)) == ["s3://b/0", "s3://b/1", "s3://b/0"]


def test_snappy() -> None:
    block = _block(3)
    packed = pa.compress(block, codec="snappy", asbytes=True)
    good = container(schema(), "snappy", (3, packed + zlib.crc32(block).to_bytes(4, "big")))
    assert list(strings(good, FILE_PATH)) == ["s3://b/0", "s3://b/1", "s3://b/2"]
    with pytest.raises(NotAvro, match="checksum"):
        list(strings(container(schema(), "snappy", (3, packed + b"\0\0\0\0")), FILE_PATH))


def test_no_codec_means_none_was_used() -> None:
    assert list(strings(container(schema(), None, (1, _block(1))), FILE_PATH)) == ["s3://b/0"]


def test_no_records() -> None:
    assert list(strings(written(schema(), []), FILE_PATH)) == []
    assert list(strings(container(schema(), "null", (0, b"")), FILE_PATH)) == []


def test_partition_types_that_others_do_not_know() -> None:
    uuid_type = {"type": "fixed", "name": "uuid_fixed", "size": 16, "logicalType": "uuid"}
    nanos = {"type": "long", "logicalType": "timestamp-nanos", "adjust-to-utc": True}
    invented = {"type": "bytes", "logicalType": "of-next-year"}
    again = ["null", "uuid_fixed"]  # the second use of a named type is a reference to it
    kind = schema(_field("a", uuid_type), _field("b", again), _field("c", nanos), _field("d", invented))
    data = written(kind, [entry("s3://b/x", a=bytes(16), b=bytes(16), c=1, d=b"?")])
    assert list(strings(data, FILE_PATH)) == ["s3://b/x"]


@pytest.mark.parametrize("codec", ["deflate", "zstandard", "snappy"])
def test_a_block_is_inflated_up_to_the_limit(codec: str) -> None:
    huge = bytes(50_000_000)
    packed = {
        "deflate": zlib.compress(huge, wbits=-15),
        "zstandard": zstandard.ZstdCompressor().compress(huge),
        "snappy": pa.compress(huge, codec="snappy", asbytes=True) + b"\0\0\0\0",
    }[codec]
    with pytest.raises(NotAvro, match="larger than 1000000 bytes"):
        list(strings(container(schema(), codec, (1, packed)), FILE_PATH, block_bytes_max=1_000_000))


def test_a_count_without_records() -> None:
    with pytest.raises(NotAvro, match="more records than it has bytes"):
        list(strings(container(schema(), "null", (1 << 60, b"")), FILE_PATH))


@pytest.mark.parametrize(
    "items",
    [
        "null",
        {"type": "null"},
        {"type": "record", "name": "e", "fields": []},
        {"type": "fixed", "name": "f", "size": 0},
    ],
    ids=["null", "wrapped null", "empty record", "empty fixed"],
)
def test_an_endless_array_is_refused(items: Any) -> None:
    kind = schema(_field("evil", {"type": "array", "items": items}))
    with pytest.raises(NotAvro, match="have no size"):
        list(strings(container(kind, "null", (1, _long(1 << 60) * 40)), FILE_PATH))


def test_a_record_inside_itself_is_refused() -> None:
    kind = schema(_field("evil", ["null", "r102"]))
    with pytest.raises(NotAvro, match="r102"):
        list(strings(container(kind, "null", (1, b"\2" * 1_000_000)), FILE_PATH))


@pytest.mark.parametrize("depth", [900, 100_000])
def test_a_schema_nested_without_end_is_refused(depth: int) -> None:
    arrays = '{"type": "array", "items": ' * depth + '"int"' + "}" * depth
    plain = json.dumps(schema(_field("evil", "boolean")))
    data = container(schema(_field("evil", "boolean")), "null", (1, b"\2" * 10_000))
    data = data.replace(_bytes(plain.encode()), _bytes(plain.replace('"boolean"', arrays).encode()))
    with pytest.raises(NotAvro):
        list(strings(data, FILE_PATH))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"PK\x03\x04 not avro",
        b"AGS1 encrypted",
        b"Obj\x01",
        b"Obj\x01" + b"\xff" * 20,
        container("string", "null"),
        container({"type": "record", "name": "other", "fields": []}, "null"),
        container(schema(), "lzo", (1, b"data")),
        container(schema(), "deflate", (1, b"not deflated")),
        container(schema(), "zstandard", (1, b"not packed")),
        container(schema(), "snappy", (1, b"not")),
        container(schema(), "null", (3, _block(3)[:-9])),
        container(schema(), "null", (1, _block(1)))[:-1] + b"!",
        container(schema(), "null", (-1, _block(1))),
    ],
)
def test_what_is_not_avro(data: bytes) -> None:
    with pytest.raises(NotAvro):
        list(strings(data, FILE_PATH))


GOOD = written(schema(), [entry(path) for path in PATHS[:20]], codec="null")


@given(st.data())
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_damaged_file_gives_strings_or_not_avro(data: st.DataObject) -> None:
    damaged = bytearray(GOOD)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(GOOD) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(GOOD)))
    with contextlib.suppress(NotAvro):
        assert all(isinstance(path, str) for path in strings(bytes(damaged[:cut]), FILE_PATH))
