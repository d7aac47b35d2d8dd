"""Creates the query service from the settings: query processes, what they may access, and table storage."""

from __future__ import annotations

import functools
import ipaddress
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from calve.bootstrap import Ingest
from calve.settings import Settings
from catalog.services.catalog import Catalog
from ingest.api import ApiContext
from ingest.store.tables import LandingTables
from query import sandbox
from query.explain import SnapshotFiles
from query.landing import Freshness
from query.pool import ProcessPool, ProcessSettings
from query.resolve import TableRead
from query.service import QueryLimits, QueryService
from query.tables.access import TableOpener
from query.unpublished import FreshLimits, Unpublished

if TYPE_CHECKING:
    import pyarrow as pa

    from ingest.staging.pending_fold import PendingFold
    from ingest.staging.pending_rows import Bases, FoldedRows
    from query.tables.hot_rows import HotRows

WAITING_MAX = 100  # queries that wait for a process
THREADS_MAX = 4
# Files that are needed to resolve a host name and to check a certificate, if the store has a host name.
NETWORK_PATHS = (
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/nsswitch.conf",
    "/etc/host.conf",
    "/etc/gai.conf",
    "/etc/ssl",
    "/etc/pki",
    "/usr/lib",
    "/lib",
    "/lib64",
    "/usr/share/ca-certificates",
)


def open_query(
    settings: Settings,
    catalog: Catalog,
    ingest: ApiContext | None,
    tables: TableOpener,
    pending: Callable[[], PendingFold] | None,
) -> QueryService:
    """The query service. Its processes start with the first query."""

    def files_of(read: TableRead) -> SnapshotFiles:
        from query.tables import snapshot_files  # imports PyIceberg

        return snapshot_files.files_of(tables, read)

    pool = ProcessPool(
        process_settings(settings, catalog),
        size=settings.query_processes_max,
        per_caller_max=settings.query_concurrency_per_caller,
        waiting_max=WAITING_MAX,
    )
    limits = QueryLimits(
        timeout_s=settings.query_timeout_s,
        result_bytes_max=settings.query_result_bytes_max,
        default_namespace=settings.default_namespace,
        sandbox_missing=_refusal(settings),
    )
    freshness = Freshness(ingest)
    fresh = FreshLimits(settings.query_fresh_events_max, settings.query_fresh_bytes_max)
    unpublished = Unpublished(catalog, freshness, pending, fresh)
    return QueryService(catalog, freshness, pool, limits, files_of, unpublished)


def readiness(settings: Settings) -> str:
    """What /ready reports about queries."""
    refusal = _refusal(settings)
    if refusal is not None:
        return refusal
    if settings.query_sandbox == "off":
        return "ok, without confinement by the kernel: query_sandbox is off"
    lacking = _lacking()
    return (
        f"ok, without confinement of {lacking} by the kernel: it lacks Landlock for it" if lacking else "ok"
    )


def process_settings(settings: Settings, catalog: Catalog) -> Callable[[], ProcessSettings]:
    """What a query process may access: the catalog, and the storage of the warehouses that exist now."""
    endpoint = own_address(settings)
    port = urlsplit(endpoint).port
    assert port is not None
    s3, s3_port, is_named = _s3(settings)

    def current() -> ProcessSettings:
        roots = sorted(warehouse.root.rstrip("/") for warehouse in catalog.warehouses.all())
        for root in roots:
            catalog.files.make_directory(root)  # the kernel allows what exists when a process starts
        local = [root.removeprefix("file://") for root in roots if root.startswith("file://")]
        has_s3 = any(not root.startswith("file://") for root in roots)
        return ProcessSettings(
            endpoint=endpoint,
            read_paths=(*local, *(NETWORK_PATHS if has_s3 and is_named else ())),
            data_paths=tuple(f"{path}/" for path in (*roots, *local)),
            tcp_ports=(port, s3_port) if has_s3 else (port,),
            s3=s3 if has_s3 else (),
            memory_bytes_max=settings.query_memory_bytes_max,
            threads=min(THREADS_MAX, os.cpu_count() or 1),
            confine=settings.query_sandbox != "off",
        )

    return current


def own_address(settings: Settings) -> str:
    """The address under which processes of this machine reach the server."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)
    return f"http://[{host}]:{settings.port}" if ":" in host else f"http://{host}:{settings.port}"


def _s3(settings: Settings) -> tuple[tuple[tuple[str, str], ...], int, bool]:
    """Options of a DuckDB secret, the port of the store, and whether its host is a name."""
    endpoint = urlsplit(settings.s3_endpoint) if settings.s3_endpoint else None
    secret = settings.s3_secret_access_key
    options = [("REGION", settings.s3_region)]
    if settings.s3_access_key_id is not None and secret is not None:
        options += [("KEY_ID", settings.s3_access_key_id), ("SECRET", secret.get_secret_value())]
    if settings.s3_path_style:
        options.append(("URL_STYLE", "path"))
    if endpoint is None:
        return tuple(options), 443, True
    is_tls = endpoint.scheme == "https"
    options += [("ENDPOINT", endpoint.netloc + endpoint.path), ("USE_SSL", "true" if is_tls else "false")]
    return tuple(options), endpoint.port or (443 if is_tls else 80), not _is_address(endpoint.hostname or "")


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _lacking() -> str:
    supported = sandbox.supported()
    return " and ".join(what for what in ("files", "network") if what not in supported)


def _refusal(settings: Settings) -> str | None:
    lacking = _lacking()
    if settings.query_sandbox == "require" and lacking:
        return (
            f"queries are refused: query_sandbox=require, and the kernel lacks Landlock for {lacking}. "
            "Use Linux 6.7 or newer, or set query_sandbox=auto"
        )
    return None


def open_tables(settings: Settings, catalog: Catalog, landing: LandingTables | None) -> TableOpener:
    """What the table functions open tables with."""

    def io_properties(root: str) -> dict[str, str]:
        properties = dict(catalog.client_properties(root))
        secret = settings.s3_secret_access_key
        if properties and settings.s3_access_key_id is not None and secret is not None:
            properties["s3.access-key-id"] = settings.s3_access_key_id
            properties["s3.secret-access-key"] = secret.get_secret_value()
        return properties

    return TableOpener(catalog, landing, io_properties)


def open_pending(ingest: Ingest) -> Callable[[], PendingFold]:
    """Create what adds unpublished changes, with the first request for them: it imports Arrow."""

    @functools.cache
    def made() -> PendingFold:
        from ingest.staging.pending_fold import PendingFold

        return PendingFold(ingest.journal, ingest.tables, _fold)

    return made


def open_hot_rows(pending: Callable[[], PendingFold]) -> Callable[[], HotRows]:
    """Create the service behind `rows/{key}?consistency=fresh`, with the first such request."""

    @functools.cache
    def made() -> HotRows:
        from query.tables.hot_rows import HotRows

        return HotRows(pending())

    return made


def _fold(staged: pa.Table, description: dict[str, Any], bases: Bases) -> FoldedRows:
    """Fold rows as a worker does, without `__changes` and without evidence about a guessed key."""
    from ingest.staging.pending_rows import CannotFold, FoldedRows
    from spark_jobs.landing.fold import DELETE, fold
    from spark_jobs.messages import BadJob, TableJob

    job = TableJob.model_validate({**description, "changes": None, "guessed": False})
    try:
        mirror = fold(staged, job, 0, bases=bases).mirror
    except BadJob as error:
        raise CannotFold(str(error)) from error
    assert mirror is not None
    is_deleted = mirror.rows.column(DELETE).to_pylist()
    return FoldedRows(mirror.rows.select(list(job.columns)), is_deleted, mirror.truncated)
