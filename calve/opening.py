"""From settings to what the application stands on: the database, the storage, the catalog."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy.exc import ArgumentError, DBAPIError

from calve.settings import Settings
from calve.startup import StartupError
from catalog import fast
from catalog.errors import CatalogError
from catalog.fast.document_cache import DocumentCache
from catalog.service.catalog import Catalog, Limits
from catalog.service.warehouses import ensure_main
from catalog.storage.files import StorageFiles
from catalog.storage.settings import S3Settings
from catalog.store.database import Database
from catalog.store.migrations import SchemaMismatch, migrate, require_current
from catalog.store.migrations import version as schema_version
from catalog.store.warehouses import WarehouseStore


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
    """How many of the database's connections belong to the reads on the event loop."""
    if not settings.fast_paths:
        return 0
    return fast.reader_connections(settings.database, settings.database_pool_size)


def reach_database(settings: Settings) -> Database:
    """The database, whatever its version, if it answers."""
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
    """The database at the right version. SQLite files are brought up to date here: they have one owner."""
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
            total_timeout_s=max(9.0, 2.2 * settings.s3_request_timeout_s),  # room for a second try
        )
    except ValueError as error:
        raise StartupError(str(error)) from error
