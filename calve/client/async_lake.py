"""`Lake` for asyncio."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any, Self

import httpx

from calve.client import operations, source_operations, subscriptions, transactions
from calve.client.async_table import AsyncTable
from calve.client.calls import AsyncConnection, address_and_token, client_arguments
from calve.client.files import rows_of_data
from calve.client.lake import RETRY_S, TIMEOUT_S
from calve.client.names import TableName, levels_of
from calve.client.operations import Params, Progress, Wait, WarehouseAddress
from calve.client.results import Result, WriteResult
from calve.client.rows import Row, Source
from calve.client.subscriptions import Batch
from calve.client.table_operations import TableOperations
from calve.client.times import Moment
from calve.client.transactions import OpenTransaction
from calve.errors import CalveError, Unavailable


class AsyncLake:
    """One warehouse of a server. Made by `calve.connect_async`; usable from several tasks."""

    def __init__(self, connection: AsyncConnection, address: WarehouseAddress) -> None:
        self._connection = connection
        self._address = address
        self._source = Source()

    def __repr__(self) -> str:
        return f"<calve lake {self._address.warehouse} at {self._address.url}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections to the server."""
        await self._connection.client.aclose()

    @property
    def warehouse(self) -> str:
        """The warehouse of tables that name none."""
        return self._address.warehouse

    # -- reading

    async def query(
        self,
        sql: str,
        params: Params | None = None,
        *,
        as_of: Moment | None = None,
        snapshot_id: int | None = None,
        consistency: str | None = None,
        warehouse: str | None = None,
        namespace: str | None = None,
    ) -> Result:
        """Run one SELECT in DuckDB's SQL.

        `params` are values for `$name` (a dict) or `?` (a list). `as_of` is the moment that all tables are
        read at. `consistency` is `committed`, `fresh` (waits for everything that was acknowledged before)
        or `at_least:TOKEN`. `namespace` is that of tables that name none.

        >>> await lake.query("SELECT count(*) AS n FROM shop.orders", as_of="1 minute ago").rows
        [{'n': 17}]
        """
        steps = operations.query(
            self._address,
            sql,
            params,
            as_of=as_of,
            snapshot_id=snapshot_id,
            consistency=consistency,
            warehouse=warehouse,
            namespace=namespace,
        )
        try:
            return await self._connection.run(steps)
        except CalveError as error:
            raise operations.query_error(error) from error.__cause__

    async def stream(
        self,
        sql: str,
        params: Params | None = None,
        *,
        format: str = "csv",  # noqa: A002 - the API's word
        as_of: Moment | None = None,
        consistency: str | None = None,
        warehouse: str | None = None,
        namespace: str | None = None,
    ) -> AsyncIterator[bytes]:
        """The result as bytes, in pieces as they arrive: csv, json, compact, ndjson, arrow or parquet."""
        call = operations.query_call(
            self._address,
            sql,
            params,
            as_of=as_of,
            consistency=consistency,
            warehouse=warehouse,
            namespace=namespace,
            format=format,
        )
        try:
            async for piece in self._connection.stream(call):
                yield piece
        except CalveError as error:
            raise operations.query_error(error) from error.__cause__

    def table(self, name: TableName) -> AsyncTable:
        """A table, by `namespace.name` or by a list of the levels and the name. Makes no request."""
        return AsyncTable(self._connection, TableOperations(self._address, levels_of(name)))

    async def tables(self, namespace: str | None = None) -> list[str]:
        """The names of all tables, or of those below a namespace."""
        return await self._connection.run(operations.tables(self._address, namespace))

    async def status(self) -> dict[str, Any]:
        """What waits, how far each table and source has landed, what workers do."""
        return await self._connection.run(operations.status(self._address))

    async def maintenance(self) -> dict[str, Any]:
        """The policy of the warehouse, its kept moments, and the health of its tables."""
        return await self._connection.run(operations.maintenance(self._address))

    async def set_maintenance(self, **policy: Any) -> dict[str, Any]:
        """Set the policy of the warehouse: `kept_moments`, `compact`, `small_files_min` and so on."""
        given = {name.replace("_", "-"): value for name, value in policy.items()}
        return await self._connection.run(operations.set_maintenance(self._address, given))

    async def sources(self) -> list[dict[str, Any]]:
        """The sources of changes: their rules, whether they are paused, how far each has landed."""
        return await self._connection.run(source_operations.sources(self._address))

    async def source(self, name: str) -> dict[str, Any]:
        """One source."""
        return await self._connection.run(source_operations.source(self._address, name))

    async def set_source(self, name: str, **rules: Any) -> dict[str, Any]:
        """Set which tables and columns of a source are stored: `include`, `exclude`, `route`, `drop_columns`,
        `hash_columns`, `type_changes`.

        >>> lake.set_source("shop", hash_columns={"*.customers": ["email"]})
        """
        given = {rule.replace("_", "-"): value for rule, value in rules.items()}
        return await self._connection.run(source_operations.set_source(self._address, name, given))

    async def delete_source(self, name: str) -> None:
        """Delete the rules of a source: everything that it sends is stored."""
        await self._connection.run(source_operations.delete_source(self._address, name))

    async def pause_source(self, name: str, reason: str | None = None) -> dict[str, Any]:
        """Acknowledge the changes of a source and land none of them, until it is resumed."""
        return await self._connection.run(source_operations.pause_source(self._address, name, reason))

    async def resume_source(self, name: str) -> dict[str, Any]:
        """Land what has waited, and what comes."""
        return await self._connection.run(source_operations.resume_source(self._address, name))

    async def begin_epoch(
        self, name: str, reason: str | None = None, *, same_history: bool = False
    ) -> dict[str, Any]:
        """Begin a new epoch of a source, after a failover or a restore. With `same_history`, accept
        decreasing positions in the current one instead.
        """
        operation = source_operations.begin_epoch(self._address, name, reason, same_history=same_history)
        return await self._connection.run(operation)

    async def events(self, after: int = 0, *, limit: int = 100, wait_s: float = 0) -> dict[str, Any]:
        """Commits after a number, in order; with `wait_s`, wait that long for the next one.

        The result has `events`, `next` (pass it as `after` to go on) and `head` (the newest commit).
        """
        return await self._connection.run(operations.events(self._address, after, limit, wait_s))

    def subscribe(
        self,
        tables: TableName | Sequence[TableName] | None = None,
        operations: Sequence[str] | str | None = None,
        *,
        from_: Moment | None = None,
        snapshot: bool = False,
        where: str | None = None,
        columns: Sequence[str] | None = None,
        every_commit: bool = False,
    ) -> AsyncIterator[Batch]:
        """Changes as they are published, one batch for each commit. It connects again by itself.

        `tables` are names and patterns (`shop.*`), `operations` some of insert, update, delete, truncate.
        `from_` is the token of a batch, or a moment; without it, now. With `snapshot`, the rows of the tables
        come first. A change is sent if `where` holds for its row before or after it. Gone says that the
        changes after the token are no longer all there. With `every_commit` there are batches for commits
        without such changes too.

        >>> async for batch in lake.subscribe("shop.orders", from_=token):
        ...     for event in batch.events:
        ...         print(event.operation, event.after)
        """
        wanted = subscriptions.subscriber(
            self._address.warehouse,
            tables,
            operations,
            from_=from_,
            snapshot=snapshot,
            where=where,
            columns=columns,
            every_commit=every_commit,
        )
        return subscriptions.follow_async(self._connection.client, wanted)

    # -- writing

    async def write(
        self,
        table: TableName,
        rows: Iterable[Row] | Row,
        *,
        key: str | Sequence[str] | None = None,
        wait: Wait = "journal",
        timeout_s: float | None = None,
        idempotency_key: str | None = None,
    ) -> WriteResult:
        """Send rows, or changes of rows. They are durable when this returns.

        A row is a dict of columns. Rows are appended; with `key` a row replaces the one with the same key. A
        change is a dict with `operation` (insert, update, delete, truncate), `after` and `before`.

        The request is sent again after a transient failure, and lands once. With `wait="commit"` this
        returns when the rows are visible, or after `timeout_s`. Give an `idempotency_key` if your program
        may send the same rows again after a crash.

        >>> await lake.write("shop.orders", [{"id": 1, "item": "pen"}], key="id", wait="commit").committed
        True
        """
        return await self._connection.run(
            operations.write(
                self._address,
                self._source,
                table,
                rows,
                key=key,
                wait=wait,
                timeout_s=timeout_s,
                idempotency_key=idempotency_key,
            )
        )

    async def load(
        self,
        data: Any,
        table: TableName,
        *,
        key: str | Sequence[str] | None = None,
        wait: Wait = "journal",
        timeout_s: float | None = None,
        idempotency_key: str | None = None,
        progress: Progress | None = None,
    ) -> WriteResult:
        """Write the rows of a file (CSV, JSON, NDJSON, Parquet) or of a data frame.

        `progress` is called with the number of rows after each request.

        >>> await lake.load("orders.csv", "shop.orders", key="id")
        """
        return await self._connection.run(
            operations.write(
                self._address,
                self._source,
                table,
                rows_of_data(data),
                key=key,
                wait=wait,
                timeout_s=timeout_s,
                idempotency_key=idempotency_key,
                progress=progress,
            )
        )

    async def flush(
        self, tables: Sequence[TableName] | None = None, *, wait: bool = True, timeout_s: float = 30.0
    ) -> dict[str, Any]:
        """Land everything that waits now; with `wait`, return when it is visible."""
        return await self._connection.run(
            operations.flush(self._address, tables, wait=wait, timeout_s=timeout_s)
        )

    @contextlib.asynccontextmanager
    async def transaction(
        self, name: str | None = None, *, ttl_s: int | None = None
    ) -> AsyncIterator[AsyncTransaction]:
        """Open a transaction: what engines write under its name becomes visible at once, at its end.

        It is published at the end of the block, and aborted after an exception.

        >>> async with lake.transaction() as tx:
        ...     catalog = load_catalog("tx", **tx.catalog_properties())
        """
        found = await self._connection.run(transactions.open_transaction(self._address, name, ttl_s))
        transaction = AsyncTransaction(self, self._connection, self._address, found)
        try:
            yield transaction
            if not transaction.is_closed:
                await transaction.commit()
        except Unavailable:
            raise  # perhaps it is published; if not, it expires
        except BaseException:
            if not transaction.is_closed:
                await transaction.abort()
            raise

    def catalog_properties(self, as_of: Moment | None = None) -> dict[str, str]:
        """Properties for PyIceberg's `load_catalog`, at the present or at a moment."""
        return operations.catalog_properties(self._address, operations.moment_name(self._address, as_of))


class AsyncTransaction(OpenTransaction):
    """An open transaction. Made by `AsyncLake.transaction`."""

    def __init__(
        self, lake: AsyncLake, connection: AsyncConnection, address: WarehouseAddress, found: dict[str, Any]
    ) -> None:
        super().__init__(address, found)
        self._lake = lake
        self._connection = connection

    async def query(self, sql: str, params: Params | None = None, *, namespace: str | None = None) -> Result:
        """Run a query that sees what the transaction has written."""
        return await self._lake.query(sql, params, warehouse=self.warehouse, namespace=namespace)

    async def extend(self, ttl_s: int) -> None:
        """Let the transaction stay open for this many seconds from now."""
        await self._connection.run(transactions.extend(self._address, self.name, ttl_s))

    async def commit(self) -> int | None:
        """Publish everything at once; the number it is visible under, None if nothing was written.

        Conflict names the tables that others have changed meanwhile. Then nothing is published.
        """
        self._published(await self._connection.run(transactions.publish(self._address, self.name)))
        return self.number

    async def abort(self) -> None:
        """Forget everything that was written."""
        await self._connection.run(transactions.abort(self._address, self.name))
        self.is_closed = True


async def connect_async(
    url: str | None = None,
    token: str | None = None,
    *,
    warehouse: str = "main",
    timeout_s: float = TIMEOUT_S,
    retry_s: float = RETRY_S,
    transport: httpx.AsyncBaseTransport | None = None,
) -> AsyncLake:
    """Connect to a server, and check that it answers and has the warehouse.

    Without `url`, the environment variables CALVE_URI and CALVE_TOKEN are used, else the local server.
    `retry_s` is how long a write is repeated while the server is away.
    """
    url, token = address_and_token(url, token)
    client = httpx.AsyncClient(**client_arguments(url, token, timeout_s), transport=transport)
    connection = AsyncConnection(client, retry_s)
    try:
        address = await connection.run(operations.open_warehouse(url, token, warehouse))
    except BaseException:
        await client.aclose()
        raise
    return AsyncLake(connection, address)
