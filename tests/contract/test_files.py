"""What `catalog.storage.base.Files` promises, on local files and on a real S3 server."""

from __future__ import annotations

import concurrent.futures
import time
from pathlib import Path

import pytest

from catalog.errors import FileNotFound, Invalid, TooLarge, Unavailable
from catalog.storage.base import Files
from tests.harness.places import PLACES, Place, place_on

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


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return place_on(request, tmp_path)


def test_the_front_keeps_the_port(place: Place) -> None:
    port: Files = place.files  # mypy compares the signatures
    assert port is place.files


@pytest.mark.parametrize("size", [0, 1, 2_048, 600_000, 6_000_000])
def test_what_was_created_is_read(place: Place, size: int) -> None:
    data = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    place.files.create(place.at("a/b/metadata/1.json"), data)
    assert place.files.read(place.at("a/b/metadata/1.json")) == data
    assert (place.folder / "a/b/metadata/1.json").read_bytes() == data


@pytest.mark.parametrize("name", LITERAL_NAMES)
def test_names_are_taken_literally(place: Place, name: str) -> None:
    location = place.at(name)
    place.files.create(location, b"data")
    assert place.found() == {location}
    assert place.files.exists(location)
    assert place.files.read(location) == b"data"
    assert place.files.delete([location]) == 1
    assert place.found() == set()


def test_nothing_is_ever_overwritten(place: Place) -> None:
    place.files.create(place.at("1.json"), b"first")
    for data in (b"second", b"first"):  # the same bytes are no excuse: the first try is never an echo
        with pytest.raises(FileExistsError, match=r"already exists: .*1\.json"):
            place.files.create(place.at("1.json"), data)
    assert place.files.read(place.at("1.json")) == b"first"


def test_one_of_many_creators_of_one_name_wins(place: Place) -> None:
    def create(writer: int) -> bool:
        try:
            place.files.create(place.at("metadata/1.json"), f"writer {writer}".encode())
        except FileExistsError:
            return False
        return True

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        won = list(pool.map(create, range(8)))
    assert sum(won) == 1
    assert place.files.read(place.at("metadata/1.json")) == f"writer {won.index(True)}".encode()


def test_many_threads_write_many_files(place: Place) -> None:
    names = [place.at(f"t{number % 4}/metadata/{number}.json") for number in range(64)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: place.files.create(name, name.encode()), names))
        assert list(pool.map(place.files.read, names)) == [name.encode() for name in names]
    assert place.found() == set(names)


def test_a_missing_file_is_named(place: Place) -> None:
    place.files.create(place.at("there/1.json"), b"")
    for name in ("2.json", "there/2.json", "there", "there/1.json/below"):
        with pytest.raises(FileNotFound) as caught:
            place.files.read(place.at(name))
        assert caught.value.message == f"Failed to open input stream for file: {place.at(name)}"
        assert not place.files.exists(place.at(name))


def test_a_read_has_a_limit(place: Place) -> None:
    place.files.create(place.at("1.json"), b"x" * 1_000)
    assert len(place.files.read(place.at("1.json"), bytes_max=1_000)) == 1_000
    with pytest.raises(TooLarge, match="larger than 999 bytes"):
        place.files.read(place.at("1.json"), bytes_max=999)


def test_exists_is_about_files(place: Place) -> None:
    assert not place.files.exists(place.at("a/1.json"))
    place.files.create(place.at("a/1.json"), b"")
    assert place.files.exists(place.at("a/1.json"))
    assert not place.files.exists(place.at("a"))


def test_delete_takes_exactly_what_is_named(place: Place) -> None:
    for name in ("t/1", "t/2", "t2/1", "t/sub/1"):
        place.files.create(place.at(name), b"")
    gone = [place.at("t/1"), place.at("t/never"), place.at("elsewhere/never"), place.at("t/1")]
    assert place.files.delete(iter(gone)) == 3
    assert place.found() == {place.at("t/2"), place.at("t2/1"), place.at("t/sub/1")}
    assert place.files.delete([]) == 0


def test_delete_never_takes_a_directory(place: Place) -> None:
    place.files.create(place.at("t/metadata/1.json"), b"")
    place.files.make_directory(place.at("empty"))
    place.files.delete([place.at("t"), place.at("t/metadata"), place.at("empty")])
    assert place.found() == {place.at("t/metadata/1.json")}
    assert place.name == "s3" or (place.folder / "empty").is_dir()


def test_delete_takes_more_than_one_request_can_name(place: Place) -> None:
    place.folder.mkdir(parents=True, exist_ok=True)
    names = [f"{number:04}.parquet" for number in range(2_345)]
    for name in names:
        (place.folder / name).touch()
    (place.folder / "kept.parquet").touch()
    assert place.files.delete(place.at(name) for name in names) == len(names)
    assert place.found() == {place.at("kept.parquet")}


@pytest.mark.parametrize("location", NO_LOCATIONS)
def test_what_is_no_location_is_refused_first(place: Place, location: str) -> None:
    hostile = location.format(root=place.root)
    for call in (
        lambda: place.files.read(hostile),
        lambda: place.files.create(hostile, b""),
        lambda: place.files.exists(hostile),
        lambda: place.files.delete([hostile]),
        lambda: place.files.make_directory(hostile),
        lambda: place.files.sync(hostile),
        lambda: place.files.unchanged_since(hostile, 0),
        lambda: place.files.probe(hostile),
    ):
        with pytest.raises(Invalid):
            call()
    assert place.found() == set()


def test_aliases_of_a_scheme_mean_the_same_file(place: Place) -> None:
    place.files.create(place.at("1.json"), b"data")
    path = place.at("1.json").partition("://")[2]
    aliases = [f"file:{path}", path] if place.name == "file" else [f"s3a://{path}", f"s3n://{path}"]
    for alias in aliases:
        assert place.files.read(alias) == b"data"
        with pytest.raises(FileNotFound, match=f"for file: {alias}x$"):
            place.files.read(f"{alias}x")


def test_a_probe_leaves_nothing(place: Place) -> None:
    place.files.probe(place.root)
    assert place.found() == set()


def test_a_probe_says_why_not(place: Place) -> None:
    if place.name == "file":
        (place.folder / "plain").write_text("a file where a folder is needed")
        root, reason = place.at("plain/root"), "not a directory"
    else:
        root, reason = "s3://no-such-bucket-anywhere/root", "there is no such bucket"
    with pytest.raises(Unavailable, match=reason):
        place.files.probe(root)


def test_what_others_wrote_is_settled(place: Place) -> None:
    place.files.create(place.at("t/data/1.parquet"), b"data")
    place.files.sync(place.root)
    if place.name == "file":
        with pytest.raises(Unavailable, match="no such file"):
            place.files.sync(place.at("nowhere"))


@pytest.mark.parametrize("name", LITERAL_NAMES)
def test_files_that_nobody_has_written_to_since(place: Place, name: str) -> None:
    begun_ms = time.time_ns() // 1_000_000
    place.files.create(place.at(f"staged/{name}"), b"data")
    place.files.create(place.at("staged-not/1"), b"data")
    later_ms = begun_ms + 60_000
    assert place.files.unchanged_since(place.at("staged"), begun_ms - 60_000) == []
    assert place.files.unchanged_since(place.at("staged"), later_ms) == [place.at(f"staged/{name}")]
    assert place.files.unchanged_since(place.at("nowhere"), later_ms) == []


def test_make_directory_twice(place: Place) -> None:
    for _ in range(2):
        place.files.make_directory(place.at("t/metadata"))
    assert place.name == "s3" or (place.folder / "t/metadata").is_dir()
    place.files.create(place.at("t/metadata/1.json"), b"")
