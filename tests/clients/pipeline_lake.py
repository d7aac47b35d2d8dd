"""The pipeline in one process: files staged as the server does, landed by `spark_jobs` on a real server.

    lake = PipelineLake(PipelineSlot(spark, stack))
    table = lake.table({"id": "long", "name": "string"})
    table.land(insert(id=1, name="a"), delete(id=1))
    table.mirror(), table.changes()

The jobs API is left out: the commits of a batch are sent as a plain multi-table commit.
"""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from catalog.metadata.commit import apply
from catalog.metadata.tables import creation_updates
from spark_jobs.landing.landing_job import LandingJob, Outcome
from spark_jobs.messages import CHANGE_COLUMNS, Job, KeyFileSettings, job_from
from spark_jobs.progress import Progress
from spark_jobs.server_client import Server, ServerError, TableChange, TableChanged
from spark_jobs.slot_session import SlotSession, Stores
from spark_jobs.tables.table_state import TableStates
from tests.clients import pyiceberg_client
from tests.clients.pipeline_events import Event, Row
from tests.clients.pipeline_staged import CHANGE_TYPES, NAMES, STAMP_US, staged_rows
from tests.clients.spark_client import s3_options
from tests.harness.rest import Rest
from tests.harness.stacks import Stack

PROPERTIES = {
    "write.merge.mode": "merge-on-read",
    "write.update.mode": "merge-on-read",
    "write.delete.mode": "merge-on-read",
    "write.merge.isolation-level": "snapshot",
    "write.delete.isolation-level": "snapshot",
    "write.delete.granularity": "file",
}


class PlainServer(Server):
    """Commits the changes itself, and answers the tables of a job; there is no job to end."""

    def __init__(self, uri: str) -> None:
        super().__init__(uri)
        self.rest = Rest(uri)
        self.described: dict[str, Sequence[Mapping[str, Any]]] = {}  # the tables of each job

    def publish(
        self,
        job: Job,
        changes: Sequence[TableChange],
        metrics: Mapping[str, Any],
        *,
        transaction: str | None = None,
    ) -> int | None:
        if transaction is None:
            if changes:
                self.commit(job.warehouse, changes)
            return self.rest.head()
        try:
            self._call("POST", f"/lake/v1/{job.warehouse}/transactions/{transaction}/commit")
        except ServerError as error:
            raise (TableChanged(str(error)) if error.status == 409 else error) from error
        return self.rest.head()

    def renewed(self, job: Job) -> Job:
        given = job.model_dump(by_alias=True, exclude={"tables"})
        return job_from({**given, "tables": [self.with_states(one) for one in self.described[job.id]]})

    def with_states(self, table: Mapping[str, Any]) -> dict[str, Any]:
        names = [table["mirror"], table["changes"], (table["rejects"] or {}).get("name")]
        states = {name: self._state(table, name) for name in names if name is not None}
        return {**{key: value for key, value in table.items() if key != "requests"}, "states": states}

    def _state(self, table: Mapping[str, Any], name: str) -> dict[str, Any]:
        """As `ingest.landing.job_states` describes a table."""
        requests = [request for request in table["requests"] if request["table"] == name]
        for body in (request["create"] for request in requests if "create" in request):
            path = self.rest.namespace_path(table["namespace"], "tables")
            staged = self.rest.ok("POST", path, json={**body, "stage-create": True})["metadata"]
            create = [{"type": "assert-create"}]
            return {"metadata": staged, "requirements": create, "updates": creation_updates(staged)}
        metadata = self.rest.load(table["namespace"], name, snapshots="refs")["metadata"]
        updates = [update for request in requests for update in request["commit"]["updates"]]
        if updates:
            metadata = apply(metadata, [], updates, now_ms=time.time_ns() // 1_000_000)
        return {"metadata": metadata, "requirements": [], "updates": updates}


class PipelineSlot:
    """A slot of a worker on one stack, kept from test to test as a worker keeps it from job to job."""

    def __init__(
        self, spark: SparkSession, stack: Stack, *, slot: int = 0, key_files: KeyFileSettings | None = None
    ) -> None:
        self.stack = stack
        self.server = PlainServer(stack.url)
        self.stores = Stores(self.server, s3_options(stack))
        self.session = SlotSession(spark, self.server, self.stores, f"w-{uuid.uuid4().hex[:8]}", slot)
        self.key_files = key_files or KeyFileSettings()
        self._pool = ThreadPoolExecutor(4)
        self.landing = LandingJob(self.server, self.session, self._pool, TableStates(), self.key_files)

    def close(self) -> None:
        self._pool.shutdown()
        self.server.close()


class PipelineLake:
    """Tables in a namespace of their own."""

    def __init__(self, slot: PipelineSlot) -> None:
        self.slot = slot
        self.stack = slot.stack
        self.rest = Rest(slot.stack.url)
        self.namespace = self.rest.fresh_namespace()
        self._numbers = itertools.count()

    def table(
        self, columns: Mapping[str, str], key: Sequence[str] = ("id",), **options: Any
    ) -> PipelineTable:
        return PipelineTable(self, f"t{next(self._numbers)}", dict(columns), tuple(key), **options)

    def run(self, tables: Sequence[Mapping[str, Any]], **job: Any) -> Outcome:
        """Land the tables of one job."""
        given = {
            "id": uuid.uuid4().hex,
            "epoch": 1,
            "kind": "commit",
            "warehouse": "main",
            "lease-s": 30,
            "commit-timestamp-us": STAMP_US,
            "batch-id": uuid.uuid4().hex,
            **job,
        }
        return self.slot.landing.run(self.job(given, tables), Progress())

    def job(self, given: Mapping[str, Any], tables: Sequence[Mapping[str, Any]]) -> Job:
        server = self.slot.server
        server.described[given["id"]] = tables
        return job_from({**given, "tables": [server.with_states(table) for table in tables]})

    def put(self, table: pa.Table) -> str:
        """A staged file in the warehouse's storage."""
        name = f"_calve/staged/{uuid.uuid4().hex}.parquet"
        location = f"{self.stack.warehouse_root}/{name}"
        path = location.partition("://")[2]
        files = self._files()
        files.create_dir(path.rpartition("/")[0])
        pq.write_table(table, path, filesystem=files, compression="zstd")
        return location

    def files_below(self, location: str, extension: str = "parquet") -> set[str]:
        """The paths of all files of a kind there, without their scheme."""
        folder = pafs.FileSelector(location.partition("://")[2], recursive=True)
        return {found.path for found in self._files().get_file_info(folder) if found.extension == extension}

    def _files(self) -> pafs.FileSystem:
        if self.stack.s3 is None:
            return pafs.LocalFileSystem()
        return pafs.S3FileSystem(
            access_key=self.stack.s3.access_key_id,
            secret_key=self.stack.s3.secret_access_key,
            endpoint_override=self.stack.s3.endpoint.removeprefix("http://"),
            scheme="http",
            region=self.stack.s3.region,
        )


@dataclass
class PipelineTable:
    """A table of the lake, made by the first job that has it."""

    lake: PipelineLake
    name: str
    columns: dict[str, str]
    key: tuple[str, ...]
    has_mirror: bool = True
    has_changes: bool = True
    append_only: bool = False
    format_version: int = 2
    partition: Sequence[Mapping[str, Any]] = ()
    names: Mapping[str, str] = field(default_factory=lambda: dict(NAMES))
    made: bool = False

    def land(
        self, *events: Event, late: bool = False, job: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """One batch of this table alone; what the pipeline says of it."""
        outcome = self.lake.run([self.described(events, late=late)], **(job or {}))
        self.made = True
        return outcome.tables[f"{self.lake.namespace}.{self.name}"]

    def described(self, events: Sequence[Event], *, late: bool = False) -> dict[str, Any]:
        """The table's part of a job."""
        staged = staged_rows(events, self.columns, self.key)
        counts = dict.fromkeys(("insert", "update", "delete", "read", "truncate"), 0)
        for event in events:
            counts[event.operation] += 1
        return {
            "namespace": [self.lake.namespace],
            "name": self.name,
            "files": [self.lake.put(staged)],
            "events": len(events),
            "columns": list(self.columns),
            "key": [] if self.append_only else list(self.key),
            "mirror": self.name if self.has_mirror else None,
            "changes": f"{self.name}__changes" if self.has_changes else None,
            "append-only": self.append_only,
            "rejects": None,
            "names": dict(self.names),
            "counts": counts,
            "has-absent": any(event.absent for event in events),
            "has-moves": any(event.root is not None for event in events),
            "late": late,
            "first-load": False,
            "requests": [] if self.made else list(self._requests()),
        }

    def _requests(self) -> Iterator[dict[str, Any]]:
        stamp = {self.names["commit-timestamp"]: "timestamptz"}
        if self.has_mirror:
            key = () if self.append_only else self.key
            yield self._create(self.name, self.columns | stamp, key, self.partition)
        if self.has_changes:
            columns = self.columns | {self.names[name]: CHANGE_TYPES[name] for name in CHANGE_COLUMNS}
            day = [{"source": self.names["commit-timestamp"], "transform": "day"}]
            yield self._create(f"{self.name}__changes", columns, (), day)

    def _create(
        self,
        name: str,
        columns: Mapping[str, str],
        key: Sequence[str],
        partition: Sequence[Mapping[str, Any]],
    ) -> dict[str, Any]:
        ids = {column: number for number, column in enumerate(columns, 1)}
        fields = [
            {"id": ids[column], "name": column, "type": type_, "required": column in key}
            for column, type_ in columns.items()
        ]
        identifiers = [ids[column] for column in key if columns[column] != "double"]
        schema = {"type": "struct", "fields": fields, "identifier-field-ids": identifiers}
        parts = [
            {
                "source-id": ids[part["source"]],
                "field-id": 1000 + n,
                "transform": part["transform"],
                "name": f"p{n}",
            }
            for n, part in enumerate(partition)
        ]
        properties = {**PROPERTIES, "format-version": str(self.format_version)}
        body: dict[str, Any] = {"name": name, "schema": schema, "properties": properties}
        if parts:
            body["partition-spec"] = {"spec-id": 0, "fields": parts}
        return {"table": name, "create": body}

    # -- what is there

    def mirror(self) -> list[Row]:
        """All rows, by PyIceberg, without the time of the commit."""
        rows = self._read(self.name)
        return [{column: row[column] for column in self.columns} for row in rows]

    def changes(self) -> list[Row]:
        return self._read(f"{self.name}__changes")

    def _read(self, name: str) -> list[Row]:
        table = pyiceberg_client.catalog(self.lake.stack).load_table((self.lake.namespace, name))
        rows: list[Row] = table.scan().to_arrow().to_pylist()
        return rows
