"""Ingest, wired: journal, landing, jobs, staging and the API."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path

from fastapi import APIRouter
from sqlalchemy.exc import ArgumentError, DBAPIError

from calve.opening import database_at, open_catalog
from calve.settings import Settings
from calve.startup import StartupError
from calve.telemetry.metrics import metrics
from catalog.identity.ports import Identity
from catalog.service.catalog import Catalog
from catalog.store.database import Database
from catalog.store.migrations import SchemaMismatch
from ingest.api import ApiContext, ApiSettings, routers
from ingest.api.context import RefuseOrigin
from ingest.batches.cut import Ground, StagedOptions
from ingest.batches.due import Thresholds
from ingest.batches.pool import StagingPool
from ingest.jobs import api as jobs_api
from ingest.jobs import dead_letters_api, tables_api
from ingest.jobs.dispatch import Dispatch
from ingest.jobs.lanes import Lanes
from ingest.jobs.measures import Measures
from ingest.jobs.upkeep import Upkeep
from ingest.jobs.view import LandingView
from ingest.journal import schema as journal_schema
from ingest.journal.journal import Journal
from ingest.journal.limits import JournalLimits
from ingest.landing import schema as landing_schema
from ingest.landing.jobs import Jobs
from ingest.landing.tables import LandingTables

JOURNAL_POOL_SIZE = 4  # appends have one thread; the others read


@dataclass(frozen=True, slots=True)
class Ingest:
    """All parts of ingest. `api` serves the HTTP and WebSocket routes."""

    journal: Journal
    tables: LandingTables
    jobs: Jobs
    lanes: Lanes
    dispatch: Dispatch
    view: LandingView
    pool: StagingPool
    upkeep: Upkeep
    api: ApiContext

    def close(self) -> None:
        self.api.stop()
        self.upkeep.stop()
        self.pool.close()
        self.journal.close()
        self.api.close()
        self.journal.database.close()


def open_ingest(
    settings: Settings, catalog: Catalog, identity: Identity, refuse_origin: RefuseOrigin | None = None
) -> Ingest:
    """Open the journal and the landing side. SQLite files are migrated here."""
    if catalog.database.is_sqlite:
        migrate_ingest(settings, catalog.database)
    try:
        landing_schema.require_current(catalog.database)
    except SchemaMismatch as error:
        raise StartupError(str(error)) from error
    journal = open_journal(settings)
    tables, jobs = LandingTables(catalog.database), Jobs(catalog.database)
    lanes = Lanes(journal, tables, jobs, thresholds(settings))
    pool = StagingPool(functools.partial(open_ground, settings))
    dispatch = Dispatch(catalog, journal, jobs, lanes, pool, Measures(metrics))
    view = LandingView(catalog, journal, tables, jobs, lanes, dispatch)
    upkeep = Upkeep(catalog, journal, tables, jobs)
    api = ApiContext(journal, view, identity, catalog, api_settings(settings), metrics, refuse_origin)
    return Ingest(journal, tables, jobs, lanes, dispatch, view, pool, upkeep, api)


def ingest_routers() -> tuple[APIRouter, ...]:
    return (*routers(), jobs_api.router, tables_api.router, dead_letters_api.router)


def migrate_ingest(settings: Settings, database: Database) -> None:
    """Bring the journal and the landing tables to this program's version."""
    journal = reach_journal(settings)
    try:
        if landing_schema.require_known(database) != landing_schema.VERSION:
            landing_schema.migrate(database)
        if journal_schema.version(journal) != journal_schema.VERSION:
            journal_schema.migrate(journal)
    except SchemaMismatch as error:
        raise StartupError(str(error)) from error
    finally:
        journal.close()


def reach_journal(settings: Settings) -> Database:
    try:
        database = database_at(settings, settings.journal, JOURNAL_POOL_SIZE)
        if database.is_sqlite and database.url.database:
            Path(database.url.database).parent.mkdir(parents=True, exist_ok=True)
    except (DBAPIError, ArgumentError, OSError) as error:
        raise StartupError(f"Cannot open the journal: {str(error).splitlines()[0]}") from error
    return database


def open_journal(settings: Settings) -> Journal:
    database = reach_journal(settings)
    try:
        journal_schema.require_current(database)
    except SchemaMismatch as error:
        raise StartupError(str(error)) from error
    limits = JournalLimits(
        bytes_max=settings.buffer_bytes_max,
        fallback_bytes_max=settings.fallback_bytes_max,
        window_ms=settings.deduplication_window_ms,
        transaction_linger_ms=settings.transaction_linger_ms,
        transaction_wait_ms=settings.transaction_wait_ms,
        deduplicate=settings.deduplication,
    )
    return Journal(database, limits)


def open_ground(settings: Settings) -> Ground:
    """What the staging process stands on, opened inside it."""
    catalog = open_catalog(settings)
    options = StagedOptions(settings.parquet_row_group_rows, settings.parquet_compression)
    return Ground(catalog, open_journal(settings), LandingTables(catalog.database), options)


def api_settings(settings: Settings) -> ApiSettings:
    secret = settings.webhook_secret
    return ApiSettings(
        default_namespace=tuple(settings.default_namespace.split(".")),
        dead_letter_sources=frozenset(
            name.strip() for name in (settings.dead_letter_sources or "").split(",") if name.strip()
        ),
        webhook_secret=None if secret is None else secret.get_secret_value(),
        message_bytes_max=settings.message_bytes_max,
        event_bytes_max=settings.event_bytes_max,
        messages_per_s=settings.messages_per_s,
        connections_max=settings.connections_max,
        connections_per_s=settings.connections_per_s,
        connections_per_source_max=settings.connections_per_source_max,
        connections_per_address_max=settings.connections_per_address_max,
        freshness_target_ms=settings.freshness_target_ms,
    )


def thresholds(settings: Settings) -> Thresholds:
    return Thresholds(
        events=settings.flush_events,
        stored_bytes=settings.flush_bytes,
        freshness_ms=min(settings.freshness_target_ms, settings.flush_interval_ms, settings.flush_age_ms_max),
        batch_events_max=settings.batch_events_max,
    )
