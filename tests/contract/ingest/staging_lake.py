"""Catalog, journal and landing side in this process, and staging without a worker.

Jobs are leased and published as a worker does it, but staged in this process. The worker's own fold applies
the staged rows to mirrors in memory: no Spark and no data files.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from calve.app import assemble
from calve.bootstrap import Ingest, migrate_ingest, open_catalog, open_ingest, reach_database
from calve.http import wrap
from calve.settings import Settings
from catalog.identity.open import OpenIdentity
from catalog.names import Identifier, Namespace
from catalog.services.catalog import Catalog
from catalog.services.commits import TableCommit
from catalog.store.migrations import migrate
from ingest.api.jobs import SentCommits
from ingest.change import RequestContext
from ingest.formats.detect import parse
from ingest.journal.dead_letters import DeadLetter
from ingest.journal.receipts import AppendReceipt
from ingest.staging.context import StagingContext
from ingest.staging.process import stage
from spark_jobs.landing.columns import texts
from spark_jobs.landing.fold import BASE, DELETE, Bases, LateTruncate, Past, fold
from spark_jobs.landing.late import past_from
from spark_jobs.messages import LeasedTable, TableJob, job_from
from tests.harness.rest import append_body

WAREHOUSE = "main"


Row = dict[str, Any]


@dataclass
class Mirror:
    """A mirror and its changes table, as a worker would write them."""

    rows: dict[Any, Row] = field(default_factory=dict)
    changes: pa.Table | None = None

    def apply(self, job: TableJob, commit_us: int) -> dict[str, Any]:
        """Apply a batch. Returns what a worker reports of it."""
        batch = pa.concat_tables([_table(file) for file in job.files])
        past = None
        if job.late and job.changes is not None:
            past = Past() if self.changes is None else past_from(_like(self.changes, batch), batch, job.key)
        folded = fold(batch, job, commit_us, past=past, bases=self._bases(job, batch.schema))
        for truncate in folded.mirror.late_truncates if folded.mirror is not None else ():
            newer = self._keys_newer_than(truncate, job)
            self.rows = {key: row for key, row in self.rows.items() if key in newer}
        if folded.changes is not None:
            told = {column: f"_calve_{name.replace('-', '_')}" for name, column in job.names.items()}
            new = folded.changes.rename_columns([told.get(one, one) for one in folded.changes.column_names])
            parts = [new] if self.changes is None else [self.changes, new]
            self.changes = pa.concat_tables(parts, promote_options="permissive")
        facts = {"lost": folded.lost} if folded.lost else {}
        if folded.mirror is None:
            return facts
        if folded.mirror.truncated:
            self.rows.clear()
        for row in folded.mirror.rows.to_pylist():
            key = tuple(row[column] for column in job.key)
            is_gone = row.pop(DELETE)
            del row[job.names["commit-timestamp"]]
            if is_gone:
                self.rows.pop(key, None)
            else:
                self.rows[key if job.key else len(self.rows)] = row
        return facts

    def _keys_newer_than(self, truncate: LateTruncate, job: TableJob) -> set[Any]:
        if self.changes is None:
            return set()
        facts = zip(
            texts(self.changes, "source"),
            texts(self.changes, "position"),
            texts(self.changes, "operation"),
            self.changes.select(list(job.key)).to_pylist(),
            strict=True,
        )
        return {
            tuple(row[column] for column in job.key)
            for source, position, operation, row in facts
            if source == truncate.source and position > truncate.position and operation != "truncate"
        }

    def _bases(self, job: TableJob, schema: pa.Schema) -> Bases:
        def bases(wanted: pa.Table, columns: list[str]) -> pa.Table:
            found = [
                {BASE: row[BASE], **{name: old.get(name) for name in columns}}
                for row in wanted.to_pylist()
                if (old := self.rows.get(tuple(row[column] for column in job.key))) is not None
            ]
            fields = [(BASE, pa.int64()), *((name, schema.field(name).type) for name in columns)]
            return pa.Table.from_pylist(found, pa.schema(fields))

        return bases


@dataclass
class StagingLake:
    settings: Settings
    catalog: Catalog
    ingest: Ingest
    mirrors: dict[str, Mirror] = field(default_factory=dict)

    @property
    def context(self) -> StagingContext:
        return StagingContext(self.catalog, self.ingest.journal, self.ingest.tables)

    def post(self, *events: Any, **context: Any) -> AppendReceipt:
        """Append the events of one request."""
        return self.post_body(orjson.dumps(list(events)), **context)

    def post_body(self, body: bytes, **context: Any) -> AppendReceipt:
        parsed = parse(body, RequestContext(**context))
        return self.ingest.journal.submit(WAREHOUSE, parsed).result(timeout=60)

    def lease(self) -> dict[str, Any]:
        """The next job, in the hands of a worker."""
        until_s = time.monotonic() + 60
        while (job := self.ingest.job_service.lease("w", [WAREHOUSE], {}, "anonymous")) is None:
            assert time.monotonic() < until_s, self.ingest.landing_status.status(WAREHOUSE)["stalled"]
            time.sleep(0.05)
        return job | {"rows": {table["name"]: read_files(table["files"]) for table in job["tables"]}}

    def publish(self, job: dict[str, Any], facts: dict[str, Any] | None = None) -> None:
        """As a worker does: each table gets a snapshot, whose files are not there."""
        parsed = job_from({name: value for name, value in job.items() if name != "rows"})
        commits = [
            _commit(table, name, state) for table in parsed.tables for name, state in table.states.items()
        ]
        metrics = {"tables": facts or {}}
        self.ingest.job_service.publish(job["id"], job["epoch"], SentCommits(commits), "anonymous", metrics)

    def land(self) -> dict[str, Any]:
        """The next job, published."""
        job = self.lease()
        parsed = job_from({name: value for name, value in job.items() if name != "rows"})
        facts: dict[str, Any] = {}
        for table in parsed.tables:
            if table.files:
                mirror = self.mirrors.setdefault(table.name, Mirror())
                facts[table.label] = mirror.apply(table, parsed.commit_timestamp_us)
        self.publish(job, facts)
        return job

    def rows(self, table: str = "t") -> list[Row]:
        """What the mirror has, by key."""
        rows = self.mirrors[table].rows if table in self.mirrors else {}
        return [rows[key] for key in sorted(rows)]

    def call(self, method: str, path: str, body: Any = None) -> httpx.Response:
        """A request to the server's application."""

        async def send() -> httpx.Response:
            transport = httpx.ASGITransport(self._app)
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
                return await client.request(method, path, json=body)

        return asyncio.run(send())

    @functools.cached_property
    def _app(self) -> Any:
        return wrap(assemble(self.settings, self.catalog, OpenIdentity(), self.ingest), self.settings)

    def letters(self) -> list[DeadLetter]:
        return self.ingest.journal.dead_letters.all(WAREHOUSE)


def staged_rows(job: dict[str, Any], table: str) -> list[dict[str, Any]]:
    """The staged rows of one table, in order. Their file is deleted when the job is published."""
    rows: list[dict[str, Any]] = job["rows"][table]
    return rows


def read_files(files: Sequence[str]) -> list[dict[str, Any]]:
    tables = [pq.read_table(file.removeprefix("file://")) for file in files]
    rows: list[dict[str, Any]] = pa.concat_tables(tables).to_pylist() if tables else []
    return rows


@contextlib.contextmanager
def opened(folder: Path, **settings: Any) -> Iterator[StagingLake]:
    found = Settings(
        home=folder / "lake", flush_events=1, freshness_target_ms=0, fast_paths=False, **settings
    )
    if "database" in settings:  # of PostgreSQL, which a server does not migrate by itself
        database = reach_database(found)
        migrate(database)
        migrate_ingest(found, database)
        database.close()
    catalog = open_catalog(found)
    ingest = open_ingest(found, catalog, OpenIdentity())
    lake = StagingLake(found, catalog, ingest)
    ingest.staging_process.stage = lambda batch_range: stage(lake.context, batch_range)  # type: ignore[method-assign]
    try:
        yield lake
    finally:
        ingest.close()
        catalog.database.close()


def _table(file: str) -> pa.Table:
    return pq.read_table(file.removeprefix("file://"))


def _like(changes: pa.Table, batch: pa.Table) -> pa.Table:
    """With the columns that both have, by the types of the batch. What a change left out is JSON there."""
    names = [name for name in batch.schema.names if name in changes.schema.names]
    types = [(changes if name == "_calve_absent" else batch).schema.field(name) for name in names]
    return changes.select(names).cast(pa.schema(types))


def _commit(table: TableJob, name: str, state: LeasedTable) -> TableCommit:
    body = append_body(state.metadata)
    identifier = Identifier(Namespace(table.namespace), name)
    requirements = [*state.requirements, *([] if state.is_new else body["requirements"])]
    return TableCommit(identifier, requirements, [*state.updates, *body["updates"]])
