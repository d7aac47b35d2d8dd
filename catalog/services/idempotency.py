"""Idempotency keys: a repeated request gets the result of the first one and is not executed again.

The record of a key is written in the SQL transaction of the change. For a table or view, the response
contains its current document, which the specification allows. If it has been dropped since, the document is
read from the metadata file that the first request wrote.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import orjson

from catalog.errors import CatalogError, CommitFailed, CommitStateUnknown, Invalid
from catalog.metadata.files import decode_metadata
from catalog.models import CatalogEntry, IdempotencyKeyConflict, IdempotencyRecord, Kind
from catalog.names import Identifier
from catalog.services.catalog import Catalog
from catalog.services.warehouse_state import WarehouseState
from catalog.services.writes import WriteContext

T = TypeVar("T")

# These refusals are final and are saved with the key. A request that got another error may succeed later.
FINAL_STATUSES = frozenset({400, 404, 406, 409, 422})


class SavedRefusal(CatalogError):
    """The error that the first request with this key got."""

    def __init__(self, message: str, type_: str, status: int) -> None:
        super().__init__(message)
        self.type = type_
        self.status = status


def run_once(
    catalog: Catalog, context: WriteContext, work: Callable[[], T], restore: Callable[[Any], T]
) -> T:
    """Return the result of `work`. If the key has been used, return what `restore` makes of the saved
    result.
    """
    record = context.record
    if record is None:
        return work()
    saved = _saved(catalog, record)
    if saved is not None:
        return restore(_result(saved))
    try:
        return work()
    except IdempotencyKeyConflict:
        saved = _saved(catalog, record)
        if saved is None:
            raise CommitFailed("This request is being carried out; try again") from None
        return restore(_result(saved))
    except CommitStateUnknown:
        raise  # reading the record now would not make the state certain
    except CatalogError as error:
        # Another request with the same key may have succeeded, and this one may have failed for that reason.
        saved = _saved(catalog, record)
        if saved is not None:
            return restore(_result(saved))
        if error.status in FINAL_STATUSES:
            _save_refusal(catalog, record, error)
        raise


def restore_entry(
    catalog: Catalog,
    state: WarehouseState,
    identifier: Identifier,
    saved: dict[str, str],
    kind: Kind = "table",
) -> CatalogEntry:
    """The table or view as it is now. If the name no longer exists, it is read from the saved
    metadata file.
    """
    entry = state.load(identifier.namespace.key, identifier.name)
    if entry is not None and entry.kind == kind:
        return entry
    return restore_from_file(catalog, identifier, saved, kind)


def restore_from_file(
    catalog: Catalog, identifier: Identifier, saved: dict[str, str], kind: Kind = "table"
) -> CatalogEntry:
    location = saved["metadata-location"]
    text = decode_metadata(location, catalog.files.read(location))
    uuid = orjson.loads(text)[f"{kind}-uuid"]
    return CatalogEntry(kind, identifier.namespace.key, identifier.name, uuid, 0, location, text)


def _saved(catalog: Catalog, record: IdempotencyRecord) -> IdempotencyRecord | None:
    found = catalog.records.record(record, catalog.now_ms())
    if found is not None and found.body_hash != record.body_hash:
        raise Invalid("This Idempotency-Key belongs to another request: use a new key for a new request")
    return found


def _result(saved: IdempotencyRecord) -> Any:
    value = orjson.loads(saved.answer)
    if saved.status >= 400:
        raise SavedRefusal(value["message"], value["type"], saved.status)
    return value


def _save_refusal(catalog: Catalog, record: IdempotencyRecord, error: CatalogError) -> None:
    answer = orjson.dumps({"message": error.message, "type": error.type}).decode()
    catalog.records.save(replace(record, status=error.status, answer=answer), catalog.now_ms())
