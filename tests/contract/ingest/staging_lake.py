"""Catalog, journal and landing side in this process, and staging without a worker.

Jobs are leased and published as a worker does it, but staged in this process, and nothing is written to the
tables.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from calve.bootstrap import Ingest, migrate_ingest, open_catalog, open_ingest, reach_database
from calve.settings import Settings
from catalog.identity.open import OpenIdentity
from catalog.services.catalog import Catalog
from catalog.store.migrations import migrate
from ingest import formats
from ingest.batches.cut import Ground
from ingest.batches.stage import stage
from ingest.change import Context
from ingest.jobs.work import SentCommits
from ingest.journal.dead_letters import DeadLetter
from ingest.journal.receipts import Receipt

WAREHOUSE = "main"


@dataclass
class StagingLake:
    catalog: Catalog
    ingest: Ingest

    @property
    def ground(self) -> Ground:
        return Ground(self.catalog, self.ingest.journal, self.ingest.tables)

    def post(self, *events: Any, **context: Any) -> Receipt:
        """Append the events of one request."""
        return self.post_body(orjson.dumps(list(events)), **context)

    def post_body(self, body: bytes, **context: Any) -> Receipt:
        parsed = formats.read(body, Context(**context))
        return self.ingest.journal.submit(WAREHOUSE, parsed).result(timeout=60)

    def lease(self) -> dict[str, Any]:
        """The next job, in the hands of a worker."""
        until_s = time.monotonic() + 60
        while (job := self.ingest.dispatch.lease("w", [WAREHOUSE], {}, "anonymous")) is None:
            assert time.monotonic() < until_s, self.ingest.view.status(WAREHOUSE)["stalled"]
            time.sleep(0.05)
        return job | {"rows": {table["name"]: read_files(table["files"]) for table in job["tables"]}}

    def publish(self, job: dict[str, Any]) -> None:
        """As a worker does that has written nothing."""
        self.ingest.dispatch.publish(job["id"], job["epoch"], SentCommits([]), "anonymous", {})

    def land(self) -> dict[str, Any]:
        """The next job, published."""
        job = self.lease()
        self.publish(job)
        return job

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
    found = Settings(home=folder / "lake", flush_events=1, freshness_target_ms=0, **settings)
    if "database" in settings:  # of PostgreSQL, which a server does not migrate by itself
        database = reach_database(found)
        migrate(database)
        migrate_ingest(found, database)
        database.close()
    catalog = open_catalog(found)
    ingest = open_ingest(found, catalog, OpenIdentity())
    lake = StagingLake(catalog, ingest)
    ingest.pool.stage = lambda cut: stage(lake.ground, cut)  # type: ignore[method-assign]
    try:
        yield lake
    finally:
        ingest.close()
        catalog.database.close()
