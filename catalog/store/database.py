"""The database: one engine with one bounded pool, reads outside of transactions, short write transactions.

    database.fetch_all(statement, params)     # sees the newest commit of any process
    database.write(work)                      # work(connection) in one transaction

Statements are ordinary SQLAlchemy Core. `Database` takes a `Writer`, so that catalog/fast can send a write to
PostgreSQL in one round trip. `pack` and `unpack` are the stored form of documents.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar, cast

import sqlalchemy as sa
import zstandard
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError
from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_random

from catalog import faults
from catalog.errors import CommitStateUnknown, Unavailable
from catalog.models import CatalogEntry, WriteRequest

BUSY_TIMEOUT_S = 30
CONNECT_TIMEOUT_S = 10
READ_ATTEMPTS_MAX = 3
WRITE_ATTEMPTS_MAX = 5
# PostgreSQL ended the transaction because of another one (serialization failure, deadlock): it is run again.
RETRYABLE_SQLSTATES = frozenset({"40001", "40P01"})
# The database server is stopping, has stopped or is starting.
SHUTDOWN_SQLSTATES = frozenset({"57P01", "57P02", "57P03"})
NOTHING_CHANGED = "the catalog database refused the write; nothing was changed"

T = TypeVar("T")
Work = Callable[[sa.Connection], T]
Params = Mapping[str, Any]
DATABASE_ERRORS = (DBAPIError, sa.exc.TimeoutError)


class Writer(Protocol):
    """Decides when a write runs, and with which others in one transaction."""

    def write(self, transaction: Callable[[Work[Any]], Any], work: Work[T]) -> T:
        """Run `work` by `transaction`, which runs one function in a transaction and commits it."""

    def write_changes(
        self, database: Database, warehouse: str, request: WriteRequest
    ) -> tuple[int, int] | None:
        """Write the changes in a way of its own, and return the number and the version of new entries.

        None if it has no such way, or if nothing was written: then store/entries.py writes them.
        """
        return None


class PlainWriter(Writer):
    """Each write in its own transaction; for SQLite one after the other.

    SQLite has one writer at a time, and its own busy handler sleeps up to 100 ms between two attempts.
    """

    def __init__(self, *, is_sqlite: bool) -> None:
        self._lock = threading.Lock() if is_sqlite else None

    def write(self, transaction: Callable[[Work[Any]], Any], work: Work[T]) -> T:
        if self._lock is None:
            return transaction(work)  # type: ignore[no-any-return]
        if not self._lock.acquire(timeout=BUSY_TIMEOUT_S):
            raise Unavailable("the catalog database is busy; nothing was changed")
        try:
            return transaction(work)  # type: ignore[no-any-return]
        finally:
            self._lock.release()


class Database:
    """One SQLite file or one PostgreSQL database."""

    def __init__(
        self,
        url: str,
        *,
        pool_size: int = 8,
        statement_timeout_s: float = 30,
        lock_timeout_s: float = 10,
        writer: Writer | None = None,
    ) -> None:
        self.url = sa.make_url(url)
        if self.url.drivername == "postgresql":
            self.url = self.url.set(drivername="postgresql+psycopg")
        self.is_sqlite = self.url.get_backend_name() == "sqlite"
        if self.is_sqlite:
            self.engine = _sqlite_engine(self.url, pool_size)
            self._autocommit = self.engine.execution_options(sqlite_begin=False)
        else:
            self.engine = _postgresql_engine(self.url, pool_size, statement_timeout_s, lock_timeout_s)
            self._autocommit = self.engine.execution_options(isolation_level="AUTOCOMMIT")
        self.statement_timeout_s = statement_timeout_s
        self.lock_timeout_s = lock_timeout_s
        self._writer = writer or PlainWriter(is_sqlite=self.is_sqlite)
        self._retrying = Retrying(
            retry=retry_if_exception(_may_run_again),
            stop=stop_after_attempt(WRITE_ATTEMPTS_MAX),
            wait=wait_random(0.005, 0.05),
            reraise=True,
        )

    # -- reads

    def fetch_all(self, statement: sa.Executable, params: Params | None = None) -> Sequence[Any]:
        """All rows, read outside of a transaction. After a lost connection the read is repeated."""
        for attempt in range(1, READ_ATTEMPTS_MAX + 1):
            try:
                with self.autocommit() as connection:
                    return connection.execute(statement, params).all()
            except (OperationalError, sa.exc.InterfaceError, sa.exc.TimeoutError) as error:
                if attempt == READ_ATTEMPTS_MAX or not _is_disconnect(error):
                    raise Unavailable("the catalog database does not answer; try again") from error
                time.sleep(0.05 * attempt)
        raise AssertionError("unreachable")

    def fetch_one(self, statement: sa.Executable, params: Params | None = None) -> Any | None:
        """The first row, or None."""
        rows = self.fetch_all(statement, params)
        return rows[0] if rows else None

    # -- writes

    def write(self, work: Work[T]) -> T:
        """Run `work` in one transaction and commit it.

        After a deadlock, a serialization failure or a connection that is lost before COMMIT, it runs again.
        Another error before COMMIT raises Unavailable: nothing was changed. An error in COMMIT raises
        CommitStateUnknown: the caller must not undo anything.
        """
        try:
            return cast("T", self._retrying(self._writer.write, self.transaction, work))
        except IntegrityError:
            raise
        except DATABASE_ERRORS as error:
            raise Unavailable(NOTHING_CHANGED) from error

    def write_changes(self, warehouse: str, request: WriteRequest) -> tuple[int, int] | None:
        """As `Writer.write_changes`. None also after an error after which `write` runs again."""
        try:
            return self._writer.write_changes(self, warehouse, request)
        except DATABASE_ERRORS as error:
            if _may_run_again(error):
                return None
            raise Unavailable(NOTHING_CHANGED) from error

    def autocommit(self) -> sa.Connection:
        """A connection of the pool on which each statement is its own transaction."""
        return self._autocommit.connect()

    def transaction(self, work: Work[T]) -> T:
        """Run `work` in one transaction, once."""
        with self.engine.connect() as connection, connection.begin() as transaction:
            faults.reach("swap.begun")
            result = work(connection)
            faults.reach("swap.before-commit")
            try:
                transaction.commit()
            except DBAPIError as error:
                if _sqlstate(error) in RETRYABLE_SQLSTATES:
                    raise
                raise CommitStateUnknown(
                    "the database did not confirm the commit; look before you retry"
                ) from error
        faults.reach("swap.committed")
        return result

    def close(self) -> None:
        self.engine.dispose()


def lift_time_limits(connection: sa.Connection) -> None:
    """Remove the time limits for the rest of a PostgreSQL transaction. A migration may take long."""
    connection.execute(sa.text("SET LOCAL statement_timeout = 0"))
    connection.execute(sa.text("SET LOCAL lock_timeout = 0"))


def _postgresql_engine(
    url: sa.URL, pool_size: int, statement_timeout_s: float, lock_timeout_s: float
) -> sa.Engine:
    bounds = f"-c statement_timeout={_ms(statement_timeout_s)} -c lock_timeout={_ms(lock_timeout_s)}"
    arguments: dict[str, Any] = {"options": f"{bounds} {_text(url.query.get('options', ''))}".strip()}
    if "connect_timeout" not in url.query:
        arguments["connect_timeout"] = CONNECT_TIMEOUT_S
    return sa.create_engine(
        url,
        pool_size=pool_size,
        max_overflow=0,
        pool_timeout=BUSY_TIMEOUT_S,
        pool_use_lifo=True,  # so that few connections prepare the statements
        hide_parameters=True,
        connect_args=arguments,
    )


def _sqlite_engine(url: sa.URL, pool_size: int) -> sa.Engine:
    bounds = {"pool_size": pool_size, "max_overflow": 0, "pool_timeout": BUSY_TIMEOUT_S}
    engine = sa.create_engine(
        url,
        # without a file, the database is in memory and has one connection
        **(bounds if url.database else {}),
        hide_parameters=True,
        connect_args={"timeout": BUSY_TIMEOUT_S, "check_same_thread": False},
    )
    sa.event.listen(engine, "connect", _prepare_sqlite)
    sa.event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: sqlite3.Connection, _record: object) -> None:
    connection.isolation_level = None  # `_begin_sqlite` sends BEGIN instead of Python's driver
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_S * 1000}")
    connection.execute("PRAGMA cache_size=-16384")
    # After 32 MB. By default, every second change of a document of 3 MB would be written a second time.
    connection.execute("PRAGMA wal_autocheckpoint=8000")


def _begin_sqlite(connection: sa.Connection) -> None:
    """IMMEDIATE: a transaction that reads before it writes must hold the write lock from the start."""
    if connection.get_execution_options().get("sqlite_begin", True):
        connection.exec_driver_sql("BEGIN IMMEDIATE")


def _may_run_again(error: BaseException) -> bool:
    """Whether a write failed because of other transactions or of a lost connection, and before COMMIT."""
    if isinstance(error, DBAPIError) and error.connection_invalidated:
        return True
    return _sqlstate(error) in RETRYABLE_SQLSTATES


def _is_disconnect(error: Exception) -> bool:
    """Whether the server did not answer or is stopping."""
    if isinstance(error, sa.exc.TimeoutError):
        return False  # the pool's timeout: all connections are in use
    return _sqlstate(error) in SHUTDOWN_SQLSTATES or _sqlstate(error) is None


def _sqlstate(error: BaseException) -> str | None:
    return getattr(getattr(error, "orig", error), "sqlstate", None)


def _ms(seconds: float) -> int:
    return int(seconds * 1000)


def _text(value: str | tuple[str, ...]) -> str:
    return value if isinstance(value, str) else " ".join(value)


# The stored form of documents: JSON, compressed by zstd at its fastest level, in one frame or several

_local = threading.local()
# Decompressed in steps, because zstandard copies all that follows a frame in its input.
UNPACK_BYTES = 64 * 1024


def pack(document: bytes) -> bytes:
    """Compress a document for its row."""
    compressor: zstandard.ZstdCompressor | None = getattr(_local, "compressor", None)
    if compressor is None:  # costly to create, and cannot be shared between threads
        compressor = _local.compressor = zstandard.ZstdCompressor(level=1)
    return compressor.compress(document)


def pack_entry(entry: CatalogEntry) -> bytes:
    """The document of an entry for its row."""
    assert entry.text is not None, "a written entry carries its document"
    return pack(entry.text) if isinstance(entry.text, bytes) else entry.text.packed()


def unpack(packed: bytes) -> bytes:
    """Decompress a document to JSON text. Raises ZstdError if it is truncated."""
    decompressor: zstandard.ZstdDecompressor | None = getattr(_local, "decompressor", None)
    if decompressor is None:
        decompressor = _local.decompressor = zstandard.ZstdDecompressor()
    parts, at = list[bytes](), 0
    while at < len(packed) or not parts:
        frame = decompressor.decompressobj()
        while not frame.eof:
            step = packed[at : at + UNPACK_BYTES]
            if not step:
                raise zstandard.ZstdError("the compressed document is cut off")
            parts.append(frame.decompress(step))
            at += len(step)
        at -= len(frame.unused_data)
    return b"".join(parts)
