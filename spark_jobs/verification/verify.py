"""Verify one mirror: compare its rows with the fold of its changes table, at one number of the warehouse.

Both tables are read as of that number, so batches can land meanwhile. First the checksums of buckets are
compared. Then the rows of buckets that differ are compared one by one, to find the keys and the columns. Rows
never pass through the driver: it gets checksums and differences.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyspark.sql import DataFrame

from spark_jobs.messages import BadJob, OneTableJob
from spark_jobs.server_client import Server
from spark_jobs.slot_session import SlotSession
from spark_jobs.tables.batch_checksums import hashed_columns
from spark_jobs.tables.checksums import Checksum, Checksums, differing
from spark_jobs.verification import verify_tasks
from spark_jobs.verification.changes_fold import Change
from spark_jobs.verification.verify_tasks import (
    CHANGE_FIELDS,
    DIFFERENCE_SCHEMA,
    ORDER,
    ROW_SCHEMA,
    SUM_SCHEMA,
    Side,
)

KIND = "verify"
DIFFERENCES_MAX = 1000  # rows that are listed; all are counted
ROWS_PER_PARTITION = 1_000_000


class Reference(BaseModel):
    """Checksums of the source at a position, which the server compares. `columns` are the columns that they
    cover.
    """

    model_config = ConfigDict(frozen=True)
    source: str
    position: str
    columns: tuple[str, ...] = Field(min_length=1)


class VerificationJob(OneTableJob):
    number: int
    changes: str
    key: tuple[str, ...] = ()
    names: dict[str, str]
    reference: Reference | None = None


@dataclass(frozen=True, slots=True)
class Document:
    """The metadata of a table, as the server sends it and parsed: PyIceberg cannot write format 3."""

    text: str
    metadata: TableMetadata


class Verification:
    """Runs verification jobs in one worker slot."""

    def __init__(self, server: Server, slot: SlotSession) -> None:
        self._server = server
        self._slot = slot

    def run(self, job: VerificationJob) -> dict[str, Any]:
        """Verify the mirror. Returns the findings for the server."""
        started_s = time.monotonic()
        documents = [self._load(job, name) for name in (job.name, job.changes)]
        tables = [document.metadata for document in documents]
        columns, left_out = compared_columns(tables[0], tables[1], tuple(job.names.values()))
        missing = [column for column in job.key if column not in columns]
        if missing or not columns:
            raise BadJob(f"the key column {missing[0]} is not in both tables" if missing else "no columns")
        mirror, changes = (self._side(job, document, columns) for document in documents)
        found = self._sums(verify_tasks.mirror_sums, mirror)
        truncates = self._truncates(changes)
        expected = self._folded(changes, truncates, has_key=bool(job.key))
        buckets = differing(found, expected)
        facts: dict[str, Any] = {
            "number": job.number,
            "columns": list(columns),
            "not-compared": left_out,
            "rows": sum(one.rows for one in found.values()),
            "expected-rows": sum(one.rows for one in expected.values()),
            "buckets": len({*found, *expected}),
            "buckets-differing": len(buckets),
            "checksums": as_json(found),
            "hashed": _identity(job, tables[0], columns),
        }
        if buckets:
            facts |= self._differences(mirror, changes, truncates, buckets, has_key=bool(job.key))
        if job.reference is not None:
            facts["reference"] = self._at_reference(job, documents[1], truncates)
        return facts | {"ms": round((time.monotonic() - started_s) * 1000)}

    def _load(self, job: VerificationJob, name: str) -> Document:
        at = f"{job.warehouse}@{job.number}"
        found = self._server.load_table(at, job.namespace, name)
        return Document(json.dumps(found), TableMetadataUtil.parse_obj(found))

    def _side(self, job: VerificationJob, document: Document, columns: Sequence[str]) -> Side:
        snapshot = document.metadata.current_snapshot()
        summary = snapshot.summary if snapshot is not None else None
        rows = int(summary.get("total-records") or 0) if summary is not None else 0
        cores = self._slot.spark.sparkContext.defaultParallelism
        return Side(
            metadata=document.text,
            io=self._slot.stores.io_properties(job.warehouse),
            shares=1 if rows < ROWS_PER_PARTITION // 10 else max(cores, -(-rows // ROWS_PER_PARTITION)),
            key=job.key or tuple(columns),
            columns=tuple(columns),
            names=_change_field_names(job, document.metadata),
        )

    # -- Spark

    def _read(self, side: Side, read: Any, schema: str) -> DataFrame:
        return self._slot.spark.range(0, side.shares, 1, side.shares).mapInArrow(partial(read, side), schema)

    def _sums(self, read: Any, side: Side) -> Checksums:
        return _added(self._read(side, read, SUM_SCHEMA).collect())

    def _truncates(self, side: Side) -> list[Change[None]]:
        rows = self._read(side, verify_tasks.truncate_rows, ROW_SCHEMA).collect()
        found = [verify_tasks.change_of(tuple(row), None) for row in rows]
        return sorted(found, key=lambda change: (change.commit_us, change.file, change.row_number))

    def _folded(
        self,
        side: Side,
        truncates: Sequence[Change[None]],
        *,
        has_key: bool,
        through: Mapping[str, str] | None = None,
    ) -> Checksums:
        if not has_key:
            return self._sums(verify_tasks.appended_sums, side)
        rows = _by_key(
            self._read(side, partial(verify_tasks.change_rows, buckets=None), ROW_SCHEMA), side.shares
        )
        folded = rows.mapInArrow(partial(verify_tasks.folded_sums, truncates, through), SUM_SCHEMA)
        return _added(folded.collect())

    def _differences(
        self,
        mirror: Side,
        changes: Side,
        truncates: Sequence[Change[None]],
        buckets: Sequence[str],
        *,
        has_key: bool,
    ) -> dict[str, Any]:
        """Return the rows of these buckets that differ."""
        chosen = frozenset(buckets)
        rows = self._read(changes, partial(verify_tasks.change_rows, buckets=chosen), ROW_SCHEMA).unionAll(
            self._read(mirror, partial(verify_tasks.mirror_rows, buckets=chosen), ROW_SCHEMA)
        )
        compare = partial(verify_tasks.compared, truncates, mirror.columns, has_key)
        found = _by_key(rows, changes.shares).mapInArrow(compare, DIFFERENCE_SCHEMA).cache()
        try:
            counts = {str(row[0]): int(row[1]) for row in found.groupBy("kind").count().collect()}
            named = found.orderBy("key", "kind").limit(DIFFERENCES_MAX).collect()
        finally:
            found.unpersist()
        return {
            "differences": counts,
            "keys": [
                {"kind": row[0], "key": json.loads(row[1]), "columns": json.loads(row[2])} for row in named
            ],
        }

    def _at_reference(
        self, job: VerificationJob, document: Document, truncates: Sequence[Change[None]]
    ) -> dict[str, Any]:
        """Return the checksums that the source should have at the position, computed from the changes."""
        assert job.reference is not None
        side = self._side(job, document, job.reference.columns)
        through = {job.reference.source: job.reference.position}
        return as_json(self._folded(side, truncates, has_key=bool(job.key), through=through))


def compared_columns(
    mirror: TableMetadata, changes: TableMetadata, added: Sequence[str]
) -> tuple[tuple[str, ...], list[str]]:
    """Return the columns that both tables have, by name, and those that only the mirror has."""
    own = [field.name for field in mirror.schema().fields if field.name not in added]
    known = {field.name for field in changes.schema().fields} - set(added)
    return tuple(sorted(set(own) & known)), sorted(set(own) - known)


def _identity(job: VerificationJob, mirror: TableMetadata, columns: Sequence[str]) -> str | None:
    """Return what identifies the checksums of the mirror; None if they do not cover all of its columns."""
    hashed = hashed_columns(mirror.schema(), job.key, job.names.values())
    return hashed.identity if hashed is not None and hashed.columns == tuple(columns) else None


def _change_field_names(job: VerificationJob, document: TableMetadata) -> dict[str, str]:
    present = {field.name for field in document.schema().fields}
    return {name: job.names[name] for name in (*CHANGE_FIELDS, ORDER) if job.names.get(name) in present}


def as_json(sums: Mapping[str, Checksum]) -> dict[str, list[Any]]:
    """Return the checksums as JSON. Sums are strings, because JSON numbers are not exact everywhere."""
    return {bucket: [one.rows, str(one.hash)] for bucket, one in sorted(sums.items())}


def _by_key(rows: DataFrame, partitions: int) -> DataFrame:
    return rows.repartition(partitions, "k").sortWithinPartitions("k", "c", "f", "n")


def _added(rows: Iterable[Any]) -> Checksums:
    sums: Checksums = {}
    for bucket, count, hash_ in rows:
        sums[bucket] = sums.get(bucket, Checksum()) + Checksum(count, int(hash_))
    return sums
