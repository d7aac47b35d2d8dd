"""The API of ingest on a real server in this process, with a real journal and a landing side that a test
moves by hand.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self, cast

import httpx
import orjson
from fastapi import FastAPI

from calve.bootstrap import open_catalog
from calve.http import wrap
from calve.settings import Settings
from catalog.api.errors import add_exception_handlers
from catalog.identity.open import OpenIdentity
from catalog.locations import Location
from catalog.services.catalog import Catalog
from catalog.store.database import Database
from catalog.store.migrations import migrate
from ingest.api import ApiContext, ApiSettings, routers
from ingest.change import TableName
from ingest.journal import schema as journal_schema
from ingest.journal.journal import Journal
from ingest.landing.status import LandingStatus
from ingest.settings import JournalLimits
from tests.harness.thread_server import ThreadServer

BODY_BYTES_MAX = 4 * 2**20


@dataclass(frozen=True, slots=True)
class Row:
    landed_id: int
    number: int | None
    commit_us: int
    mirror_snapshot_id: int | None
    changes_snapshot_id: int | None


@dataclass(slots=True)
class HandMovedLanding:
    """Lands when a test says so, with the methods of `LandingStatus`."""

    journal: Journal
    targets: dict[TableName, dict[str, Any]] = field(default_factory=dict)
    flushes: list[Collection[TableName] | None] = field(default_factory=list)
    lands_on_flush: bool = False
    stalled: str | None = None
    _rows: dict[tuple[str, TableName], Row] = field(default_factory=dict)
    _number: int = 0

    def land(self, warehouse: str) -> None:
        """Everything that is pending becomes visible in one publish."""
        pending = self.journal.pending(warehouse)
        self._number += 1
        for waiting in pending:
            row = Row(waiting.last_id, self._number, time.time_ns() // 1000, 100 + self._number, None)
            self._rows[warehouse, waiting.table] = row
        self.journal.trim(warehouse, {waiting.table: waiting.last_id for waiting in pending})

    def landed(self, warehouse: str, tables: Collection[TableName]) -> Mapping[TableName, int]:
        return {table: row.landed_id for table, row in self.rows(warehouse, tables).items()}

    def rows(self, warehouse: str, tables: Collection[TableName]) -> Mapping[TableName, Row]:
        known = {table: self._rows.get((warehouse, table)) for table in tables}
        return {table: row for table, row in known.items() if row is not None}

    def waiting_up_to(self, warehouse: str, journal_id: int) -> list[TableName]:
        pending = self.journal.pending(warehouse)
        landed = self.landed(warehouse, {row.table for row in pending})
        return [
            row.table
            for row in pending
            if row.first_id <= journal_id and landed.get(row.table, 0) < min(journal_id, row.last_id)
        ]

    def flush(self, warehouse: str, tables: Collection[TableName] | None) -> None:
        self.flushes.append(tables)
        if self.lands_on_flush:
            self.land(warehouse)

    def status(self, warehouse: str) -> dict[str, Any]:
        return {"tables": {}, "workers": [], "last-publish-ms": None, "stalled": self.stalled}

    def explain_table(self, warehouse: str, table: TableName) -> dict[str, Any] | None:
        return self.targets.get(table)


class ApiServer:
    """A running server; `url` and `ws_url` are its addresses."""

    def __init__(
        self,
        catalog: Catalog,
        journal: Journal,
        identity: Any,
        settings: ApiSettings,
        *,
        body_bytes_max: int = BODY_BYTES_MAX,
        timeout_s: float = 60.0,
    ) -> None:
        self.catalog, self.journal = catalog, journal
        self.landing = HandMovedLanding(journal)
        landing = cast("LandingStatus", self.landing)
        self.api = ApiContext(journal, landing, identity, catalog, settings)
        served = Settings(
            body_bytes_max=body_bytes_max,
            request_timeout_s=timeout_s,
            shutdown_timeout_s=2,
            log_level="error",
        )
        self._server = ThreadServer(wrap(web_app(self.api), served), served)

    @property
    def port(self) -> int:
        return self._server.port

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def ws_url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/ws"

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop()
        self.api.close()
        self.journal.close()
        self.journal._database.close()


def web_app(api: ApiContext) -> FastAPI:
    """A FastAPI app with the routes of the API and the error handlers of the server."""
    app = FastAPI(docs_url=None, redoc_url=None)
    app.state.ingest = SimpleNamespace(api=api)
    app.state.identity = OpenIdentity()
    for router in routers():
        app.include_router(router)
    add_exception_handlers(app)
    return app


def catalog_at(folder: Path, database: str | None = None) -> Catalog:
    if database is None:
        return open_catalog(Settings(home=folder))
    prepared = Database(database)
    migrate(prepared)
    prepared.close()
    return open_catalog(Settings(home=folder, database=database))


def journal_at(folder: Path, database: str | None, limits: JournalLimits) -> Journal:
    place = Database(database or f"sqlite:///{folder}/journal.db", pool_size=4)
    journal_schema.migrate(place)
    return Journal(place, limits)


@contextlib.contextmanager
def served(
    folder: Path,
    *,
    database: str | None = None,
    limits: JournalLimits | None = None,
    settings: ApiSettings | None = None,
    identity: Any = None,
    **options: Any,
) -> Iterator[ApiServer]:
    """A running server with a catalog and a journal of its own."""
    catalog = catalog_at(folder, database)
    journal = journal_at(folder, database, limits or JournalLimits())
    found = identity(catalog) if identity is not None else OpenIdentity()
    with ApiServer(catalog, journal, found, settings or ApiSettings(), **options) as server:
        yield server
    catalog.database.close()


class Producer(httpx.Client):
    """Names one warehouse in every request that names none."""

    def __init__(self, url: str, warehouse: str, **options: Any) -> None:
        super().__init__(base_url=url, timeout=60, **options)
        self.warehouse = warehouse

    def request(self, method: str, url: httpx.URL | str, **options: Any) -> httpx.Response:
        address = httpx.URL(url)
        if "warehouse" not in address.params and not address.path.startswith("/lake/"):
            address = address.copy_add_param("warehouse", self.warehouse)
        return super().request(method, address, **options)


_warehouses = itertools.count(1)


def new_warehouse(catalog: Catalog) -> str:
    name = f"w{next(_warehouses)}"
    root = Location.parse(f"{catalog.warehouse('main').root}-{name}")
    catalog.warehouses.create(name, root, catalog.now_ms())
    return name


def event(sequence: int, **fields: Any) -> dict[str, Any]:
    """A native event."""
    return {
        "sequence": sequence,
        "timestamp": 1_790_000_000_000 + sequence,
        "operation": "INSERT",
        "table": "shop.orders",
        "rowId": str(sequence),
        "after": {"id": sequence, "name": f"n{sequence}"},
        **fields,
    }


def batch(number: int, events: list[Any], **fields: Any) -> str:
    """A cdc_batch, as text."""
    message = {
        "type": "cdc_batch",
        "timestamp": 1_790_000_000_000,
        "sourceDoId": "source",
        "events": events,
        "sequenceNumber": number,
        "firstEventSequence": events[0].get("sequence", 0),
        "lastEventSequence": events[-1].get("sequence", 0),
        "sizeBytes": 0,
        "isRetry": False,
        "retryCount": 0,
        **fields,
    }
    return orjson.dumps(message).decode()


def events_in(journal: Journal, warehouse: str) -> list[Any]:
    """All changes that the journal holds, in order."""
    found = []
    for waiting in journal.pending(warehouse):
        for entry in journal.read(warehouse, waiting.table, 0, 2**60):
            found += entry.changes
    return found
