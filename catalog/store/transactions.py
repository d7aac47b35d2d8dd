"""Open transactions and their staged changes.

A write inside a transaction first locks the row of the transaction. So writes in one transaction follow each
other, and none succeeds after the transaction was committed, aborted or has expired.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from catalog import faults
from catalog.errors import CommitFailed, Conflict, NoSuchWarehouse
from catalog.models import (
    CatalogEntry,
    ConcurrentUpdate,
    EntryChange,
    Kind,
    StagedChange,
    Transaction,
    TransactionStatus,
    WriteRequest,
)
from catalog.store.database import Database, pack, pack_entry, unpack
from catalog.store.entries import InTransaction, apply, save_record
from catalog.store.schema import heads, staged, transactions

_by_id = staged.c.transaction_id == sa.bindparam("transaction_id")
READ_NEWEST = (
    sa.select(transactions)
    .where(transactions.c.warehouse == sa.bindparam("warehouse"), transactions.c.name == sa.bindparam("name"))
    # Ordered by number, because the clocks of servers may differ. Only one transaction of a name can be open.
    .order_by(
        sa.case((transactions.c.state == "open", 0), else_=1),
        transactions.c.base_number.desc(),
        transactions.c.opened_ms.desc(),
    )
    .limit(1)
)
READ_BEFORE = (
    sa.select(transactions)
    .where(
        transactions.c.warehouse == sa.bindparam("warehouse"),
        sa.tuple_(transactions.c.opened_ms, transactions.c.id)
        < sa.tuple_(sa.bindparam("opened_ms"), sa.bindparam("id")),
        sa.or_(
            sa.bindparam("principal", type_=sa.Text) == "",
            transactions.c.principal == sa.bindparam("principal", type_=sa.Text),
        ),
    )
    .order_by(transactions.c.opened_ms.desc(), transactions.c.id.desc())
    .limit(sa.bindparam("limit", type_=sa.Integer))
)
READ_OVER = (
    sa.select(transactions.c.id)
    .where(
        transactions.c.warehouse == sa.bindparam("warehouse"),
        transactions.c.state == "open",
        transactions.c.expires_ms <= sa.bindparam("now_ms"),
    )
    .limit(1)
)
READ_OLD = (
    sa.select(transactions.c.id)
    .where(
        transactions.c.warehouse == sa.bindparam("warehouse"),
        # A transaction closes after it was opened, so the index on `opened_ms` limits the scan.
        transactions.c.opened_ms <= sa.bindparam("before_ms"),
        transactions.c.state != "open",
        transactions.c.closed_ms <= sa.bindparam("before_ms"),
    )
    .order_by(transactions.c.opened_ms, transactions.c.id)
    .limit(sa.bindparam("limit", type_=sa.Integer))
)
_by_name = (_by_id, staged.c.namespace == sa.bindparam("namespace"), staged.c.name == sa.bindparam("name"))
_without_document = [column for column in staged.c if column.name != "document"]
READ_STAGED = sa.select(*_without_document).where(*_by_name)
READ_STAGED_DOCUMENT = sa.select(staged.c.document).where(
    *_by_name, staged.c.version == sa.bindparam("version")
)
READ_ALL_STAGED = sa.select(*_without_document).where(_by_id).order_by(staged.c.namespace, staged.c.name)
READ_STAGED_NAMES = sa.select(staged.c.namespace, staged.c.name, staged.c.kind, staged.c.present).where(
    _by_id
)
CLOSED_KEPT_MS = 24 * 3600 * 1000  # how long a closed transaction can be read
DELETED_AT_A_TIME = 500


class TransactionStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    def newest(self, warehouse: str, name: str) -> Transaction | None:
        row = self._database.fetch_one(READ_NEWEST, {"warehouse": warehouse, "name": name})
        return Transaction(*row) if row else None

    def before(
        self, warehouse: str, opened_ms: int, id_: str, limit: int, principal: str = ""
    ) -> list[Transaction]:
        """Transactions opened before the given one (by time, then id), newest first; of one principal, if
        given.
        """
        params = {
            "warehouse": warehouse,
            "opened_ms": opened_ms,
            "id": id_,
            "limit": limit,
            "principal": principal,
        }
        return [Transaction(*row) for row in self._database.fetch_all(READ_BEFORE, params)]

    def open(
        self, transaction_id: str, warehouse: str, name: str, now_ms: int, ttl_ms: int, principal: str
    ) -> Transaction:
        """Open a transaction. Raises Conflict if one of that name is open and has not expired."""

        def work(connection: sa.Connection) -> Transaction:
            number = connection.execute(
                sa.select(heads.c.number).where(heads.c.warehouse == warehouse)
            ).scalar()
            if number is None:
                raise NoSuchWarehouse(f"Warehouse does not exist: {warehouse}")
            _expire(connection, warehouse, now_ms)
            opened = Transaction(
                transaction_id,
                warehouse,
                name,
                number,
                "open",
                now_ms,
                now_ms + ttl_ms,
                None,
                None,
                principal,
            )
            values = {column.name: getattr(opened, column.name) for column in transactions.columns}
            connection.execute(sa.insert(transactions).values(**values))
            return opened

        try:
            return self._database.write(work)
        except IntegrityError as error:
            raise Conflict(
                f"Transaction {name} is open already: commit it, abort it, or use another name"
            ) from error

    def extend(self, transaction: Transaction, expires_ms: int, now_ms: int) -> None:
        def work(connection: sa.Connection) -> None:
            lock_open(connection, transaction, now_ms)
            statement = sa.update(transactions).where(transactions.c.id == transaction.id)
            connection.execute(statement.values(expires_ms=expires_ms))

        self._database.write(work)

    def abort(self, transaction: Transaction, now_ms: int) -> None:
        def work(connection: sa.Connection) -> None:
            lock_open(connection, transaction, now_ms)
            close(connection, transaction.id, "aborted", now_ms, None)

        self._database.write(work)

    def sweep(self, warehouse: str, now_ms: int) -> None:
        """Close expired transactions, and delete the rows of those that were closed long ago.

        It writes only if there is something to do. Any number of processes may call it at any time.
        """
        if self._database.fetch_one(READ_OVER, {"warehouse": warehouse, "now_ms": now_ms}) is not None:
            self._database.write(lambda connection: _expire(connection, warehouse, now_ms))
        params = {
            "warehouse": warehouse,
            "before_ms": now_ms - CLOSED_KEPT_MS,
            "limit": DELETED_AT_A_TIME,
        }
        old = [row[0] for row in self._database.fetch_all(READ_OLD, params)]
        if old:
            self._database.write(lambda connection: _delete(connection, old))

    # -- staged changes

    def staged(self, transaction_id: str, namespace: str, name: str) -> StagedChange | None:
        """The staged change of one name, without its document."""
        params = {"transaction_id": transaction_id, "namespace": namespace, "name": name}
        row = self._database.fetch_one(READ_STAGED, params)
        return _staged(row) if row else None

    def staged_document(self, transaction_id: str, entry: CatalogEntry) -> bytes | None:
        """The document of this version. None if the name has been written again since."""
        params = {
            "transaction_id": transaction_id,
            "namespace": entry.namespace,
            "name": entry.name,
            "version": entry.version,
        }
        row = self._database.fetch_one(READ_STAGED_DOCUMENT, params)
        return unpack(row[0]) if row else None

    def all_staged(self, transaction_id: str) -> list[StagedChange]:
        """All staged changes of a transaction, without their documents."""
        rows = self._database.fetch_all(READ_ALL_STAGED, {"transaction_id": transaction_id})
        return [_staged(row) for row in rows]

    def staged_names(self, transaction_id: str) -> list[tuple[str, str, Kind, bool]]:
        rows = self._database.fetch_all(READ_STAGED_NAMES, {"transaction_id": transaction_id})
        return [(row[0], row[1], row[2], bool(row[3])) for row in rows]

    def stage(self, transaction: Transaction, request: WriteRequest) -> None:
        """Stage the changes. Raises ConcurrentUpdate if another write in the transaction has changed
        a name.
        """

        def work(connection: sa.Connection) -> None:
            lock_open(connection, transaction, request.now_ms)
            for change in request.changes:
                _stage_one(connection, transaction.id, change)
            if request.record is not None:
                save_record(connection, request.record, request.now_ms)

        self._database.write(work)


def lock_open(connection: sa.Connection, transaction: Transaction, now_ms: int) -> None:
    """Lock the row of a transaction that is open. Raises CommitFailed if it is not."""
    query = (
        sa.select(transactions.c.state, transactions.c.expires_ms)
        .where(transactions.c.id == transaction.id)
        .with_for_update()
    )
    row = connection.execute(query).first()
    if row is None or row[0] != "open" or row[1] <= now_ms:
        state = "gone" if row is None else "expired" if row[0] == "open" else row[0]
        raise CommitFailed(
            f"Transaction {transaction.name} is {state}; nothing was written. "
            "Open it again and repeat the work"
        )


def close(
    connection: sa.Connection, transaction_id: str, state: TransactionStatus, now_ms: int, number: int | None
) -> None:
    """Close an open transaction and delete its staged changes, inside the caller's SQL transaction."""
    statement = sa.update(transactions).where(
        transactions.c.id == transaction_id, transactions.c.state == "open"
    )
    if connection.execute(statement.values(state=state, closed_ms=now_ms, number=number)).rowcount != 1:
        raise CommitFailed("The transaction is no longer open; nothing was published")
    connection.execute(sa.delete(staged).where(staged.c.transaction_id == transaction_id))


def _require_same_staged(
    connection: sa.Connection, transaction_id: str, staged_changes: Sequence[StagedChange]
) -> None:
    """Raise ConcurrentUpdate if a commit was staged after `staged_changes` were read: it was acknowledged."""
    read = {(found.namespace, found.name): found.last.version for found in staged_changes}
    query = sa.select(staged.c.namespace, staged.c.name, staged.c.version).where(
        staged.c.transaction_id == transaction_id
    )
    now = {(row.namespace, row.name): row.version for row in connection.execute(query)}
    changed = [name for name in {**read, **now} if read.get(name) != now.get(name)]
    if changed:
        raise ConcurrentUpdate(*changed)


def _expire(connection: sa.Connection, warehouse: str, now_ms: int) -> None:
    over = sa.select(transactions.c.id).where(
        transactions.c.warehouse == warehouse,
        transactions.c.state == "open",
        transactions.c.expires_ms <= now_ms,
    )
    ids = [row[0] for row in connection.execute(over.with_for_update())]
    if ids:
        connection.execute(sa.delete(staged).where(staged.c.transaction_id.in_(ids)))
        statement = sa.update(transactions).where(transactions.c.id.in_(ids))
        connection.execute(statement.values(state="expired", closed_ms=now_ms))


def _delete(connection: sa.Connection, ids: list[str]) -> None:
    """Delete closed transactions. Databases of earlier versions also have their staged rows."""
    connection.execute(sa.delete(staged).where(staged.c.transaction_id.in_(ids)))
    connection.execute(sa.delete(transactions).where(transactions.c.id.in_(ids)))


def _stage_one(connection: sa.Connection, transaction_id: str, change: EntryChange) -> None:
    where = (
        staged.c.transaction_id == transaction_id,
        staged.c.namespace == change.namespace,
        staged.c.name == change.name,
    )
    row = connection.execute(sa.select(*_without_document).where(*where)).first()
    entry = change.after or change.base
    assert entry is not None
    values: dict[str, Any] = {
        "kind": change.kind,
        "present": int(change.after is not None),
        "uuid": entry.uuid,
        "metadata_location": entry.metadata_location,
        "document": pack_entry(entry) if entry.text is not None else pack(b""),
    }
    if row is None:
        base = change.base
        values |= {
            "transaction_id": transaction_id,
            "namespace": change.namespace,
            "name": change.name,
            "operation": change.operation,
            # Continues from the base version, so that no version of a name is used twice.
            "version": (base.version if base else 0) + 1,
            "base_uuid": base.uuid if base else None,
            "base_version": base.version if base else None,
            "base_location": base.metadata_location if base else None,
            "requests": pack(orjson.dumps([change.request])),
            "detail": orjson.dumps(change.detail).decode(),
        }
        connection.execute(sa.insert(staged).values(**values))
        return
    earlier = _staged(row)
    expected = change.base
    staged_entry = earlier.after
    same = (expected is None) == (staged_entry is None) and (
        expected is None
        or staged_entry is None
        or (expected.uuid, expected.version) == (staged_entry.uuid, staged_entry.version)
    )
    if not same:
        raise ConcurrentUpdate(change.key)
    values |= {
        "version": row.version + 1,
        "operation": _combined_operation(earlier, change),
        "requests": pack(orjson.dumps([*earlier.requests, change.request])),
        "detail": orjson.dumps(_combined_detail(earlier.detail, change.detail)).decode(),
    }
    connection.execute(sa.update(staged).where(*where).values(**values))


def _combined_operation(earlier: StagedChange, change: EntryChange) -> str:
    """The operation that summarizes two: a table that was created and then written to was created."""
    if change.after is None:
        return change.operation
    created = earlier.base_uuid is None and earlier.after is not None
    return earlier.operation if created else change.operation


def _combined_detail(before: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    combined = before | now
    for key in ("added-snapshots", "snapshot-operations"):
        if found := [*before.get(key, []), *now.get(key, [])]:
            combined[key] = found
    return combined


def _staged(row: Any) -> StagedChange:
    (_, namespace, name, kind, operation, present, uuid, version, location, *rest) = row
    base_uuid, base_version, base_location, requests, detail = rest
    entry = CatalogEntry(kind, namespace, name, uuid, version, location)
    return StagedChange(
        namespace,
        name,
        kind,
        operation,
        entry if present else None,
        entry,
        base_uuid,
        base_version,
        base_location,
        orjson.loads(unpack(requests)),
        orjson.loads(detail),
    )


def publish(
    database: Database,
    transaction: Transaction,
    staged_changes: Sequence[StagedChange],
    request: WriteRequest,
    in_transaction: InTransaction | None = None,
) -> int | None:
    """Publish the changes. Returns their number, or None if there was nothing to publish.

    `staged_changes` are those that the request was made from. Raises as `writes.write` does, CommitFailed if
    the transaction is no longer open, and ConcurrentUpdate if it has staged something else since.
    """

    def work(connection: sa.Connection) -> int | None:
        lock_open(connection, transaction, request.now_ms)
        _require_same_staged(connection, transaction.id, staged_changes)
        faults.reach("publish.locked")
        number = apply(connection, transaction.warehouse, request).number if request.changes else None
        if in_transaction is not None:
            in_transaction(connection, number or transaction.base_number)
        faults.reach("publish.before-close")
        close(connection, transaction.id, "committed", request.now_ms, number)
        return number

    return database.write(work)
