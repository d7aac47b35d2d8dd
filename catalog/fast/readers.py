"""Reads of single rows on the event loop: directly on SQLite, by asyncpg on PostgreSQL.

A statement is compiled once. SQLAlchemy Core takes ten times as long as SQLite's own read of a row, and a
thread for psycopg takes longer than the query.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import asyncpg
import sqlalchemy as sa
from sqlalchemy.dialects import sqlite
from sqlalchemy.dialects.postgresql import asyncpg as postgresql

from catalog.errors import Unavailable

BUSY_TIMEOUT_S = 0.5  # in WAL mode, a read of SQLite waits only for a recovery of the log
CONNECT_TIMEOUT_S = 5.0
RECONNECT_AFTER_S = 1.0
# The options of a database URL that asyncpg understands.
URL_OPTIONS = ("host", "port", "sslmode", "sslrootcert", "sslcert", "sslkey", "sslcrl", "passfile")

_SQLITE: sa.Dialect = sqlite.dialect()
_POSTGRESQL: sa.Dialect = postgresql.dialect()  # type: ignore[no-untyped-call]

log = logging.getLogger(__name__)


class Reader(Protocol):
    blocks: bool  # whether a read blocks the event loop

    async def fetch(self, statement: sa.Select[Any], params: Mapping[str, Any]) -> Sequence[Any]:
        """All rows. Raises Unavailable; the caller then uses the plain route."""

    async def close(self) -> None:
        """Close the connections."""


class _Compiled:
    """The text of a statement and the order of its parameters."""

    __slots__ = ("constants", "order", "text")

    def __init__(self, statement: sa.Select[Any], dialect: sa.Dialect) -> None:
        compiled: Any = statement.compile(dialect=dialect)
        self.text = str(compiled)
        self.order: tuple[str, ...] = tuple(compiled.positiontup)
        self.constants = {name: value for name, value in compiled.params.items() if value is not None}

    def values(self, params: Mapping[str, Any]) -> list[Any]:
        return [params[name] if name in params else self.constants[name] for name in self.order]


class SqliteReader:
    """One connection for the event loop alone. A read of one row takes microseconds."""

    blocks = True

    def __init__(self, path: str) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None
        self._compiled: dict[sa.Select[Any], _Compiled] = {}

    async def fetch(self, statement: sa.Select[Any], params: Mapping[str, Any]) -> Sequence[Any]:
        compiled = self._compiled.get(statement)
        if compiled is None:
            compiled = self._compiled[statement] = _Compiled(statement, _SQLITE)
        try:
            if self._connection is None:
                self._connection = sqlite3.connect(
                    f"file:{self._path}?mode=rw", uri=True, timeout=BUSY_TIMEOUT_S, isolation_level=None
                )
            return self._connection.execute(compiled.text, compiled.values(params)).fetchall()
        except sqlite3.Error as error:
            await self.close()
            raise Unavailable("the catalog database does not answer; try again") from error

    async def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class _Held:
    """A connection and its prepared statements."""

    __slots__ = ("connection", "prepared")

    def __init__(self, connection: asyncpg.Connection[Any]) -> None:
        self.connection = connection
        self.prepared: dict[sa.Select[Any], Any] = {}


class PostgresReader:
    """A bounded number of held connections, each with its prepared statements.

    asyncpg's own pool prepares again and sends a reset query after each use, which halves the throughput.
    """

    blocks = False

    def __init__(
        self, url: sa.URL, *, connections_max: int, statement_timeout_s: float, lock_timeout_s: float
    ) -> None:
        self._dsn = url.set(
            drivername="postgresql", query={k: v for k, v in url.query.items() if k in URL_OPTIONS}
        ).render_as_string(hide_password=False)
        self._settings = {
            "statement_timeout": str(int(statement_timeout_s * 1000)),
            "lock_timeout": str(int(lock_timeout_s * 1000)),
        }
        self._timeout_s = statement_timeout_s
        self._compiled: dict[sa.Select[Any], _Compiled] = {}
        self._free: asyncio.LifoQueue[_Held | None] = asyncio.LifoQueue()
        for _ in range(connections_max):
            self._free.put_nowait(None)
        self._connections_max = connections_max
        self._connect_after_s = 0.0

    async def fetch(self, statement: sa.Select[Any], params: Mapping[str, Any]) -> Sequence[Any]:
        compiled = self._compiled.get(statement)
        if compiled is None:
            compiled = self._compiled[statement] = _Compiled(statement, _POSTGRESQL)
        held = await self._free.get()
        try:
            if held is None or held.connection.is_closed():
                held = _Held(await self._connect())
            prepared = held.prepared.get(statement)
            if prepared is None:
                prepared = held.prepared[statement] = await held.connection.prepare(compiled.text)
            rows: Sequence[Any] = await prepared.fetch(*compiled.values(params), timeout=self._timeout_s)
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError) as error:
            _terminate(held)
            held = None
            raise Unavailable("the catalog database does not answer; try again") from error
        except BaseException:
            _terminate(held)  # cancelled: the connection may be in the middle of a response
            held = None
            raise
        finally:
            self._free.put_nowait(held)
        return rows

    async def _connect(self) -> asyncpg.Connection[Any]:
        if time.monotonic() < self._connect_after_s:
            raise ConnectionError("the last attempt to connect failed a moment ago")
        try:
            return await asyncpg.connect(self._dsn, timeout=CONNECT_TIMEOUT_S, server_settings=self._settings)
        except (asyncpg.PostgresError, OSError, TimeoutError, ValueError) as error:
            self._connect_after_s = time.monotonic() + RECONNECT_AFTER_S
            log.warning("cannot connect for fast reads", extra={"reason": str(error).splitlines()[0][:200]})
            raise ConnectionError("cannot connect") from error

    async def close(self) -> None:
        for _ in range(self._connections_max):
            _terminate(await self._free.get())


def _terminate(held: _Held | None) -> None:
    if held is not None:
        held.connection.terminate()
