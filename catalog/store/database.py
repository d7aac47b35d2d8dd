"""The way to the database: one engine, short write transactions, and reads that cost microseconds.

Statements on hot paths are `Prepared`: SQLAlchemy compiles them once, and they run on the driver's own
cursor, because building and executing a Core statement costs more than most of our queries. A `Read` runs
outside of a transaction, anything else inside the one of `Database.write`. Each thread has one read
connection in autocommit, so that a read always sees the newest commit of any process.
"""

from __future__ import annotations

import random
import sqlite3
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError

from catalog import faults
from catalog.errors import CommitStateUnknown, Unavailable
from catalog.store.grouping import Jobs, Outcome, Work
from catalog.timing import stage

BUSY_TIMEOUT_S = 30
READ_ATTEMPTS_MAX = 3
WRITE_ATTEMPTS_MAX = 5
# PostgreSQL: the transaction was rolled back through no fault of its own and may be run again.
RETRYABLE_SQLSTATES = frozenset({"40001", "40P01"})

T = TypeVar("T")


class Prepared:
    """A statement that SQLAlchemy compiled once for each dialect; parameters are named as in the statement.

    `columns` are those that an INSERT fills.
    """

    def __init__(self, statement: sa.Executable, columns: Sequence[str] | None = None) -> None:
        self._statement: Any = statement
        self._columns = columns
        self._compiled: dict[str, Compiled] = {}

    def compiled(self, dialect: sa.Dialect) -> Compiled:
        found = self._compiled.get(dialect.name)
        if found is None:
            compiled = self._statement.compile(dialect=dialect, column_keys=self._columns)
            order = getattr(compiled, "positiontup", None)
            constants = {name: value for name, value in compiled.params.items() if value is not None}
            found = Compiled(str(compiled), tuple(order) if order is not None else None, constants)
            self._compiled[dialect.name] = found
        return found

    def run(self, connection: sa.Connection, params: Mapping[str, Any]) -> Any:
        """Inside a write: the driver's cursor, with `rowcount`, `fetchone` and `fetchall`."""
        compiled = self.compiled(connection.dialect)
        cursor: Any = connection.connection.cursor()
        cursor.execute(compiled.sql, compiled.values(params))
        return cursor


class Read(Prepared):
    """A SELECT that runs outside of a write, on a connection that sees the newest commit."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """The text, its parameters in order where the driver wants that, and those with a fixed value."""

    sql: str
    order: tuple[str, ...] | None
    constants: dict[str, Any]

    def values(self, params: Mapping[str, Any]) -> Any:
        given = {**self.constants, **params} if self.constants else params
        return [given[name] for name in self.order] if self.order is not None else given


class Database:
    """One SQLite file or one PostgreSQL database."""

    def __init__(self, url: str, *, pool_size: int = 8) -> None:
        self.url = sa.make_url(url)
        if self.url.drivername == "postgresql":
            self.url = self.url.set(drivername="postgresql+psycopg")
        self.is_sqlite = self.url.get_backend_name() == "sqlite"
        self.engine = _engine(self.url, self.is_sqlite, pool_size)
        driver: Any = self.engine.dialect.dbapi
        self._any_error: tuple[type[Exception], ...] = (DBAPIError, sa.exc.TimeoutError, driver.Error)
        self._integrity_error = (sa.exc.IntegrityError, driver.IntegrityError)
        self._local = threading.local()
        # One writer at a time in this process: SQLite's own busy handler sleeps up to 100 ms
        # between two looks. Its connection is kept: fetching one costs as much as the statements of a commit.
        self._jobs = Jobs(self._write_group) if self.is_sqlite else None
        self._writer: sa.Connection | None = None

    @property
    def dialect(self) -> sa.Dialect:
        return self.engine.dialect

    # -- reads

    def rows(self, read: Read, params: Mapping[str, Any]) -> Sequence[Any]:
        """All rows. A broken connection is replaced and the read tried again: a read can be."""
        compiled = read.compiled(self.engine.dialect)
        values = compiled.values(params)
        for attempt in range(READ_ATTEMPTS_MAX):
            try:
                with stage("read"):
                    return self._connection().execute(compiled.sql, values).fetchall()  # type: ignore[no-any-return]
            except self._dbapi_errors() as error:
                self._forget_connection()
                if attempt + 1 == READ_ATTEMPTS_MAX:
                    raise Unavailable("the catalog database does not answer; try again") from error
                time.sleep(0.05 * (attempt + 1))
        raise AssertionError("unreachable")

    def row(self, read: Read, params: Mapping[str, Any]) -> Any | None:
        """The first row, or None."""
        found = self.rows(read, params)
        return found[0] if found else None

    def _connection(self) -> Any:
        connection = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = _read_connection(self.engine, self.is_sqlite)
        return connection

    def _forget_connection(self) -> None:
        connection = getattr(self._local, "connection", None)
        self._local.connection = None
        if connection is not None:
            try:
                connection.close()
            except self._dbapi_errors():
                return  # it was broken already; there is nothing left to close

    def _dbapi_errors(self) -> tuple[type[BaseException], ...]:
        module: Any = self.engine.dialect.dbapi
        return (module.OperationalError, module.InterfaceError, OperationalError, InterfaceError)

    # -- writes

    def write(self, work: Work[T]) -> T:
        """Run `work` in one transaction and commit it.

        Deadlocks and serialisation failures run again. An error before COMMIT surely left nothing:
        Unavailable. An error in COMMIT itself leaves it open: CommitStateUnknown, and the caller must not
        undo anything.
        """
        for attempt in range(WRITE_ATTEMPTS_MAX):
            try:
                if self._jobs is not None:
                    return self._jobs.write(work, BUSY_TIMEOUT_S)
                return self._write_once(work)
            except self._any_error as error:
                if attempt + 1 < WRITE_ATTEMPTS_MAX and _is_retryable(error):
                    time.sleep(random.uniform(0.005, 0.02) * (attempt + 1))  # noqa: S311
                    continue
                if isinstance(error, sa.exc.IntegrityError):
                    raise
                raise Unavailable("the catalog database refused the write; nothing was changed") from error
        raise AssertionError("unreachable")

    def _write_group(self, works: Sequence[Work[Any]]) -> list[Outcome[Any]]:
        """Several works in one transaction, each all or nothing; the outcome of each, once it is certain."""
        if len(works) == 1:
            return [self._alone(works[0])]
        outcomes: list[Outcome[Any]] = []

        def together(connection: sa.Connection) -> None:
            outcomes.extend(self._apart(connection, work) for work in works)

        try:
            self._write_once(together)
        except CommitStateUnknown as unknown:
            return [_after_unknown(outcome, unknown) for outcome in outcomes]
        except self._any_error:
            # Nothing is left of any of them, and one may be to blame: it must not take the others with it.
            return [self._alone(work) for work in works]
        return outcomes

    def _alone(self, work: Work[Any]) -> Outcome[Any]:
        try:
            return Outcome(self._write_once(work))
        except Exception as error:  # noqa: BLE001 - raised again in the thread whose work it was
            return Outcome(error=error)

    def _apart(self, connection: sa.Connection, work: Work[Any]) -> Outcome[Any]:
        """One work of a group. A refusal undoes this work; what the database fails at ends the group."""
        driver: Any = connection.connection.driver_connection
        driver.execute("SAVEPOINT one")
        try:
            outcome = Outcome(work(connection))
        except Exception as error:
            if isinstance(error, self._any_error) and not isinstance(error, self._integrity_error):
                raise
            driver.execute("ROLLBACK TO one")
            outcome = Outcome(error=error)
        driver.execute("RELEASE one")
        return outcome

    def _write_once(self, work: Work[T]) -> T:
        if self._jobs is None:
            with self.engine.connect() as connection:
                return self._write_on(connection, work)
        connection, self._writer = self._writer or self.engine.connect(), None
        try:
            result = self._write_on(connection, work)
        except BaseException:
            connection.close()  # the pool takes it back to a known state
            raise
        self._writer = connection
        return result

    def _write_on(self, connection: sa.Connection, work: Work[T]) -> T:
        transaction = connection.begin()
        faults.reach("swap.begun")
        try:
            result = work(connection)
        except BaseException:
            transaction.rollback()
            raise
        faults.reach("swap.before-commit")
        try:
            with stage("commit"):
                transaction.commit()
        except self._any_error as error:
            if _is_retryable(error):
                raise
            raise CommitStateUnknown(
                "the database did not confirm the commit; look before you retry"
            ) from error
        faults.reach("swap.committed")
        return result

    def close(self) -> None:
        self._forget_connection()
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        self.engine.dispose()


def _engine(url: sa.URL, is_sqlite: bool, pool_size: int) -> sa.Engine:
    if not is_sqlite:
        return sa.create_engine(
            url,
            pool_size=pool_size,
            max_overflow=0,
            hide_parameters=True,
            pool_timeout=BUSY_TIMEOUT_S,
            pool_pre_ping=True,
        )
    engine = sa.create_engine(
        url, hide_parameters=True, connect_args={"timeout": BUSY_TIMEOUT_S, "check_same_thread": False}
    )
    sa.event.listen(engine, "connect", _prepare_sqlite)
    # IMMEDIATE: a transaction that reads before it writes must hold the write lock from the start.
    sa.event.listen(engine, "begin", _begin_sqlite)
    return engine


def _begin_sqlite(connection: sa.Connection) -> None:
    driver: Any = connection.connection.driver_connection  # SQLAlchemy's own way takes longer than the BEGIN
    driver.execute("BEGIN IMMEDIATE")


def _prepare_sqlite(connection: sqlite3.Connection, _record: object) -> None:
    connection.isolation_level = None
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_S * 1000}")
    connection.execute("PRAGMA cache_size=-16384")


def _read_connection(engine: sa.Engine, is_sqlite: bool) -> Any:
    arguments, options = engine.dialect.create_connect_args(engine.url)
    if is_sqlite:
        connection = sqlite3.connect(
            arguments[0],
            timeout=BUSY_TIMEOUT_S,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
        )
        _prepare_sqlite(connection, None)
        return connection
    import psycopg  # only where PostgreSQL is used

    return psycopg.connect(*arguments, autocommit=True, connect_timeout=10, **options)


def _after_unknown(outcome: Outcome[Any], unknown: CommitStateUnknown) -> Outcome[Any]:
    """A work that was refused before a COMMIT that failed: refused because of the others, perhaps."""
    if outcome.error is not None:
        return Outcome(error=Unavailable("the catalog database refused the write; nothing was changed"))
    error = CommitStateUnknown(unknown.message)
    error.__cause__ = unknown
    return Outcome(error=error)


def _is_retryable(error: Exception) -> bool:
    return getattr(getattr(error, "orig", error), "sqlstate", None) in RETRYABLE_SQLSTATES
