"""Key files: exact, for keys of every type, and only ever a short cut."""

from __future__ import annotations

import datetime as dt
import os
import random
import resource
import signal
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from spark_jobs.messages import KeyFileSettings
from spark_jobs.tables import key_files
from spark_jobs.tables.key_files import KeyFiles, encode, sorted_keys

Pairs = list[tuple[str, bytes]]
PAIRS = st.lists(st.tuples(st.text(max_size=4), st.binary(max_size=4)), min_size=1, max_size=40)


def _columns(rows: Pairs) -> list[pa.Array]:
    return [pa.array([a for a, _ in rows], pa.string()), pa.array([b for _, b in rows], pa.binary())]


@settings(deadline=None)  # other processes on the machine count too
@given(PAIRS, PAIRS)
@example(there=[("a", b"bc")], wanted=[("ab", b"c")])
def test_composite_keys_are_found_exactly(
    there: list[tuple[str, bytes]], wanted: list[tuple[str, bytes]]
) -> None:
    """Also where the parts of two keys read the same one after the other, and where a key repeats."""
    found, positions = sorted_keys(encode(_columns(there))).find(encode(_columns(wanted)))
    expected = [(n, p) for n, key in enumerate(wanted) for p, other in enumerate(there) if key == other]
    assert sorted(zip(found.to_pylist(), positions.to_pylist(), strict=True)) == expected


@pytest.mark.parametrize(
    ("type_", "values"),
    [
        (pa.int32(), [-(2**31), 0, 2**31 - 1]),
        (pa.int64(), [-(2**63), 0, 2**63 - 1]),
        (pa.date32(), [dt.date(1, 1, 1), dt.date(9999, 12, 31)]),
        (pa.timestamp("us"), [-(2**62), 0, 2**62]),
        (pa.timestamp("us", tz="UTC"), [-(2**62), 0, 2**62]),
        (pa.time64("us"), [0, 1]),
        (pa.string(), ["", "a", "ß€😀", "\x00"]),
        (pa.large_string(), ["", "a"]),
        (pa.binary(), [b"", b"\x00", b"\xff"]),
        (pa.binary(16), [uuid.UUID(int=n).bytes for n in (0, 2**128 - 1)]),
        (pa.decimal128(38, 0), [Decimal(-(10**37)), Decimal(10**38 - 1)]),
        (pa.decimal128(10, 2), [Decimal("-0.01"), Decimal("0.00"), Decimal("1.10")]),
        (pa.bool_(), [False, True]),
    ],
)
def test_keys_of_each_type(type_: pa.DataType, values: list[Any]) -> None:
    keys = pa.array([*values, None], type_)
    for columns in ([keys], [keys, keys]):
        found, positions = sorted_keys(encode(columns)).find(
            encode([c.slice(0, len(values)) for c in columns])
        )
        assert sorted(zip(found.to_pylist(), positions.to_pylist(), strict=True)) == [
            (n, n) for n in range(len(values))
        ]


def test_a_key_file_is_made_once_and_again_when_it_is_gone(tmp_path: Path) -> None:
    files, made = KeyFiles(KeyFileSettings(folder=str(tmp_path))), []

    def make() -> pa.Array:
        made.append(1)
        return pa.array([3, 1, 2], pa.int64())

    for _ in range(3):
        keys = files.get("file:///a.parquet", "1 long", make)
        assert (keys.keys.to_pylist(), keys.positions.to_pylist()) == ([1, 2, 3], [1, 2, 0])
    assert len(made) == 1
    files.get("file:///a.parquet", "2 long", make)
    assert len(made) == 2, "another key is another file"
    for path in tmp_path.iterdir():
        path.unlink()
    assert files.get("file:///a.parquet", "1 long", make).find(pa.array([2], pa.int64()))[1].to_pylist() == [
        2
    ]
    assert len(made) == 3


def test_the_least_recently_used_go_first(tmp_path: Path) -> None:
    files = KeyFiles(KeyFileSettings(folder=str(tmp_path), bytes_max=10_000))
    keys = pa.array(range(100), pa.int64())  # about 2 KB
    for number in range(3):
        files.put(f"{number}", "k", keys)
    for number, path in enumerate(sorted(tmp_path.iterdir(), key=lambda p: p.stat().st_mtime_ns)):
        os.utime(path, (number, number))
    files.get("0", "k", lambda: pytest.fail("it is there"))
    for number in range(3, 6):
        files.put(f"{number}", "k", keys)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 10_000
    files.get("0", "k", lambda: pytest.fail("it was used last"))


def test_their_number_is_bounded_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_files, "FILES_MAX", 20)
    files = KeyFiles(KeyFileSettings(folder=str(tmp_path)))
    for number in range(200):
        files.put(f"{number}", "k", pa.array([number], pa.int64()))
    assert len(list(tmp_path.iterdir())) < 20 + key_files.LOOK_EVERY


def test_the_folder_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uid = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: uid + 1)
    with pytest.raises(PermissionError, match="belongs to another user"):
        KeyFiles(KeyFileSettings(folder=str(tmp_path)))


def test_a_file_that_is_deleted_while_it_is_mapped_stays_readable(tmp_path: Path) -> None:
    files = KeyFiles(KeyFileSettings(folder=str(tmp_path)))
    files.put("a", "k", pa.array(random.Random(1).sample(range(10**6), 10_000), pa.int64()))
    keys = files.get("a", "k", lambda: pytest.fail("it is there"))
    for path in tmp_path.iterdir():
        path.unlink()
    assert keys.keys.to_pylist() == sorted(keys.keys.to_pylist())


@pytest.mark.parametrize("left", [0, 1, 100])
def test_a_damaged_key_file_is_made_again(tmp_path: Path, left: int) -> None:
    """A crash of the machine may leave a file without some of its content."""
    files = KeyFiles(KeyFileSettings(folder=str(tmp_path)))
    files.put("a", "k", pa.array([2, 1], pa.int64()))
    (path,) = tmp_path.iterdir()
    os.truncate(path, left)
    for _ in range(2):
        keys = files.get("a", "k", lambda: pa.array([2, 1], pa.int64()))
        assert (keys.keys.to_pylist(), keys.positions.to_pylist()) == ([1, 2], [1, 0])
    files.get("a", "k", lambda: pytest.fail("it was made again"))


def test_no_key_file_from_before_a_start_of_the_machine_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = KeyFiles(KeyFileSettings(folder=str(tmp_path / "keys")))
    files.put("a", "k", pa.array([7], pa.int64()))
    other = tmp_path / "boot_id"
    other.write_text("another start\n")
    monkeypatch.setattr(key_files, "_BOOT_ID", other)
    key_files._boot.cache_clear()
    try:
        assert files.get("a", "k", lambda: pa.array([1], pa.int64())).keys.to_pylist() == [1]
    finally:
        key_files._boot.cache_clear()


def test_keys_are_found_although_the_disk_is_full(tmp_path: Path) -> None:
    """The oldest files make room for later ones."""
    files = KeyFiles(KeyFileSettings(folder=str(tmp_path)))
    for number in range(10):
        files.put(f"{number}", "k", pa.array([number], pa.int64()))
    allowed = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500, allowed[1]))
    try:
        keys = files.get("new", "k", lambda: pa.array(range(1000), pa.int64()))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, allowed)
        signal.signal(signal.SIGXFSZ, ignored)
    assert keys.find(pa.array([999], pa.int64()))[1].to_pylist() == [999]
    assert len(list(tmp_path.iterdir())) == 5
