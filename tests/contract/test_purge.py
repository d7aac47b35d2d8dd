"""Purge of real tables, written by PyIceberg, on local files and on a real S3 server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from catalog.storage.purge import purge
from catalog.storage.reachable import Reachable
from tests.harness.storage_roots import STORAGE_KINDS, StorageRoot, storage_root_of

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False), NestedField(2, "word", StringType(), required=False)
)
BY_WORD = PartitionSpec(
    PartitionField(source_id=2, field_id=1000, transform=IdentityTransform(), name="word")
)


@pytest.fixture(params=STORAGE_KINDS)
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> StorageRoot:
    return storage_root_of(request, tmp_path)


@pytest.fixture
def lake(storage: StorageRoot, tmp_path: Path) -> Iterator[Catalog]:
    keys = storage.s3.iceberg if storage.s3 else {}
    catalog = SqlCatalog("test", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=storage.root, **keys)
    catalog.create_namespace("ns")
    yield catalog
    catalog.close()


def rows(*words: str) -> pa.Table:
    return pa.table({"id": list(range(len(words))), "word": list(words)})


def written(lake: Catalog, name: str, **options: Any) -> Table:
    """A table with appends, a delete, an overwrite, and partition values that need escaping."""
    table = lake.create_table(name, SCHEMA, partition_spec=BY_WORD, **options)
    table.append(rows("a", "b", "a/b c"))
    table.append(rows("b", "é%"))
    table.delete("id = 1")
    table.overwrite(rows("e"))
    return lake.load_table(name)


def document(storage: StorageRoot, table: Table) -> dict[str, Any]:
    metadata: dict[str, Any] = orjson.loads(storage.files.read(table.metadata_location))
    return metadata


@pytest.mark.parametrize("version", ["1", "2"])
def test_purge_deletes_exactly_the_files_of_the_table(
    storage: StorageRoot, lake: Catalog, version: str
) -> None:
    other = lake.create_table("ns.other", SCHEMA)
    other.append(rows("theirs"))
    before = storage.found()
    table = written(lake, "ns.t", properties={"format-version": version})
    own = storage.found() - before
    storage.files.create(f"{table.location()}/data/orphan.parquet", b"no snapshot knows me")

    report = purge(storage.files, document(storage, table), table.metadata_location, storage.root)

    assert storage.found() == before | {f"{table.location()}/data/orphan.parquet"}
    assert report.deleted == len(own)
    assert (report.outside, report.missing, report.unreadable) == ((), (), ())
    assert other.scan().to_arrow().num_rows == 1


def test_children_come_before_parents(storage: StorageRoot, lake: Catalog) -> None:
    table = written(lake, "ns.t")
    walk = Reachable(storage.files, document(storage, table), table.metadata_location)
    found = [list(group) for group in walk.groups()]
    data, manifests, lists, statistics, documents = found
    assert all(name.endswith(".parquet") for name in data)
    assert all("-m" in name and name.endswith(".avro") for name in manifests)
    assert all("snap-" in name for name in lists)
    assert statistics == []
    assert documents[-1] == table.metadata_location
    flat = [name for group in found for name in group]
    assert set(flat) == storage.found()
    assert len(flat) == len(set(flat))


def test_an_interrupted_purge_is_finished_by_the_next(storage: StorageRoot, lake: Catalog) -> None:
    table = written(lake, "ns.t")
    metadata = document(storage, table)
    groups = Reachable(storage.files, metadata, table.metadata_location).groups()
    order = [name for group in groups for name in group]
    while order:  # each time the purge gets half as far again
        done, order = order[: (len(order) + 1) // 2], order[(len(order) + 1) // 2 :]
        storage.files.delete(done)
        walk = Reachable(storage.files, metadata, table.metadata_location)
        assert set(order) <= {name for group in walk.groups() for name in group}
    purge(storage.files, metadata, table.metadata_location, storage.root)
    assert storage.found() == set()


def test_a_table_with_its_own_locations(storage: StorageRoot, lake: Catalog) -> None:
    paths = {
        "write.data.path": storage.at("elsewhere/t-data"),
        "write.metadata.path": storage.at("elsewhere/t-metadata"),
    }
    table = written(lake, "ns.t", properties=paths)
    report = purge(storage.files, document(storage, table), table.metadata_location, storage.root)
    assert report.outside == ()
    assert storage.found() == set()


def test_without_garbage_collection_the_data_stays(storage: StorageRoot, lake: Catalog) -> None:
    table = written(lake, "ns.t", properties={"gc.enabled": "false"})
    data = {name for name in storage.found() if name.endswith(".parquet")}
    report = purge(storage.files, document(storage, table), table.metadata_location, storage.root)
    assert report.data_kept
    assert storage.found() == data
    assert data


def test_a_table_that_was_never_written(storage: StorageRoot, lake: Catalog) -> None:
    table = lake.create_table("ns.t", SCHEMA)
    report = purge(storage.files, document(storage, table), table.metadata_location, storage.root)
    assert report.deleted == 1
    assert storage.found() == set()
