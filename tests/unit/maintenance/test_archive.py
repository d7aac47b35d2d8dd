"""The archive tier: when it is due, where it is, which files a step takes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table.metadata import TableMetadataUtil
from pyiceberg.typedef import Record

from catalog.errors import Invalid
from catalog.locations import own_locations
from catalog.names import Identifier, Namespace
from maintenance import archive
from maintenance.health import Health, due
from maintenance.policies import TablePolicy
from maintenance.store import TableRecord
from spark_jobs.maintenance.archive import DAY_US, FILE_COST_BYTES, Archive, OldFile, next_files, old_file

DAY_MS = archive.DAY_MS
MIB = 2**20
TABLE = Identifier(Namespace(("shop",)), "orders__changes")
METADATA: dict[str, Any] = {"location": "s3://lake-bucket/lake/shop/orders__changes-1", "table-uuid": "u-1"}


@given(st.integers(0, 4 * 10**12), st.integers(1, 4000))
def test_all_changes_before_the_day_are_older_than_the_policy_says(now_ms: int, days: int) -> None:
    until_ms = archive.before_ms(TablePolicy(archive_after_days=days), now_ms)
    assert until_ms is not None
    assert until_ms % DAY_MS == 0
    assert until_ms == 0 or days * DAY_MS <= now_ms - until_ms < (days + 1) * DAY_MS


def test_without_a_policy_nothing_is_archived() -> None:
    assert archive.before_ms(TablePolicy(), 2**41) is None
    assert due(Health(), TableRecord("u"), TablePolicy(), None) == (None, [])


def test_a_table_is_due_once_for_each_day() -> None:
    policy, first, second = TablePolicy(archive_after_days=90), 100 * DAY_MS, 101 * DAY_MS
    done = TableRecord("u", done={archive.ARCHIVE: {archive.THROUGH: first}})
    assert due(Health(), TableRecord("u"), policy, first) == (
        "archive",
        ["changes before 1970-04-11 are to be archived"],
    )
    assert due(Health(), done, policy, first) == (None, [])
    assert due(Health(), done, policy, second)[0] == "archive"
    assert archive.archived_before(done) == "1970-04-11"


def test_a_step_that_left_files_makes_the_table_due_again() -> None:
    record = TableRecord("u", done={archive.ARCHIVE: {"rewritten-data-files": 3}})
    assert due(Health(), record, TablePolicy(archive_after_days=90), DAY_MS)[0] == "archive"
    assert archive.archived_before(record) is None


def test_new_small_files_are_joined_first_and_requests_before_that() -> None:
    policy, health = TablePolicy(archive_after_days=90), Health(data_files=50)
    assert due(health, TableRecord("u"), policy, DAY_MS)[0] == "compact"
    requested = TableRecord("u", requested=frozenset({"archive"}))
    assert due(health, requested, policy, DAY_MS)[0] == "archive"


def test_the_archive_is_in_the_table_or_in_a_folder_that_the_table_names() -> None:
    inside = archive.folder(METADATA, TablePolicy(), TABLE)
    assert inside == "s3://lake-bucket/lake/shop/orders__changes-1/archive"
    assert archive.properties(METADATA, inside) == {}
    outside = archive.folder(METADATA, TablePolicy(archive_location="s3://lake-bucket/lake/cold/"), TABLE)
    assert outside == "s3://lake-bucket/lake/cold/shop/orders__changes-u-1"
    said = {**METADATA, "properties": archive.properties(METADATA, outside)}
    assert own_locations(said) == (METADATA["location"], outside)
    assert archive.folder(said, TablePolicy(archive_location="s3://lake-bucket/lake/other"), TABLE) == outside
    assert archive.properties(said, outside) == {}


@pytest.mark.parametrize(
    "values",
    [
        {"archive-after-days": -1},
        {"archive-after-days": "90"},
        {"archive-compression-level": 0},
        {"archive-compression-level": 23},
        {"archive-location": 7},
        {"archive-storage-class": "GLACIER"},
        {"archive-storage-class": "cold"},
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(Invalid):
        TablePolicy().with_values(values)


def test_a_table_can_be_taken_out_of_the_policy_of_its_namespace() -> None:
    assert TablePolicy(archive_after_days=90).with_values({"archive-after-days": 0}).archive_after_days == 0


FILES = st.lists(
    st.builds(
        lambda number, size, partition, first: OldFile(f"f{number}", size, partition, first, first + 1),
        st.integers(0, 10**9),
        st.integers(1, 200 * MIB),
        st.sampled_from(["a", "b", "c"]),
        st.integers(0, 1000),
    ),
    min_size=1,
    max_size=30,
    unique_by=lambda file: file.path,
)


@given(FILES, st.sampled_from([MIB, 8 * MIB, 32 * MIB]))
def test_a_step_takes_the_oldest_files_of_a_partition_and_no_more_than_it_may(
    files: list[OldFile], bytes_max: int
) -> None:
    chosen = next_files(files, bytes_max)
    assert min(file.first_us for file in files) == chosen[0].first_us
    assert len({file.partition for file in chosen}) == 1
    cost = sum(max(file.bytes, FILE_COST_BYTES) for file in chosen)
    assert len(chosen) == 1 or cost <= bytes_max


@given(FILES)
def test_all_files_are_archived_after_some_steps(files: list[OldFile]) -> None:
    left, steps = list(files), 0
    while left:
        chosen = next_files(left, 32 * MIB)
        left = [file for file in left if file not in chosen]
        steps += 1
    assert steps <= len(files)
    assert next_files([], 32 * MIB) == []


DOCUMENT = {
    "format-version": 2,
    "table-uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c1",
    "location": "s3://lake-bucket/t",
    "last-sequence-number": 0,
    "last-updated-ms": 0,
    "last-column-id": 1,
    "current-schema-id": 0,
    "schemas": [
        {
            "type": "struct",
            "schema-id": 0,
            "fields": [{"id": 1, "name": "at", "type": "timestamptz", "required": False}],
        }
    ],
    "default-spec-id": 0,
    "partition-specs": [
        {"spec-id": 0, "fields": [{"source-id": 1, "field-id": 1000, "name": "d", "transform": "day"}]}
    ],
    "last-partition-id": 1000,
    "default-sort-order-id": 0,
    "sort-orders": [{"order-id": 0, "fields": []}],
}
BEFORE = Archive.model_validate(
    {
        "column": "at",
        "before-us": 10 * DAY_US,
        "sort": ["at"],
        "path": "s3://lake-bucket/t/archive",
        "properties": {},
        "compression-level": 9,
    }
)


def data_file(path: str, day: int | None, bounds: tuple[int, int] | None) -> DataFile:
    lower, upper = ({1: one.to_bytes(8, "little")} for one in bounds) if bounds else ({}, {})
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(day),
        record_count=1,
        file_size_in_bytes=7,
        lower_bounds=lower,
        upper_bounds=upper,
    )
    file.spec_id = 0
    return file


@pytest.mark.parametrize(
    ("day", "bounds", "expected"),
    [
        (3, (5, 10 * DAY_US - 1), (5, 10 * DAY_US - 1)),
        (3, (5, 10 * DAY_US), None),
        (9, None, (9 * DAY_US, 10 * DAY_US - 1)),
        (10, None, None),
        (None, None, None),
    ],
)
def test_a_file_is_as_old_as_its_bounds_or_its_partition_say(
    day: int | None, bounds: tuple[int, int] | None, expected: tuple[int, int] | None
) -> None:
    metadata = TableMetadataUtil.parse_obj(DOCUMENT)
    found = old_file(BEFORE, metadata, data_file("s3://lake-bucket/t/data/f", day, bounds), "p")
    assert found == (OldFile("s3://lake-bucket/t/data/f", 7, "p", *expected) if expected else None)


@pytest.mark.parametrize(
    ("path", "is_archived"),
    [
        ("s3://lake-bucket/t/archive/d=1/f", True),
        ("s3a://lake-bucket/t/archive/f", True),
        ("s3://lake-bucket/t/archive2/f", False),
        ("s3://lake-bucket/t/data/archive/f", False),
    ],
)
def test_a_file_in_the_folder_is_archived(path: str, is_archived: bool) -> None:
    assert BEFORE.has(data_file(path, 1, None)) is is_archived
