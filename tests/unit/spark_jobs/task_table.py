"""A table in a folder that work items are run on without Spark and without a server.

It does what the driver and a reader do: it keeps the list of live files, and reads them with their deletes.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder

from spark_jobs.landing import task
from spark_jobs.messages import (
    ItemResult,
    KeyFileSettings,
    LiveDeletes,
    LiveFile,
    TableJob,
    TableState,
    WorkItem,
)
from spark_jobs.tables.batch_checksums import Sums, added
from spark_jobs.tables.checksums import Checksum, Checksums, checksums, key_digests, row_hashes
from spark_jobs.tables.data_files import file_io, read_rows
from tests.clients.pipeline_events import Event, Row
from tests.clients.pipeline_model import Model
from tests.clients.pipeline_staged import CHANGE_TYPES, NAMES, STAMP_US, staged_rows

_numbers = itertools.count()


def schema_of(columns: Mapping[str, str], required: Sequence[str] = ()) -> Schema:
    fields = [
        {"id": number, "name": name, "type": type_, "required": name in required}
        for number, (name, type_) in enumerate(columns.items(), 1)
    ]
    return Schema.model_validate({"type": "struct", "fields": fields})


@dataclass
class TaskTable:
    """A mirror beside its model, and its changes table."""

    folder: Path
    columns: dict[str, str]
    key: tuple[str, ...] = ("id",)
    spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC
    order: SortOrder = UNSORTED_SORT_ORDER
    properties: dict[str, str] = field(default_factory=dict)
    append_only: bool = False
    staged_group_rows: int = 7
    has_changes: bool = True
    files: list[LiveFile] = field(default_factory=list)
    deletes: list[LiveDeletes] = field(default_factory=list)
    sequence: int = 0
    history: list[Row] = field(default_factory=list)
    changes_files: list[str] = field(default_factory=list)  # in the order in which they landed
    sums: Sums = field(default_factory=dict)  # kept as the server keeps them

    def __post_init__(self) -> None:
        self.model = Model(tuple(self.columns), self.key)
        self.location = self.folder / f"t{next(_numbers)}"
        key = () if self.append_only else self.key
        mirror = schema_of({**self.columns, "_commit_timestamp": "timestamptz"}, key)
        self.metadata = self._metadata("mirror", mirror, self.spec, self.order)
        self.key = key
        told = {NAMES[name]: type_ for name, type_ in CHANGE_TYPES.items()}
        self.changes_metadata = self._metadata("changes", schema_of({**self.columns, **told}))

    def _metadata(
        self,
        name: str,
        schema: Schema,
        spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        order: SortOrder = UNSORTED_SORT_ORDER,
    ) -> TableMetadata:
        return new_table_metadata(
            schema, spec, order, f"file://{self.location}/{name}", dict(self.properties)
        )

    def items(
        self,
        events: Sequence[Event],
        *,
        shares: int = 1,
        key_files: KeyFileSettings | None = None,
        **more: Any,
    ) -> list[WorkItem]:
        self.location.mkdir(parents=True, exist_ok=True)
        staged = self.location / f"staged-{next(_numbers)}.parquet"
        pq.write_table(
            staged_rows(events, self.columns, self.key), staged, row_group_size=self.staged_group_rows
        )
        counts = dict.fromkeys(("insert", "update", "delete", "read", "truncate"), 0)
        for event in events:
            counts[event.operation] += 1
        job = TableJob(
            namespace=("ns",),
            name="t",
            files=(f"file://{staged}",),
            events=len(events),
            columns=tuple(self.columns),
            key=self.key,
            mirror="t",
            changes="t__changes" if self.has_changes else None,
            append_only=self.append_only,
            counts=counts,
            has_absent=any(event.absent for event in events),
            has_moves=any(event.root is not None for event in events),
            checksums=True,
            **more,
        )
        mirror = TableState(
            name="t",
            metadata=self.metadata.model_dump_json(),
            files=tuple(self.files),
            deletes=tuple(self.deletes),
        )
        changes = TableState(name="t__changes", metadata=self.changes_metadata.model_dump_json())
        settings = key_files or KeyFileSettings(folder=str(self.folder / "keys"))
        return [
            WorkItem(
                job=job,
                commit_us=STAMP_US + self.sequence,
                share=share,
                shares=shares,
                mirror=mirror,
                changes=changes if self.has_changes else None,
                key_files=settings,
            )
            for share in range(shares)
        ]

    def land(self, *events: Event, late: bool = False, **options: Any) -> list[ItemResult]:
        """One batch, committed; the mirror is the model's afterwards."""
        results = [task.run(item) for item in self.items(events, late=late, **options)]
        bad = [result.bad_job or result.error for result in results if result.bad_job or result.error]
        assert not bad, bad
        self.commit(results)
        assert {bucket: sum_ for bucket, sum_ in self.sums.items() if any(sum_)} == self.scanned_sums()
        if self.key:
            self.model.land(list(events), late=late)
            found = self.rows()
            assert found == self.model.mirror
        return results

    def commit(self, results: Sequence[ItemResult]) -> None:
        self.sequence += 1
        if any(result.truncated for result in results):
            self.files, self.deletes, self.sums = [], [], {}
        self.sums = added([self.sums, *(result.checksums or {} for result in results)])
        for text in (text for result in results for text in result.files["t"]):
            given = json.loads(text)
            lower, upper = _bounds(given, "lower-bounds"), _bounds(given, "upper-bounds")
            if given["content"] == "data":
                assert pq.read_metadata(given["file-path"][7:]).num_rows == given["record-count"]
                file = LiveFile(
                    path=given["file-path"],
                    sequence=self.sequence,
                    spec_id=given["spec-id"],
                    partition=tuple(given["partition"]),
                    lower=lower.get(1),
                    upper=upper.get(1),
                )
                self.files.append(file)
            else:
                known = {(file.path, file.spec_id, file.partition) for file in self.files}
                refers = set(pq.read_table(given["file-path"][7:]).column("file_path").to_pylist())
                place = given["spec-id"], tuple(given["partition"])
                assert all((path, *place) in known for path in refers), "of another partition"
                deletes = LiveDeletes(
                    path=given["file-path"],
                    sequence=self.sequence,
                    lower=lower[2147483546],
                    upper=upper[2147483546],
                )
                self.deletes.append(deletes)
        for result in results:
            for text in result.files.get("t__changes", ()):
                self.changes_files.append(json.loads(text)["file-path"])
                self.history += _read(self.changes_files[-1])

    def scanned_sums(self) -> Sums:
        """The checksums of what a reader sees, computed as a verification does."""
        gone = {(row["file_path"], row["pos"]) for deletes in self.deletes for row in _read(deletes.path)}
        columns, total = sorted(self.columns), Checksums()
        for file in self.files:
            rows = read_rows(file_io({}), file.path, self.metadata, columns)
            alive = [(file.path, position) not in gone for position in range(rows.num_rows)]
            rows = rows.filter(pa.array(alive, pa.bool_())).combine_chunks()
            arrays = {name: rows.column(name).combine_chunks() for name in columns}
            keys = key_digests([arrays[name] for name in self.key or columns])
            for bucket, one in checksums(keys, row_hashes([arrays[name] for name in columns])).items():
                total[bucket] = total.get(bucket, Checksum()) + one
        return {bucket: (one.rows, one.hash) for bucket, one in total.items()}

    def rows(self) -> dict[tuple[Any, ...], Row]:
        """What a reader sees, by key."""
        gone = {(row["file_path"], row["pos"]) for deletes in self.deletes for row in _read(deletes.path)}
        found: dict[tuple[Any, ...], Row] = {}
        for file in self.files:
            rows = read_rows(file_io({}), file.path, self.metadata, list(self.columns)).to_pylist()
            for position, row in enumerate(rows):
                if (file.path, position) not in gone:
                    key = tuple(row[column] for column in self.key or self.columns)
                    assert key not in found, f"{key} has two rows"
                    found[key] = row
        return found


def _read(path: str) -> list[Row]:
    rows: list[Row] = pq.ParquetFile(path.removeprefix("file://")).read().to_pylist()
    return rows


def _bounds(given: Mapping[str, Any], name: str) -> dict[int, str]:
    bounds = given.get(name) or {"keys": [], "values": []}
    return dict(zip(bounds["keys"], bounds["values"], strict=True))
