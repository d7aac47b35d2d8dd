"""All code that exists only for speed. `fast_paths = false` turns it off.

Each part replaces a plain implementation and earns at least 1.3 times on a row of the benchmark; a part that
no longer does is deleted. Measured 2026-11-18 on a busy machine, as medians of the ratios of alternating
runs, by `python -m bench.fast_parts` (documents: `python -m bench.fast_documents`). All figures are in
docs/decisions/0001-speed-in-one-folder.md.

    part              replaces                   earns, at 1 / 8 clients
    reads, readers    FastAPI                    loadTable 6.4 / 9.0 on SQLite, 4.8 / 4.7 on PostgreSQL;
                                                 listTables 16 / 13 and 16 / 9
    documents, pieces parsing, encoding all      commit to a table of 1,000 snapshots 1.7 / -
    one_round_trip    a statement each step      create + drop 1.40 / 2.18 on PostgreSQL
    commit_queue      no order                   commits to one table - / 1.45, p99 378 instead of 2,077 ms
"""

from __future__ import annotations

from typing import Any

from catalog.fast.readers import PostgresReader, Reader, SqliteReader
from catalog.fast.reads import App, DocumentCache, FastReads
from catalog.identity.open import OpenIdentity
from catalog.identity.tokens import TokenIdentity
from catalog.services.catalog import Catalog
from catalog.store.database import Database, Writer

READER_SHARE = 4  # one of this many connections of a process is used by reads on the event loop


def writer(url: str) -> Writer | None:
    """One round trip for PostgreSQL. SQLite is in this process, so a statement has no round trip."""
    if url.startswith("sqlite"):
        return None
    from catalog.fast.one_round_trip import OneRoundTrip  # imports psycopg

    return OneRoundTrip()


def reader_connections(url: str, pool_size: int) -> int:
    """How many of a process's connections are used by reads on the event loop."""
    return 0 if url.startswith("sqlite") or pool_size < 2 else max(1, pool_size // READER_SHARE)


def install(app: App, catalog: Catalog, identity: Any, *, separator: str, connections_max: int) -> App:
    """The application with fast reads in front of it.

    `separator` is the decoded separator of namespace levels, `connections_max` is `reader_connections`.
    """
    reader = _reader(catalog.database, connections_max)
    cache = catalog.documents
    if reader is None or not isinstance(cache, DocumentCache):
        return app
    if not isinstance(identity, OpenIdentity | TokenIdentity):
        return app
    return FastReads(
        app,
        reader=reader,
        files=catalog.files,
        cache=cache,
        separator=separator,
        is_open=isinstance(identity, OpenIdentity),
    )


def _reader(database: Database, connections_max: int) -> Reader | None:
    if database.is_sqlite:
        return SqliteReader(database.url.database) if database.url.database else None
    if connections_max < 1:
        return None
    return PostgresReader(
        database.url,
        connections_max=connections_max,
        statement_timeout_s=database.statement_timeout_s,
        lock_timeout_s=database.lock_timeout_s,
    )
