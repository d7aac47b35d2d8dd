"""What `catalog.storage.base.Files` promises, on local files and on a real S3 server."""

from __future__ import annotations

import concurrent.futures
import time
from pathlib import Path

import pytest

from catalog.errors import FileNotFound, Invalid, TooLarge, Unavailable
from catalog.storage.base import Files
from tests.harness.storage_roots import STORAGE_KINDS, StorageRoot, storage_root_of

LITERAL_NAMES = [
    "00001-3f2a.metadata.json",
    "p=a%2Fb/file.parquet",
    "p=a%20b/file.parquet",
    "p=100%25/file.parquet",
    "p=a+b&c=d/file.parquet",
    "p=*/file.parquet",
    "with space/file.parquet",
    "p=åäö/日本.parquet",
    "p=2026-11-16T00:00:00/file.parquet",
    "p=~x,y;z(1)@!/file.parquet",
]
NO_LOCATIONS = [
    "",
    "relative/path",
    "http://169.254.169.254/latest/meta-data",
    "https://bucket.example/key",
    "gs://bucket/key",
    "ftp://host/x",
    "file://host/etc/passwd",
    "s3://user@bucket/key",
    "s3://bucket:80/key",
    "s3://169.254.169.254/key",
    "{root}/../other",
    "{root}/a/./b",
    "{root}//b",
    "{root}/a\x00b",
    "{root}/%2e%2e/x",
    "{root}/a?versionId=1",
    "{root}/a#b",
]


@pytest.fixture(params=STORAGE_KINDS)
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> StorageRoot:
    return storage_root_of(request, tmp_path)


def test_the_front_keeps_the_port(storage: StorageRoot) -> None:
    port: Files = storage.files  # mypy compares the signatures
    assert port is storage.files


@pytest.mark.parametrize("size", [0, 1, 2_048, 600_000, 6_000_000])
def test_what_was_created_is_read(storage: StorageRoot, size: int) -> None:
    data = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    storage.files.create(storage.at("a/b/metadata/1.json"), data)
    assert storage.files.read(storage.at("a/b/metadata/1.json")) == data
    assert (storage.folder / "a/b/metadata/1.json").read_bytes() == data


@pytest.mark.parametrize("name", LITERAL_NAMES)
def test_names_are_taken_literally(storage: StorageRoot, name: str) -> None:
    location = storage.at(name)
    storage.files.create(location, b"data")
    assert storage.found() == {location}
    assert storage.files.exists(location)
    assert storage.files.read(location) == b"data"
    assert storage.files.delete([location]) == 1
    assert storage.found() == set()


def test_nothing_is_ever_overwritten(storage: StorageRoot) -> None:
    storage.files.create(storage.at("1.json"), b"first")
    for data in (b"second", b"first"):  # the same bytes are no excuse: the first try is never an echo
        with pytest.raises(FileExistsError, match=r"already exists: .*1\.json"):
            storage.files.create(storage.at("1.json"), data)
    assert storage.files.read(storage.at("1.json")) == b"first"


def test_one_of_many_creators_of_one_name_wins(storage: StorageRoot) -> None:
    def create(writer: int) -> bool:
        try:
            storage.files.create(storage.at("metadata/1.json"), f"writer {writer}".encode())
        except FileExistsError:
            return False
        return True

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        won = list(pool.map(create, range(8)))
    assert sum(won) == 1
    assert storage.files.read(storage.at("metadata/1.json")) == f"writer {won.index(True)}".encode()


def test_many_threads_write_many_files(storage: StorageRoot) -> None:
    names = [storage.at(f"t{number % 4}/metadata/{number}.json") for number in range(64)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: storage.files.create(name, name.encode()), names))
        assert list(pool.map(storage.files.read, names)) == [name.encode() for name in names]
    assert storage.found() == set(names)


def test_a_missing_file_is_named(storage: StorageRoot) -> None:
    storage.files.create(storage.at("there/1.json"), b"")
    for name in ("2.json", "there/2.json", "there", "there/1.json/below"):
        with pytest.raises(FileNotFound) as caught:
            storage.files.read(storage.at(name))
        assert caught.value.message == f"Failed to open input stream for file: {storage.at(name)}"
        assert not storage.files.exists(storage.at(name))


def test_a_read_has_a_limit(storage: StorageRoot) -> None:
    storage.files.create(storage.at("1.json"), b"x" * 1_000)
    assert len(storage.files.read(storage.at("1.json"), bytes_max=1_000)) == 1_000
    with pytest.raises(TooLarge, match="larger than 999 bytes"):
        storage.files.read(storage.at("1.json"), bytes_max=999)


def test_exists_is_about_files(storage: StorageRoot) -> None:
    assert not storage.files.exists(storage.at("a/1.json"))
    storage.files.create(storage.at("a/1.json"), b"")
    assert storage.files.exists(storage.at("a/1.json"))
    assert not storage.files.exists(storage.at("a"))


def test_delete_removes_exactly_the_named_files(storage: StorageRoot) -> None:
    for name in ("t/1", "t/2", "t2/1", "t/sub/1"):
        storage.files.create(storage.at(name), b"")
    gone = [storage.at("t/1"), storage.at("t/never"), storage.at("elsewhere/never"), storage.at("t/1")]
    assert storage.files.delete(iter(gone)) == 3
    assert storage.found() == {storage.at("t/2"), storage.at("t2/1"), storage.at("t/sub/1")}
    assert storage.files.delete([]) == 0


def test_delete_never_removes_a_directory(storage: StorageRoot) -> None:
    storage.files.create(storage.at("t/metadata/1.json"), b"")
    storage.files.make_directory(storage.at("empty"))
    storage.files.delete([storage.at("t"), storage.at("t/metadata"), storage.at("empty")])
    assert storage.found() == {storage.at("t/metadata/1.json")}
    assert storage.name == "s3" or (storage.folder / "empty").is_dir()


def test_delete_splits_long_lists_into_requests(storage: StorageRoot) -> None:
    storage.folder.mkdir(parents=True, exist_ok=True)
    names = [f"{number:04}.parquet" for number in range(2_345)]
    for name in names:
        (storage.folder / name).touch()
    (storage.folder / "kept.parquet").touch()
    assert storage.files.delete(storage.at(name) for name in names) == len(names)
    assert storage.found() == {storage.at("kept.parquet")}


@pytest.mark.parametrize("location", NO_LOCATIONS)
def test_what_is_no_location_is_refused_first(storage: StorageRoot, location: str) -> None:
    hostile = location.format(root=storage.root)
    for call in (
        lambda: storage.files.read(hostile),
        lambda: storage.files.create(hostile, b""),
        lambda: storage.files.exists(hostile),
        lambda: storage.files.delete([hostile]),
        lambda: storage.files.make_directory(hostile),
        lambda: storage.files.sync(hostile),
        lambda: storage.files.unchanged_since(hostile, 0),
        lambda: storage.files.probe(hostile),
    ):
        with pytest.raises(Invalid):
            call()
    assert storage.found() == set()


def test_aliases_of_a_scheme_mean_the_same_file(storage: StorageRoot) -> None:
    storage.files.create(storage.at("1.json"), b"data")
    path = storage.at("1.json").partition("://")[2]
    aliases = [f"file:{path}", path] if storage.name == "file" else [f"s3a://{path}", f"s3n://{path}"]
    for alias in aliases:
        assert storage.files.read(alias) == b"data"
        with pytest.raises(FileNotFound, match=f"for file: {alias}x$"):
            storage.files.read(f"{alias}x")


def test_a_probe_leaves_nothing(storage: StorageRoot) -> None:
    storage.files.probe(storage.root)
    assert storage.found() == set()


def test_a_failed_probe_has_a_reason(storage: StorageRoot) -> None:
    if storage.name == "file":
        (storage.folder / "plain").write_text("a file where a folder is needed")
        root, reason = storage.at("plain/root"), "not a directory"
    else:
        root, reason = "s3://no-such-bucket-anywhere/root", "there is no such bucket"
    with pytest.raises(Unavailable, match=reason):
        storage.files.probe(root)


def test_what_others_wrote_is_settled(storage: StorageRoot) -> None:
    storage.files.create(storage.at("t/data/1.parquet"), b"data")
    storage.files.sync(storage.root)
    if storage.name == "file":
        with pytest.raises(Unavailable, match="no such file"):
            storage.files.sync(storage.at("nowhere"))


@pytest.mark.parametrize("name", LITERAL_NAMES)
def test_files_that_have_not_changed_since_a_time(storage: StorageRoot, name: str) -> None:
    begun_ms = time.time_ns() // 1_000_000
    storage.files.create(storage.at(f"staged/{name}"), b"data")
    storage.files.create(storage.at("staged-not/1"), b"data")
    later_ms = begun_ms + 60_000
    assert storage.files.unchanged_since(storage.at("staged"), begun_ms - 60_000) == []
    assert storage.files.unchanged_since(storage.at("staged"), later_ms) == [storage.at(f"staged/{name}")]
    assert storage.files.unchanged_since(storage.at("nowhere"), later_ms) == []


def test_make_directory_twice(storage: StorageRoot) -> None:
    for _ in range(2):
        storage.files.make_directory(storage.at("t/metadata"))
    assert storage.name == "s3" or (storage.folder / "t/metadata").is_dir()
    storage.files.create(storage.at("t/metadata/1.json"), b"")
