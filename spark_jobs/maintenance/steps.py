"""Run one maintenance step on one table with Iceberg's own procedures: compact files, rewrite manifests.
Old changes go to the archive (archive.py).

A step is small, because batches of the table wait for it. Files of similar size are compacted together, so
that a byte is not rewritten again and again: with the bounds below, a row is rewritten about once for each
bound that its file grows past.

The commits go to the warehouse itself. Iceberg checks that no replaced file got new deletes meanwhile. If
another engine wrote to the table, the step fails, and the server tries the table again later.
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyspark.sql import SparkSession

from spark_jobs.maintenance.archive import (
    ARCHIVE,
    FILE_COST_BYTES,
    Archive,
    ArchiveStep,
    OldFile,
    next_files,
    old_file,
)
from spark_jobs.messages import OneTableJob
from spark_jobs.server_client import Server
from spark_jobs.session import attach
from spark_jobs.slot_session import STORE_PATIENCE, SlotSession
from spark_jobs.tables.commit import quoted

KIND = "maintain"
COMPACT = "compact"
REWRITE_MANIFESTS = "rewrite-manifests"
SIZE_BOUNDS = (64 * 2**10, 512 * 2**10, 4 * 2**20, 32 * 2**20)
MANIFESTS_MAX = 50


class Policy(BaseModel):
    model_config = ConfigDict(frozen=True, alias_generator=lambda name: name.replace("_", "-"))
    small_files_min: int
    delete_files_max: int
    delete_ratio: float
    target_bytes: int


class MaintenanceJob(OneTableJob):
    """A maintenance job, as the server describes it."""

    actions: tuple[str, ...]
    sort: tuple[str, ...] = ()
    step_bytes_max: int
    policy: Policy
    archive: Archive | None = None


class Layout(BaseModel):
    """The files of a table, as its manifests list them. Compaction leaves the archive alone."""

    sizes: dict[str, list[int]]  # of data files, by partition
    old: list[OldFile] = Field(
        default_factory=list
    )  # data files that belong in the archive and are not there
    archived: int = 0  # data files in the archive
    delete_files: int = 0
    position_deletes: int = 0
    rows: int = 0
    manifests: int = 0

    @property
    def data_files(self) -> int:
        return sum(map(len, self.sizes.values())) + len(self.old) + self.archived


def layout(metadata: TableMetadata, io: Any, archive: Archive | None = None) -> Layout:
    snapshot = metadata.current_snapshot()
    found = Layout(sizes={})
    for manifest in snapshot.manifests(io) if snapshot is not None else ():
        found.manifests += 1
        for entry in manifest.fetch_manifest_entry(io, discard_deleted=True):
            file = entry.data_file
            if file.content == DataFileContent.DATA:
                # Iceberg rewrites the files of all old specs, and gives them the partitions of the current
                # one.
                is_old = file.spec_id != metadata.default_spec_id
                partition = "old" if is_old else str(file.partition)
                found.rows += file.record_count
                if archive is not None and archive.has(file):
                    found.archived += 1
                elif archive is not None and (old := old_file(archive, metadata, file, partition)):
                    found.old.append(old)
                else:
                    found.sizes.setdefault(partition, []).append(file.file_size_in_bytes)
            else:
                found.delete_files += 1
                is_position = file.content == DataFileContent.POSITION_DELETES
                found.position_deletes += file.record_count if is_position else 0
                if file.file_format == FileFormat.PUFFIN:
                    found.delete_files -= 1  # a deletion vector belongs to its data file
    return found


def size_bound(sizes: Mapping[str, Sequence[int]], small_files_min: int, target_bytes: int) -> int | None:
    """Return the smallest bound below which a partition has enough files to compact; None if there is
    none.
    """
    for bound in (*(bound for bound in SIZE_BOUNDS if bound < target_bytes // 2), target_bytes * 3 // 4):
        if any(sum(size < bound for size in some) >= small_files_min for some in sizes.values()):
            return bound
    return None


def rewrite_options(
    sizes: Mapping[str, Sequence[int]], bound: int, policy: Policy, step_bytes_max: int
) -> dict[str, Any]:
    """Return the options of `rewrite_data_files` for one step.

    It compacts files below the bound, about `step_bytes_max` of them, and at least two. If fewer than
    `small_files_min` files already have that many bytes, fewer are compacted.
    """
    every = [size for some in sizes.values() for size in some]
    # all files, if files with many deletes are rewritten
    small = [size for size in every if size < bound] or every
    mean_bytes = max(FILE_COST_BYTES, sum(small) // max(1, len(small)))
    files_max = max(2, step_bytes_max // mean_bytes)
    return {
        "min-input-files": min(policy.small_files_min, files_max),
        "min-file-size-bytes": bound,
        "target-file-size-bytes": max(policy.target_bytes, 2 * bound),
        "max-file-size-bytes": 100 * policy.target_bytes,
        "max-file-group-size-bytes": files_max * bound,
        "max-concurrent-file-group-rewrites": 1,
        "max-files-to-rewrite": files_max,
        "remove-dangling-deletes": "true",
    }


_WARM_UP = (
    "CREATE TABLE maintenance_warm_up.w.t (id BIGINT) USING iceberg",
    "INSERT INTO maintenance_warm_up.w.t VALUES (1)",
    "INSERT INTO maintenance_warm_up.w.t VALUES (2)",
    (
        "CALL maintenance_warm_up.system.rewrite_data_files(table => 'w.t', strategy => 'sort', "
        "sort_order => 'id ASC', options => map('min-input-files', '2', 'remove-dangling-deletes', 'true'))"
    ),
)


def warm_up(spark: SparkSession) -> None:
    """Run the procedures once on a temporary table.

    The first call takes many times as long as later ones, and batches of a real table would wait for it.
    Executors on other machines do not see the folder: they would leave files of the table on their disks.
    """
    if not str(spark.sparkContext.master).startswith("local"):
        return
    with tempfile.TemporaryDirectory() as folder:
        session = spark.newSession()
        settings = {"": "org.apache.iceberg.spark.SparkCatalog", ".type": "hadoop", ".warehouse": folder}
        for key, value in settings.items():
            session.conf.set(f"spark.sql.catalog.maintenance_warm_up{key}", value)
        for statement in _WARM_UP:
            session.sql(statement).collect()


class MaintenanceStep:
    """Runs maintenance jobs in one worker slot."""

    def __init__(self, server: Server, slot: SlotSession) -> None:
        self._server = server
        self._slot = slot
        self._catalogs: dict[str, str] = {}

    def run(self, job: MaintenanceJob) -> dict[str, Any]:
        """Run one step. Returns facts about it for the server."""
        started_s = time.monotonic()
        found = self._layout(job)
        facts: dict[str, Any] = {"files-before": found.data_files, "deletes-before": found.delete_files}
        if COMPACT in job.actions:
            facts |= self._compact(job, found)
        if REWRITE_MANIFESTS in job.actions or found.manifests >= MANIFESTS_MAX:
            facts["manifests-before"] = found.manifests
            facts |= _first_row(self._call(job, "rewrite_manifests", "use_caching => false"))
        if ARCHIVE in job.actions and job.archive is not None:
            facts |= self._archive(job, job.archive, found)
        after = self._layout(job)
        if job.archive is not None:
            facts["files-left"] = len(after.old)
        facts |= {"files-after": after.data_files, "deletes-after": after.delete_files}
        if size_bound(after.sizes, job.policy.small_files_min, job.policy.target_bytes) is not None:
            facts["files-after"] = 0  # more files are left: the table is due again
        return facts | {"ms": round((time.monotonic() - started_s) * 1000)}

    def _compact(self, job: MaintenanceJob, found: Layout) -> dict[str, Any]:
        policy, facts = job.policy, dict[str, Any]()
        bound = size_bound(found.sizes, policy.small_files_min, policy.target_bytes)
        is_deleted = found.rows and found.position_deletes / found.rows >= policy.delete_ratio
        if bound is not None or is_deleted:
            options = rewrite_options(found.sizes, bound or 1, policy, job.step_bytes_max)
            if is_deleted:
                options |= {"delete-file-threshold": 1, "max-file-group-size-bytes": job.step_bytes_max}
            facts |= _first_row(self._call(job, "rewrite_data_files", self._arguments(job), options))
        if found.delete_files >= policy.delete_files_max:
            options = {"min-input-files": 2, "rewrite-all": "true"}
            facts |= _first_row(
                self._call(job, "rewrite_position_delete_files", "", options), "delete-files-"
            )
        return facts

    def _archive(self, job: MaintenanceJob, archive: Archive, found: Layout) -> dict[str, Any]:
        files = next_files(found.old, job.step_bytes_max)
        if not files:
            return {}
        return ArchiveStep(self._server, self._slot).run(job, archive, files, bytes_max=job.step_bytes_max)

    def _arguments(self, job: MaintenanceJob) -> str:
        """The order of the rows, and the rows: what belongs in the archive is left alone."""
        order = self._order(job)
        if job.archive is None:
            return order
        before = datetime.fromtimestamp(job.archive.before_us / 1_000_000, UTC).isoformat(sep=" ")
        where = f"{quoted(job.archive.column)} >= TIMESTAMP '{before}'"
        return ", ".join(filter(None, (order, f"where => '{_escaped(where)}'")))

    def _order(self, job: MaintenanceJob) -> str:
        columns = job.sort or self._identifier_columns(job)
        if not columns:
            return ""
        order = ", ".join(f"{quoted(column)} ASC" for column in columns)
        return f"strategy => 'sort', sort_order => '{_escaped(order)}'"

    def _identifier_columns(self, job: MaintenanceJob) -> tuple[str, ...]:
        schema = self._metadata(job).schema()
        return tuple(schema.find_field(id_).name for id_ in schema.identifier_field_ids)

    def _call(
        self,
        job: MaintenanceJob,
        procedure: str,
        arguments: str = "",
        options: Mapping[str, Any] | None = None,
    ) -> Any:
        catalog = self.catalog(job.warehouse)
        # With the catalog in the name, Iceberg does not first try the namespace as a catalog.
        parts = [f"table => '{_escaped(quoted(catalog, *job.namespace, job.name))}'"]
        parts += [arguments] if arguments else []
        if options:
            pairs = ", ".join(f"'{name}', '{value}'" for name, value in options.items())
            parts.append(f"options => map({pairs})")
        return self._spark.sql(f"CALL {quoted(catalog)}.system.{procedure}({', '.join(parts)})").collect()

    @property
    def _spark(self) -> SparkSession:
        return self._slot.spark

    def catalog(self, warehouse: str) -> str:
        """Return the name of a catalog for the warehouse itself, without a transaction."""
        if warehouse not in self._catalogs:
            name = f"maintenance_{len(self._catalogs)}"
            credentials = self._server.credentials
            attach(
                self._spark,
                name,
                self._server.uri,
                warehouse=warehouse,
                token=credentials.token,
                credential=credentials.credential,
                s3=self._slot.stores.options(warehouse),
            )
            settings = STORE_PATIENCE | {
                "io-impl": "org.apache.iceberg.io.ResolvingFileIO",
                "rest-metrics-reporting-enabled": "false",
                "cache-enabled": "false",
            }
            for key, value in settings.items():
                self._spark.conf.set(f"spark.sql.catalog.{name}.{key}", value)
            self._catalogs[warehouse] = name
        return self._catalogs[warehouse]

    def _metadata(self, job: MaintenanceJob) -> TableMetadata:
        return TableMetadataUtil.parse_obj(self._server.load_table(job.warehouse, job.namespace, job.name))

    def _layout(self, job: MaintenanceJob) -> Layout:
        return layout(self._metadata(job), self._slot.stores.io(job.warehouse), job.archive)


def _first_row(rows: Any, prefix: str = "") -> dict[str, Any]:
    """Return the counts that a procedure returns, with dashes in their names."""
    counts = Counter[str]()
    for row in rows[:1]:
        for name, value in row.asDict().items():
            if isinstance(value, int):
                counts[prefix + name.removesuffix("_count").replace("_", "-")] = value
    return dict(counts)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")
