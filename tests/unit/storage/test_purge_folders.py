"""What a purge leaves of local files: no checksums of Hadoop, no empty directories, what else is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from catalog.storage.purge import purge
from tests.unit.storage.test_purge import Lake, entry


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "warehouse")


def written(lake: Lake, *names: str) -> dict[str, object]:
    """A table with these data files, each file with the checksum that Hadoop writes beside it."""
    manifest = lake.manifest("metadata/m.avro", *(entry(lake.file(name)) for name in names))
    lake.manifest_list("metadata/s.avro", manifest)
    for location in lake.found():
        folder, _, name = location.rpartition("/")
        lake.file(f"{folder}/.{name}.crc")
    return lake.metadata({"manifest-list": f"{lake.table}/metadata/s.avro"})


def test_nothing_is_left_of_a_table_that_hadoop_wrote(lake: Lake) -> None:
    metadata = written(lake, "data/day=1/a.parquet", "data/day=2/b.parquet", "data/c.parquet")
    neighbour = lake.file(f"{lake.root}/ns/u/metadata/1.metadata.json")
    report = lake.purge(metadata)
    assert report.deleted == 6  # the files that the table knows of
    assert lake.found() == {neighbour}
    assert not (lake.folder / "ns/t").exists()
    assert (lake.folder / "ns").is_dir()


def test_a_directory_with_something_else_in_it_stays(lake: Lake) -> None:
    metadata = written(lake, "data/day=1/a.parquet", "data/day=2/b.parquet")
    others = {lake.file("data/day=1/orphan.parquet"), lake.file("metadata/.unknown.crc")}
    (lake.folder / "ns/t/data/of-somebody").mkdir()
    lake.purge(metadata)
    assert lake.found() == others
    assert not (lake.folder / "ns/t/data/day=2").exists()
    assert (lake.folder / "ns/t/data/of-somebody").is_dir()


def test_an_empty_root_stays_though_a_table_lies_in_the_whole_of_it(lake: Lake) -> None:
    metadata = written(lake, "data/a.parquet")
    metadata["properties"] = {"write.data.path": f"{lake.root}/elsewhere"}
    lake.purge(metadata)
    assert lake.folder.is_dir()


def test_a_linked_directory_stays(lake: Lake, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    metadata = written(lake, "data/a.parquet")
    (lake.folder / "ns/t/data/a.parquet").unlink()
    (lake.folder / "ns/t/data/.a.parquet.crc").unlink()
    (lake.folder / "ns/t/data").rmdir()
    (lake.folder / "ns/t/data").symlink_to(outside)
    lake.purge(metadata)
    assert outside.is_dir()
    assert (lake.folder / "ns/t/data").is_symlink()


def test_a_name_as_long_as_names_may_be(lake: Lake) -> None:
    """It has no room for a checksum beside it."""
    metadata = lake.metadata(
        {"manifests": [lake.manifest("metadata/m.avro", entry(lake.file("data/" + "a" * 255)))]}
    )
    assert lake.purge(metadata).deleted == 3
    assert not (lake.folder / "ns/t").exists()


def test_whoever_watches_is_asked_before_every_step(lake: Lake) -> None:
    class Enough(Exception):
        pass

    metadata = written(lake, "data/a.parquet")
    before = lake.found()
    asked = 0

    def check() -> None:
        nonlocal asked
        asked += 1
        if asked == 3:  # a manifest list and a manifest are read, and nothing is deleted yet
            raise Enough

    with pytest.raises(Enough):
        purge(lake.files, metadata, lake.metadata_location, lake.root, check=check)
    assert lake.found() == before
    lake.purge(metadata)
    assert lake.found() == set()
