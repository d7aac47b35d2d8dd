"""Purge of documents that are damaged, of other formats, or made to harm."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import fastavro
import pytest

from catalog.errors import Unavailable
from catalog.storage import purge as purge_module
from catalog.storage import reachable
from catalog.storage.files import StorageFiles
from catalog.storage.purge import purge
from catalog.storage.reachable import Reachable


class Lake:
    """A warehouse with one table `t`, written by hand."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = f"file://{folder}"
        self.files = StorageFiles(file_roots=[self.root])
        self.table = f"{self.root}/ns/t"
        self.metadata_location = self.file("metadata/2.metadata.json")

    def file(self, name: str, data: bytes = b"data") -> str:
        """Write a file of the table, or elsewhere if `name` is a location."""
        location = name if "://" in name else f"{self.table}/{name}"
        self.files.create(location, data)
        return location

    def manifest(self, name: str, *entries: dict[str, Any], codec: str = "deflate") -> str:
        return self.file(name, avro("manifest_entry", ENTRY, entries, codec))

    def manifest_list(self, name: str, *manifests: str) -> str:
        entries = [{"manifest_path": manifest, "manifest_length": 1} for manifest in manifests]
        return self.file(name, avro("manifest_file", LIST, entries, "deflate"))

    def metadata(self, *snapshots: dict[str, Any], **more: Any) -> dict[str, Any]:
        return {"format-version": 3, "location": self.table, "snapshots": list(snapshots), **more}

    def purge(self, metadata: dict[str, Any]) -> purge_module.PurgeReport:
        return purge(self.files, metadata, self.metadata_location, self.root)

    def found(self) -> set[str]:
        return {f"file://{path}" for path in self.folder.rglob("*") if path.is_file()}


ENTRY: list[dict[str, Any]] = [
    {"name": "status", "type": "int"},
    {
        "name": "data_file",
        "type": {
            "type": "record",
            "name": "r2",
            "fields": [
                {"name": "content", "type": "int"},
                {"name": "file_path", "type": "string"},
                {"name": "file_format", "type": "string"},
                {"name": "content_offset", "type": ["null", "long"], "default": None},
                {"name": "referenced_data_file", "type": ["null", "string"], "default": None},
            ],
        },
    },
]
LIST: list[dict[str, Any]] = [
    {"name": "manifest_path", "type": "string"},
    {"name": "manifest_length", "type": "long"},
]


def avro(name: str, fields: list[dict[str, Any]], entries: Any, codec: str) -> bytes:
    file = io.BytesIO()
    fastavro.writer(file, {"type": "record", "name": name, "fields": fields}, list(entries), codec=codec)
    return file.getvalue()


def entry(path: str, *, status: int = 1, content: int = 0, **more: Any) -> dict[str, Any]:
    kind = "PUFFIN" if path.endswith(".puffin") else "PARQUET"
    return {
        "status": status,
        "data_file": {"content": content, "file_path": path, "file_format": kind, **more},
    }


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "warehouse")


def test_deletion_vectors_and_statistics(lake: Lake) -> None:
    """Format v3: two vectors in one Puffin file, statistics, partition statistics, a key id."""
    data, vectors = lake.file("data/1.parquet"), lake.file("data/deletes.puffin")
    manifest = lake.manifest("metadata/m1.avro", entry(data))
    deletes = lake.manifest(
        "metadata/m2.avro",
        entry(vectors, content=1, content_offset=4, referenced_data_file=data),
        entry(vectors, content=1, content_offset=99, referenced_data_file=data),
    )
    snapshot = {"manifest-list": lake.manifest_list("metadata/snap-1.avro", manifest, deletes), "key-id": "k"}
    metadata = lake.metadata(
        snapshot,
        statistics=[{"statistics-path": lake.file("metadata/1.stats"), "snapshot-id": 1}],
        **{
            "partition-statistics": [{"statistics-path": lake.file("metadata/p.parquet"), "snapshot-id": 1}],
            "metadata-log": [{"metadata-file": lake.file("metadata/1.metadata.json"), "timestamp-ms": 1}],
        },
    )
    assert len(lake.found()) == 9
    assert lake.purge(metadata).deleted == 9
    assert lake.found() == set()


def test_manifests_in_the_snapshot_itself(lake: Lake) -> None:
    """Format v1 may do without a manifest list."""
    manifest = lake.manifest("metadata/m1.avro", entry(lake.file("data/1.parquet")))
    lake.purge(lake.metadata({"manifests": [manifest]}))
    assert lake.found() == set()


def test_entries_marked_deleted_are_reachable(lake: Lake) -> None:
    manifest = lake.manifest("metadata/m1.avro", entry(lake.file("data/1.parquet"), status=2))
    lake.purge(lake.metadata({"manifest-list": lake.manifest_list("metadata/s.avro", manifest)}))
    assert lake.found() == set()


def test_the_same_manifest_in_many_snapshots_is_read_once(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = lake.manifest("metadata/m1.avro", entry(lake.file("data/1.parquet")))
    lists = [lake.manifest_list(f"metadata/snap-{number}.avro", manifest) for number in range(10)]
    metadata = lake.metadata(*({"manifest-list": location} for location in lists))
    read: list[str] = []
    really = lake.files.read

    def noted(location: str) -> bytes:
        read.append(location)
        return really(location)

    monkeypatch.setattr(lake.files, "read", noted)
    assert lake.purge(metadata).deleted == 13
    assert sorted(read) == sorted([*lists, manifest])


def test_what_lies_elsewhere_is_never_touched(lake: Lake, tmp_path: Path) -> None:
    """The document names all of this, and none of it is the table's."""
    victims = [
        lake.file(f"{lake.root}/ns/t2/data/1.parquet"),  # a sibling whose name begins the same
        lake.file(f"{lake.root}/ns/other/metadata/1.metadata.json"),
        lake.file(f"{lake.root}/top-level"),
        lake.file(f"file://{tmp_path}/warehouse-evil/1.parquet"),
        lake.file(f"file://{tmp_path}/passwd"),
    ]
    never_there = ["s3://other-bucket/key", "gs://bucket/key", "http://127.0.0.1/x", "", "file:///", "../x"]
    traversal = f"{lake.table}/data/../../other/metadata/1.metadata.json"
    directory = f"{lake.table}/data"
    lake.file("data/orphan.parquet")  # would go with the directory
    own = lake.file("data/1.parquet")
    claimed = [*victims, *never_there, traversal, f"{lake.table}/%2e%2e/x", lake.root, lake.table]
    manifest = lake.manifest("metadata/m.avro", *(entry(path) for path in (*claimed, directory, own)))
    theirs = lake.file(f"{lake.root}/ns/other/metadata/m.avro", b"not even opened")
    metadata = lake.metadata(
        {"manifest-list": lake.manifest_list("metadata/s.avro", manifest, theirs)},
        *({"manifest-list": path} for path in claimed),
        statistics=[{"statistics-path": path} for path in claimed],
        **{"metadata-log": [{"metadata-file": path} for path in claimed]},
    )
    report = lake.purge(metadata)
    assert all(lake.files.exists(path) for path in (*victims, theirs))
    assert (tmp_path / "warehouse/ns/t/data").is_dir()
    assert not lake.files.exists(own)
    assert {*victims, traversal, theirs, lake.table} <= set(report.outside)
    assert report.outside_count == len(report.outside)
    assert report.unreadable == ()


@pytest.mark.parametrize("location", ["", None, 7, "file:///", "s3://bucket/t", "{root}", "{root}/.."])
def test_a_location_that_is_not_below_the_root_owns_nothing(lake: Lake, location: Any) -> None:
    manifest = lake.manifest("metadata/m.avro", entry(lake.file("data/1.parquet")))
    before = lake.found()
    claimed = location.format(root=lake.root) if isinstance(location, str) else location
    metadata = lake.metadata({"manifests": [manifest]}) | {"location": claimed}
    metadata["properties"] = {"write.data.path": claimed, "write.metadata.path": f"{lake.root}/../.."}
    report = lake.purge(metadata)
    assert report.deleted == 0
    assert lake.found() == before


def test_a_link_out_of_the_warehouse_is_left_alone(lake: Lake, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "1.parquet").touch()
    own = lake.file("data/1.parquet")
    (lake.folder / "ns/t/linked").symlink_to(outside)
    (lake.folder / "ns/t/metadata/linked.avro").symlink_to(outside / "1.parquet")
    linked = f"{lake.table}/linked/1.parquet"
    manifest = lake.manifest("metadata/m.avro", entry(linked), entry(own))
    metadata = lake.metadata({"manifests": [manifest, f"{lake.table}/metadata/linked.avro"]})
    report = lake.purge(metadata)
    assert (outside / "1.parquet").exists()
    assert report.outside == (linked,)
    assert report.unreadable == (f"{lake.table}/metadata/linked.avro",)
    assert not lake.files.exists(own)


def test_missing_and_damaged_manifests_are_reported(lake: Lake) -> None:
    gone, torn = f"{lake.table}/metadata/gone.avro", lake.file("metadata/torn.avro", b"Obj\x01torn")
    encrypted = lake.file("metadata/encrypted.avro", b"AGS1...")
    whole = lake.manifest("metadata/m.avro", entry(lake.file("data/1.parquet")))
    metadata = lake.metadata(
        {"manifest-list": lake.manifest_list("metadata/s.avro", gone, torn, encrypted, whole)},
        {"manifest-list": f"{lake.table}/metadata/gone-list.avro"},
    )
    report = lake.purge(metadata)
    assert set(report.missing) == {gone, f"{lake.table}/metadata/gone-list.avro"}
    assert set(report.unreadable) == {torn, encrypted}
    assert lake.found() == set()


@pytest.mark.parametrize(
    "snapshots", [None, "text", 7, [None, 7, "x", {"manifest-list": 7}, {"manifests": "x"}]]
)
def test_a_document_of_nonsense(lake: Lake, snapshots: Any) -> None:
    metadata = {"location": lake.table, "properties": "x", "snapshots": snapshots, "statistics": {"a": 1}}
    metadata["metadata-log"] = [[], {"metadata-file": None}]
    lake.purge(metadata)
    assert lake.found() == set()  # the metadata file itself is the table's


def test_storage_that_fails_is_not_passed_over(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = lake.manifest("metadata/m.avro", entry(lake.file("data/1.parquet")))

    def away(_: str) -> bytes:
        raise Unavailable("away")

    before = lake.found()
    with monkeypatch.context() as patched:
        patched.setattr(lake.files, "read", away)
        with pytest.raises(Unavailable):
            lake.purge(lake.metadata({"manifests": [manifest]}))
    assert lake.found() == before
    lake.purge(lake.metadata({"manifests": [manifest]}))
    assert lake.found() == set()


def test_files_are_deleted_in_chunks(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [f"{lake.table}/data/{number}.parquet" for number in range(2_500)]
    first = lake.manifest("metadata/m1.avro", *map(entry, paths))
    second = lake.manifest("metadata/m2.avro", *map(entry, paths[:1_500]))
    sizes: list[int] = []

    def counted(batch: list[str]) -> int:
        if not batch[0].endswith(".crc"):
            sizes.append(len(batch))
        return len(batch)

    monkeypatch.setattr(lake.files, "delete", counted)
    assert lake.purge(lake.metadata({"manifests": [first, second]})).deleted == 2_503
    assert sizes == [1_000, 1_000, 500, 2, 1]


def test_what_was_seen_is_bounded(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reachable, "_SEEN_MAX", 2)
    paths = [f"{lake.table}/data/{number}.parquet" for number in range(4)]
    manifests = [lake.manifest(f"metadata/m{n}.avro", *map(entry, paths)) for n in range(2)]
    walk = Reachable(lake.files, lake.metadata({"manifests": manifests}), lake.metadata_location)
    assert sorted(walk.data_files()) == sorted([*paths, *paths[2:]])


def test_names_in_the_report_end_somewhere(lake: Lake) -> None:
    paths = [f"{lake.root}/other/{number}" for number in range(500)]
    report = lake.purge(lake.metadata({"manifests": [lake.manifest("metadata/m.avro", *map(entry, paths))]}))
    assert report.outside_count == 500
    assert len(report.outside) == 100
