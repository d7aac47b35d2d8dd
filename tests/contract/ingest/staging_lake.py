"""Catalog, journal and landing side in this process, and staging without a worker.

`stage` does what the server does for a batch, and reads the staged rows back. `publish` moves the tables
forward as a publish does, so that the next batch builds on it; no Iceberg snapshot is written.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import sqlalchemy as sa

from calve.bootstrap import Ingest, migrate_ingest, open_catalog, open_ingest, reach_database
from calve.settings import Settings
from catalog.identity.open import OpenIdentity
from catalog.services.catalog import Catalog
from catalog.store.migrations import migrate
from ingest import formats
from ingest.batches.cut import Cut, Ground, StagedBatch
from ingest.batches.stage import stage
from ingest.change import Context, TableName
from ingest.journal.receipts import Receipt
from ingest.landing.tables import land

WAREHOUSE = "main"


@dataclass
class StagingLake:
    catalog: Catalog
    ingest: Ingest
    _jobs: Iterator[int] = field(default_factory=itertools.count)

    @property
    def ground(self) -> Ground:
        return Ground(self.catalog, self.ingest.journal, self.ingest.tables)

    def post(self, *events: Any, **context: Any) -> Receipt:
        """Append the events of one request."""
        return self.post_body(orjson.dumps(list(events)), **context)

    def post_body(self, body: bytes, **context: Any) -> Receipt:
        parsed = formats.read(body, Context(**context))
        return self.ingest.journal.submit(WAREHOUSE, parsed).result(timeout=60)

    def stage(self, *tables: TableName) -> StagedBatch:
        """All that is pending, of these tables or of all."""
        landed = self.ingest.tables.all(WAREHOUSE)
        spans = {
            row.table: (landed[row.table].landed_id if row.table in landed else 0, row.last_id)
            for row in self.ingest.journal.pending(WAREHOUSE)
            if not tables or row.table in tables
        }
        return stage(self.ground, Cut(f"job-{next(self._jobs)}", WAREHOUSE, spans))

    def publish(self, batch: StagedBatch) -> None:
        def work(connection: sa.Connection) -> None:
            for step in batch.steps:
                land(connection, WAREHOUSE, step, number=1, commit_us=batch.commit_us, snapshots=(None, None))

        self.catalog.database.write(work)
        self.ingest.journal.trim(WAREHOUSE, {step.table: step.to_id for step in batch.steps})

    def land(self) -> StagedBatch:
        batch = self.stage()
        self.publish(batch)
        return batch


def staged_rows(batch: StagedBatch, table: str) -> list[dict[str, Any]]:
    """The staged rows of one table, in order."""
    [described] = [found for found in batch.tables if found["name"] == table]
    return read_files(described["files"])


def read_files(files: Sequence[str]) -> list[dict[str, Any]]:
    tables = [pq.read_table(file.removeprefix("file://")) for file in files]
    rows: list[dict[str, Any]] = pa.concat_tables(tables).to_pylist() if tables else []
    return rows


@contextlib.contextmanager
def opened(folder: Path, **settings: Any) -> Iterator[StagingLake]:
    found = Settings(home=folder / "lake", flush_events=1, **settings)
    if "database" in settings:  # of PostgreSQL, which a server does not migrate by itself
        database = reach_database(found)
        migrate(database)
        migrate_ingest(found, database)
        database.close()
    catalog = open_catalog(found)
    ingest = open_ingest(found, catalog, OpenIdentity())
    try:
        yield StagingLake(catalog, ingest)
    finally:
        ingest.close()
        catalog.database.close()
