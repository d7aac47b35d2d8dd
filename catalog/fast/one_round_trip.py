"""Writes to PostgreSQL in one round trip: a frequent change is one statement with all of its checks.

The ordinary write (store/entries.py) sends a statement for each step and waits for each: 5 for a commit, 12
for the creation of a table. Meanwhile it holds the lock on the names or on the counter, and other writers
wait. Here one statement does all steps of

    one or more updates of tables or views that keep their names and locations,
    the creation of one table or view,
    the drop of one table or view.

It writes everything, or nothing if one of its checks fails. Then, and for all other changes, the ordinary
write runs, and raises the error that fits. Locks are taken in the same order as there. A statement that takes
a lock first is sent in one pipeline with it, which PostgreSQL runs as one transaction.
"""

from __future__ import annotations

import select
import time
import uuid
from typing import Any

import orjson
import psycopg
from sqlalchemy.exc import OperationalError

from catalog import faults
from catalog.errors import CommitStateUnknown, Unavailable
from catalog.models import EntryChange, IdempotencyKeyConflict, IdempotencyRecord, WriteRequest
from catalog.store.database import NOTHING_CHANGED, RETRYABLE_SQLSTATES, Database, PlainWriter, pack_entry
from catalog.store.entries import deletes_expired_records
from catalog.store.structure import overlapping_params

Statement = tuple[str, dict[str, Any]]

_UNIQUE_VIOLATION = "23505"
_INTEGRITY = "23"
# A statement that failed with one of these classes was not committed: data, transaction state, rights,
# resources, limits. A lock timeout is in 55, a statement timeout is `_CANCELLED`.
_NOT_COMMITTED = ("22", "25", "40", "42", "53", "54", "55")
_CANCELLED = "57014"

_LOCK_NAMES = "SELECT warehouse FROM warehouses WHERE warehouse = %(w)s FOR UPDATE"
# In the order of their names, as the ordinary write does, so that two writes do not wait for each other.
_LOCK_ENTRIES = """
SELECT 1 FROM entries WHERE warehouse = %(w)s
AND (namespace, name) IN (SELECT * FROM unnest(%(namespaces)s::text[], %(names)s::text[]))
ORDER BY namespace, name FOR UPDATE"""
_DELETE_EXPIRED_RECORD = (
    "DELETE FROM idempotency WHERE principal = %(principal)s AND operation = %(operation)s"
    " AND target = %(target)s AND key = %(key)s AND expires_ms <= %(now)s"
)

# The common end of all three: the next number, the history, and the idempotency record if there is one.
_END = """
counted AS (
    UPDATE heads SET number = number + 1, time_ms = greatest(time_ms, %(time)s)
    WHERE warehouse = %(w)s AND (SELECT count(*) FROM written) = cardinality(%(names)s::text[])
    RETURNING number, time_ms),
recorded AS (
    INSERT INTO idempotency (principal, operation, target, key, body_hash, expires_ms, status, answer)
    SELECT r.* FROM counted, jsonb_to_record(%(record)s::jsonb) AS r (
        principal text, operation text, target text, key text, body_hash text, expires_ms bigint, status int,
        answer text) WHERE %(record)s::jsonb IS NOT NULL)
INSERT INTO history (warehouse, number, ordinal, time_ms, operation, kind, namespace, name, present, uuid,
    version, metadata_location, principal, detail)
SELECT %(w)s, counted.number, g.ordinal - 1, counted.time_ms, g.operation, g.kind, g.namespace, g.name,
    %(present)s, w.uuid, w.version, w.metadata_location, %(principal)s, g.detail
FROM counted, unnest(%(operations)s::text[], %(kinds)s::text[], %(namespaces)s::text[], %(names)s::text[],
    %(details)s::text[]) WITH ORDINALITY AS g (operation, kind, namespace, name, detail, ordinal)
JOIN written AS w ON w.namespace = g.namespace AND w.name = g.name
RETURNING number, version"""
_UPDATE = f"""
WITH given AS (
    SELECT * FROM unnest(%(namespaces)s::text[], %(names)s::text[], %(uuids)s::text[], %(versions)s::bigint[],
        %(locations)s::text[], %(documents)b::bytea[])
    AS g (namespace, name, uuid, version, location, document)),
unchanged AS (
    SELECT count(*) AS number FROM given AS g JOIN entries AS e ON e.warehouse = %(w)s
    AND e.namespace = g.namespace AND e.name = g.name AND e.uuid = g.uuid AND e.version = g.version),
written AS (
    UPDATE entries AS e SET version = g.version + 1, metadata_location = g.location, document = g.document
    FROM given AS g, unchanged WHERE unchanged.number = cardinality(%(names)s::text[])
    AND e.warehouse = %(w)s AND e.namespace = g.namespace AND e.name = g.name
    AND e.uuid = g.uuid AND e.version = g.version
    RETURNING e.namespace, e.name, e.uuid, e.version, e.metadata_location),
{_END}"""  # noqa: S608 - fixed text
_CREATE = f"""
WITH overlapping AS (
    SELECT location, uuid FROM locations WHERE warehouse = %(w)s
    AND (location = ANY(%(above)s::text[]) OR location > %(below)s AND location < %(behind)s)),
written AS (
    INSERT INTO entries (warehouse, namespace, name, kind, uuid, version, metadata_location, document,
        protected)
    SELECT %(w)s, %(namespace)s, %(name)s, %(kind)s, %(uuid)s, heads.number + 1, %(location)s, %(document)b, 0
    FROM heads WHERE heads.warehouse = %(w)s
    AND EXISTS (SELECT FROM entries WHERE warehouse = %(w)s AND namespace = %(namespace)s AND name = '')
    AND NOT EXISTS (SELECT FROM entries WHERE warehouse = %(w)s AND uuid = %(uuid)s)
    AND NOT EXISTS (SELECT FROM overlapping)
    ON CONFLICT DO NOTHING
    RETURNING namespace, name, uuid, version, metadata_location),
reserved AS (INSERT INTO locations (warehouse, location, uuid) SELECT %(w)s, %(reserved)s, uuid FROM written),
restored AS (
    DELETE FROM dropped WHERE warehouse = %(w)s AND uuid = %(uuid)s AND EXISTS (SELECT FROM written)),
{_END}"""  # noqa: S608 - fixed text
_DROP = f"""
WITH removed AS (
    DELETE FROM entries WHERE warehouse = %(w)s AND namespace = %(namespace)s AND name = %(name)s
    AND uuid = %(uuid)s AND version = %(version)s AND protected = 0
    RETURNING *),
written AS (SELECT namespace, name, uuid, version, metadata_location FROM removed),
released AS (DELETE FROM locations USING removed
    WHERE locations.warehouse = removed.warehouse AND locations.uuid = removed.uuid),
kept AS (
    INSERT INTO dropped (warehouse, id, kind, namespace, name, uuid, metadata_location, document, dropped_ms,
        expires_ms, principal)
    SELECT warehouse, %(id)s, kind, namespace, name, uuid, metadata_location, document, %(now)s, %(keep)s,
        %(principal)s FROM removed WHERE %(keep)s::bigint IS NOT NULL),
{_END}"""  # noqa: S608 - fixed text


class OneRoundTrip(PlainWriter):
    """A `Writer` for PostgreSQL."""

    def __init__(self) -> None:
        super().__init__(is_sqlite=False)

    def write_changes(
        self, database: Database, warehouse: str, request: WriteRequest
    ) -> tuple[int, int] | None:
        statements = _statements(warehouse, request)
        if statements is None:
            return None
        for point in _points(request):
            faults.reach(point)
        rows = _run(database, statements)
        if not rows:
            return None
        faults.reach("swap.committed")
        return rows[0][0], rows[0][1]


def _points(request: WriteRequest) -> list[str]:
    """The failpoints of the ordinary write, up to its COMMIT."""
    rows = ["swap.row-set" for _ in request.changes]
    record = ["swap.before-record"] if request.record is not None else []
    return ["swap.begun", *rows, "swap.before-number", "swap.before-history", *record, "swap.before-commit"]


def _statements(warehouse: str, request: WriteRequest) -> list[Statement] | None:
    """The statements of the write, the last of which writes. None if the ordinary write must do it."""
    changes = sorted(request.changes, key=lambda change: change.key)
    [first, *others] = changes
    params = _common(warehouse, request, changes)
    before: list[Statement] = []
    if request.record is not None:
        if deletes_expired_records(request.record):
            return None
        before.append((_DELETE_EXPIRED_RECORD, _values(request.record) | {"now": request.now_ms}))
    if not any(change.is_structural for change in changes):
        if others:
            before.append((_LOCK_ENTRIES, params))
        return [*before, (_UPDATE, params | _updated(changes))]
    if others or first.kind == "namespace":
        return None
    before.append((_LOCK_NAMES, {"w": warehouse}))
    if first.base is None and first.after is not None and len(first.locations) == 1:
        if first.after.protected:
            return None
        return [*before, (_CREATE, params | _created(warehouse, first))]
    if first.after is None and first.base is not None:
        return [*before, (_DROP, params | _dropped(first, request))]
    return None


def _common(warehouse: str, request: WriteRequest, changes: list[EntryChange]) -> dict[str, Any]:
    record = request.record
    return {
        "w": warehouse,
        "time": time.time_ns() // 1_000_000,
        "principal": request.principal,
        "present": int(changes[0].after is not None),
        "namespaces": [change.namespace for change in changes],
        "names": [change.name for change in changes],
        "operations": [change.operation for change in changes],
        "kinds": [change.kind for change in changes],
        "details": [orjson.dumps(change.detail).decode() for change in changes],
        "record": None if record is None else orjson.dumps(_values(record)).decode(),
    }


def _values(record: IdempotencyRecord) -> dict[str, Any]:
    return {name: getattr(record, name) for name in IdempotencyRecord.__slots__}


def _updated(changes: list[EntryChange]) -> dict[str, Any]:
    pairs = [(change.base, change.after) for change in changes if change.base and change.after]
    return {
        "uuids": [base.uuid for base, _ in pairs],
        "versions": [base.version for base, _ in pairs],
        "locations": [after.metadata_location for _, after in pairs],
        "documents": [pack_entry(after) for _, after in pairs],
    }


def _created(warehouse: str, change: EntryChange) -> dict[str, Any]:
    assert change.after is not None
    [reserved] = change.locations
    return overlapping_params(warehouse, reserved) | {
        "namespace": change.namespace,
        "name": change.name,
        "kind": change.kind,
        "uuid": change.after.uuid,
        "location": change.after.metadata_location,
        "document": pack_entry(change.after),
        "reserved": reserved,
    }


def _dropped(change: EntryChange, request: WriteRequest) -> dict[str, Any]:
    assert change.base is not None
    return {
        "namespace": change.namespace,
        "name": change.name,
        "uuid": change.base.uuid,
        "version": change.base.version,
        "id": str(uuid.uuid4()),
        "now": request.now_ms,
        "keep": change.keep_until_ms,
    }


def _run(database: Database, statements: list[Statement]) -> list[Any]:
    """The rows of the last statement. All statements are committed together, or none after an error.

    Raises IdempotencyKeyConflict, Unavailable (nothing was changed), CommitStateUnknown, and errors after
    which the ordinary write takes over.
    """
    with database.autocommit() as connection:
        driver: psycopg.Connection[Any] = connection.connection.driver_connection  # type: ignore[assignment]
        if _has_ended(driver):
            connection.invalidate()
            lost = psycopg.OperationalError("the connection was lost")
            raise OperationalError(str(lost), None, lost, connection_invalidated=True)
        try:
            if len(statements) == 1:
                return driver.execute(*statements[0]).fetchall()
            with driver.pipeline():
                for text, params in statements[:-1]:
                    driver.execute(text, params)
                last = driver.execute(*statements[-1])
            return last.fetchall()
        except psycopg.Error as error:
            if driver.broken:
                connection.invalidate()
            return _rows_after(error)


def _has_ended(driver: psycopg.Connection[Any]) -> bool:
    """Whether the server has closed the connection since its last use. An idle one has nothing to read.

    Without this check, the state of the first write after a restart of the database would be unknown.
    """
    poll = select.poll()
    poll.register(driver.fileno(), select.POLLIN)
    return driver.closed or bool(poll.poll(0))


def _rows_after(error: psycopg.Error) -> list[Any]:
    """No rows, if the ordinary write finds out what is wrong; otherwise raises the error that fits."""
    state = error.sqlstate or ""
    if state == _UNIQUE_VIOLATION and error.diag.table_name == "idempotency":
        raise IdempotencyKeyConflict from error
    if state.startswith(_INTEGRITY):
        return []
    if state in RETRYABLE_SQLSTATES:
        raise OperationalError("the transaction was ended because of another one", None, error) from error
    if state[:2] in _NOT_COMMITTED or state == _CANCELLED:
        raise Unavailable(NOTHING_CHANGED) from error
    raise CommitStateUnknown("the database did not confirm the commit; look before you retry") from error
