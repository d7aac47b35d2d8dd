"""From settings to everything that the application needs: database, storage, catalog, journal, landing.

An error on the way becomes a `StartupError`: one sentence that says what to do about it.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path

from fastapi import APIRouter
from sqlalchemy.exc import ArgumentError, DBAPIError

from calve.settings import Settings
from calve.startup import StartupError
from catalog import fast
from catalog.errors import CatalogError, Invalid
from catalog.fast.reads import DocumentCache
from catalog.identity.base import Identity
from catalog.identity.open import OpenIdentity
from catalog.identity.tokens import TokenIdentity
from catalog.services.catalog import Catalog, Limits
from catalog.services.warehouses import ensure_main
from catalog.storage.files import StorageFiles
from catalog.storage.s3 import S3Settings
from catalog.store.database import Database
from catalog.store.migrations import SchemaMismatch, migrate, require_current
from catalog.store.migrations import version as schema_version
from catalog.store.warehouses import WarehouseStore
from ingest.api import ApiContext, ApiSettings, dead_letters, epochs, rebuild, routers, table_settings
from ingest.api import jobs as jobs_api
from ingest.api import resync as resync_api
from ingest.journal import schema as journal_schema
from ingest.journal.journal import Journal
from ingest.landing.batches import BatchCutter
from ingest.landing.history_view import HistoryViews
from ingest.landing.housekeeping import Housekeeping
from ingest.landing.job_service import JobService
from ingest.landing.job_staging import LandingMetrics
from ingest.landing.journals import Mismatch, find_mismatches
from ingest.landing.rebuild import Rebuilds
from ingest.landing.resync import ResyncService
from ingest.landing.status import LandingStatus
from ingest.settings import JournalLimits, StagedOptions, Thresholds
from ingest.sources import api as sources_api
from ingest.sources import tables_api
from ingest.sources.store import SourceStore
from ingest.staging.context import StagingContext
from ingest.staging.process import StagingProcess
from ingest.store import schema as landing_schema
from ingest.store.jobs import Jobs
from ingest.store.mirrors import Mirrors
from ingest.store.resyncs import Resyncs
from ingest.store.tables import LandingTables
from ingest.verification import api as verification_api
from maintenance.kept_moments import KeptMomentsPolicy

JOURNAL_POOL_SIZE = 4  # appends have one thread; the others read


def check_start(settings: Settings) -> None:
    """Open everything once and close it: an error is known before the server processes start."""
    catalog = open_catalog(settings)
    try:
        open_ingest(settings, catalog, open_identity(settings, catalog)).close()
    finally:
        catalog.database.close()


def open_identity(settings: Settings, catalog: Catalog) -> OpenIdentity | TokenIdentity:
    if settings.auth == "open":
        return OpenIdentity()
    return TokenIdentity(catalog.database, token_lifetime_s=settings.token_lifetime_s)


def database_at(settings: Settings, url: str, pool_size: int) -> Database:
    """A database with the bounds and the writer that the settings name."""
    return Database(
        url,
        pool_size=pool_size,
        statement_timeout_s=settings.database_statement_timeout_s,
        lock_timeout_s=settings.database_lock_timeout_s,
        writer=fast.writer(url) if settings.fast_paths else None,
    )


def reader_connections(settings: Settings) -> int:
    """How many of the database's connections are used by the reads on the event loop."""
    if not settings.fast_paths:
        return 0
    return fast.reader_connections(settings.database, settings.database_pool_size)


def require_catalog(settings: Settings) -> None:
    """SQLite creates a missing file, but a mistyped folder must not look like an empty catalog."""
    file = settings.database.removeprefix("sqlite:///")
    if file != settings.database and not Path(file).exists():
        raise StartupError(f"there is no catalog at {file}: is --home right?")


def reach_database(settings: Settings) -> Database:
    """Return the database, at any schema version, if it responds."""
    try:
        pool_size = settings.database_pool_size - reader_connections(settings)
        database = database_at(settings, settings.database, pool_size)
        if database.is_sqlite and database.url.database:
            Path(database.url.database).parent.mkdir(parents=True, exist_ok=True)
        schema_version(database)
    except (DBAPIError, ArgumentError, OSError) as error:
        reason = str(getattr(error, "orig", None) or error).splitlines()[0]
        raise StartupError(f"Cannot open the database: {reason}") from error
    return database


def open_database(settings: Settings) -> Database:
    """The database at the right schema version. SQLite files are migrated here, because they have one
    owner.
    """
    database = reach_database(settings)
    try:
        if database.is_sqlite:
            migrate(database)
        require_current(database)
    except SchemaMismatch as error:
        raise StartupError(str(error)) from error
    return database


def open_catalog(settings: Settings) -> Catalog:
    """The catalog on its database and storage, with the warehouse `main`."""
    database = open_database(settings)
    roots = {settings.warehouse_root, *(known.root for known in WarehouseStore(database).all())}
    files = StorageFiles(_s3(settings), file_roots=[root for root in roots if not root.startswith("s3")])
    limits = Limits(
        drop_retention_s=settings.drop_retention_s,
        transaction_ttl_s=settings.transaction_ttl_s,
        idempotency_lifetime_s=settings.idempotency_lifetime_s,
        pin_s=settings.reader_pin_s,
        pin_after_s=_all_kept_s(settings) / 2,
        page_size_max=settings.page_size_max,
        namespace_separator=settings.namespace_separator_text,
    )
    documents = DocumentCache(settings.document_cache_bytes_max) if settings.fast_paths else None
    catalog = Catalog(database, files, limits, files.client_properties, documents)
    try:
        ensure_main(catalog, settings.warehouse_root)
    except CatalogError as error:
        raise StartupError(error.message) from error
    return catalog


def _all_kept_s(settings: Settings) -> float:
    """How long every moment is kept."""
    try:
        return KeptMomentsPolicy.parse(settings.kept_moments).all_ms / 1000
    except Invalid as error:
        raise StartupError(f"kept_moments: {error.message}") from error


def _s3(settings: Settings) -> S3Settings:
    secret = settings.s3_secret_access_key
    try:
        return S3Settings(
            endpoint=settings.s3_endpoint,
            region=settings.s3_region,
            access_key_id=settings.s3_access_key_id,
            secret_access_key=None if secret is None else secret.get_secret_value(),
            path_style=settings.s3_path_style,
            connect_timeout_s=settings.s3_connect_timeout_s,
            request_timeout_s=settings.s3_request_timeout_s,
            total_timeout_s=max(9.0, 2.2 * settings.s3_request_timeout_s),  # time for a second try
        )
    except ValueError as error:
        raise StartupError(str(error)) from error


@dataclass(frozen=True, slots=True)
class Ingest:
    """All parts of ingest. `api` serves the HTTP and WebSocket routes."""

    journal: Journal
    tables: LandingTables
    jobs: Jobs
    cutter: BatchCutter
    job_service: JobService
    landing_status: LandingStatus
    staging_process: StagingProcess
    housekeeping: Housekeeping
    api: ApiContext
    sources: SourceStore
    resync: ResyncService
    history_views: HistoryViews
    rebuilds: Rebuilds

    def close(self) -> None:
        self.api.stop()
        self.housekeeping.stop()
        self.staging_process.close()
        self.journal.close()
        self.api.close()
        self.journal.database.close()


def open_ingest(settings: Settings, catalog: Catalog, identity: Identity) -> Ingest:
    """Open the journal and the landing side. SQLite files are migrated here."""
    if catalog.database.is_sqlite:
        migrate_ingest(settings, catalog.database)
    try:
        landing_schema.require_current(catalog.database)
    except SchemaMismatch as error:
        raise StartupError(str(error)) from error
    journal = open_journal(settings)
    mismatches = journal_mismatches(catalog, journal)
    if mismatches:
        journal.database.close()
        raise StartupError(f"Warehouse {mismatches[0].warehouse}: {mismatches[0].reason}")
    tables, jobs = LandingTables(catalog.database), Jobs(catalog.database)
    sources = SourceStore(catalog.database)
    resyncs = Resyncs(catalog.database)
    cutter = BatchCutter(journal, tables, jobs, thresholds(settings), sources.pauses, tables.resyncs)
    staging_process = StagingProcess(functools.partial(open_staging, settings))
    job_service = JobService(catalog, journal, jobs, cutter, staging_process, LandingMetrics())
    rebuilds = Rebuilds(catalog, jobs, tables, Mirrors(catalog.database), job_service.wakeup.wake)
    job_service.rebuilds = rebuilds
    landing_status = LandingStatus(catalog, journal, tables, jobs, cutter, job_service, sources.pauses)
    resync = ResyncService(journal, resyncs, landing_status, lifetime_s=settings.resync_timeout_s)
    history_views = HistoryViews(catalog)
    housekeeping = Housekeeping(catalog, journal, tables, jobs, sources, resync, history_views)
    api = ApiContext(
        journal, landing_status, identity, catalog, api_settings(settings), sources.rules, resync
    )
    return Ingest(
        journal,
        tables,
        jobs,
        cutter,
        job_service,
        landing_status,
        staging_process,
        housekeeping,
        api,
        sources,
        resync,
        history_views,
        rebuilds,
    )


def journal_mismatches(catalog: Catalog, journal: Journal) -> list[Mismatch]:
    """Why the journal and the database do not fit together, for each warehouse where they do not."""
    names = [warehouse.name for warehouse in catalog.warehouses.all()]
    return find_mismatches(catalog.database, journal, LandingTables(catalog.database), names)


def ingest_routers() -> tuple[APIRouter, ...]:
    return (
        *routers(),
        jobs_api.router,
        table_settings.router,
        dead_letters.router,
        sources_api.router,
        tables_api.router,
        rebuild.router,
        epochs.router,
        verification_api.router,
        resync_api.router,
    )


def migrate_ingest(settings: Settings, database: Database) -> None:
    """Migrate the journal and the landing tables to this program's version."""
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


def open_staging(settings: Settings) -> StagingContext:
    """The resources of the staging process, opened inside it."""
    catalog = open_catalog(settings)
    options = StagedOptions(settings.parquet_row_group_rows, settings.parquet_compression)
    tables = LandingTables(catalog.database)
    return StagingContext(catalog, open_journal(settings), tables, options, settings.checksums)


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
        batch_bytes_max=settings.batch_bytes_max,
    )
