"""The loop of every write: plan, write metadata files, write rows, and plan again after a concurrent update.

Metadata files are written before the SQL transaction. If the transaction surely did not commit, the files are
deleted. If that is unknown they stay, because a row may refer to them.

A repeated request with the same idempotency key gets the result of the first one and changes nothing. The
record of a key is inserted in the SQL transaction of the change, which fails if there is one already; so the
record is read only after a failure, and the first request does not read it. For a table or view, the response
contains its current document, which the specification allows. If it has been dropped since, the document is
read from the metadata file that the first request wrote.
"""

from __future__ import annotations

import contextlib
import gzip
import logging
import random
import re
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

import orjson

from catalog import faults
from catalog.errors import (
    CatalogError,
    CommitFailed,
    CommitStateUnknown,
    Invalid,
    NotWritten,
    Unavailable,
)
from catalog.locations import Location
from catalog.metadata.document import GZIP_CODEC, decode_metadata, deletes_old_metadata
from catalog.models import (
    UNNUMBERED,
    CatalogEntry,
    ConcurrentUpdate,
    EntryChange,
    IdempotencyKeyConflict,
    IdempotencyRecord,
    Kind,
    Text,
    WriteRequest,
    document_key,
)
from catalog.names import Identifier
from catalog.services.catalog import Catalog
from catalog.services.warehouse_state import WarehouseState

ATTEMPTS_MAX = 20
BACKOFF_S = 0.005
BACKOFF_MAX_S = 0.25
GZIP_SNAPSHOTS_MIN = 5000  # from here on a metadata file has 3 MB and more, and compresses to a sixth or less
GZIP_LEVEL = 1  # level 6 takes three times as long for a seventh less
_NUMBERED = re.compile(r"/(\d{1,9})-[^/]*$").search
log = logging.getLogger(__name__)
T = TypeVar("T")


@dataclass(slots=True)
class WritePlan(Generic[T]):
    """The changes to write, the metadata files to write before them, and the result of the operation."""

    result: T
    changes: list[EntryChange] = field(default_factory=list)
    files: list[tuple[str, Text]] = field(default_factory=list)  # location and JSON text
    # The server has just made the locations up, so the files of no other table are there.
    has_new_locations: bool = False


@dataclass(frozen=True, slots=True)
class WriteContext:
    """The principal, the idempotency record and the deadline of a write."""

    principal: str
    record: IdempotencyRecord | None = None
    deadline_s: float | None = None  # on the clock of time.monotonic()

    def require_time(self) -> None:
        """Raise NotWritten after the deadline: the client has its response, so nothing may be written."""
        if self.deadline_s is not None and time.monotonic() >= self.deadline_s:
            raise NotWritten("The request was not carried out before its deadline: send it again")


def write_with_retry(
    catalog: Catalog, state: WarehouseState, context: WriteContext, make_plan: Callable[[], WritePlan[T]]
) -> T:
    """Call `make_plan` and write its changes, again after each concurrent update.

    A plan without changes writes nothing but the idempotency record.
    """
    names = ""
    for attempt in range(ATTEMPTS_MAX):
        context.require_time()
        plan = make_plan()
        if not plan.changes:
            if context.record is not None:
                _save_record(catalog, _completed_record(context.record, plan.result))
            return plan.result
        faults.reach("write.decided")
        if not plan.has_new_locations:
            _require_available_locations(catalog, state, plan.changes)
        try:
            # Inside a transaction no file is written: publishing writes one file for the last version.
            write_files(catalog, [] if state.is_transaction else plan.files)
        except Unavailable as error:
            raise NotWritten(error.message) from error
        try:
            record = _completed_record(context.record, plan.result) if context.record is not None else None
            version = state.write(WriteRequest(plan.changes, context.principal, catalog.now_ms(), record))
            faults.reach("write.before-answer")
            return _cached(catalog, _numbered(plan.result, version))
        except ConcurrentUpdate as error:
            names = str(error)
            _discard(catalog, state, plan)
            time.sleep(random.uniform(0, min(BACKOFF_S * 2**attempt, BACKOFF_MAX_S)))  # noqa: S311
        except CommitStateUnknown:
            raise
        except Unavailable as error:
            _discard(catalog, state, plan)
            raise NotWritten(error.message) from error
        except (CatalogError, IdempotencyKeyConflict):
            _discard(catalog, state, plan)
            raise
    raise CommitFailed(f"Cannot commit: {names} is written to by too many others at once; try again")


def _numbered(answer: T, version: int) -> T:
    """The result with the version that the store gave to new entries."""
    entries: Any = answer if isinstance(answer, list) else [answer]
    numbered = [
        replace(entry, version=version)
        if isinstance(entry, CatalogEntry) and entry.version == UNNUMBERED
        else entry
        for entry in entries
    ]
    return numbered if isinstance(answer, list) else numbered[0]  # type: ignore[return-value]


def _cached(catalog: Catalog, answer: T) -> T:
    """The result, after its documents are cached."""
    for entry in answer if isinstance(answer, list) else [answer]:
        if isinstance(entry, CatalogEntry) and entry.text is not None:
            catalog.documents.put_text(document_key(entry), entry.text)
    return answer


def _require_available_locations(catalog: Catalog, state: WarehouseState, changes: list[EntryChange]) -> None:
    """Refuse locations of other tables before a file is written. The store checks again, under a lock."""
    if state.is_transaction:
        return  # no file is written yet, and the transaction may also drop the other table
    for change in changes:
        for location in change.locations:
            for reserved, owner in catalog.records.overlapping(state.warehouse.name, location):
                if change.after is not None and owner != change.after.uuid:
                    raise Invalid(f"Location {location} overlaps {reserved}, which belongs to another table")


def write_files(catalog: Catalog, files: list[tuple[str, Text]]) -> None:
    """Write metadata files.

    After an error the files written so far stay as unused files: storage that refuses to write would most
    likely also fail to delete, and trying would double the wait.
    """
    for location, text in files:
        catalog.files.create(location, *encode_metadata(location, text))
        faults.reach("write.file-written")


def _save_record(catalog: Catalog, record: IdempotencyRecord) -> None:
    """Save the result of a request that changed nothing. IdempotencyKeyConflict if the key has been used.

    Another failure is only logged: a repeat of the request will then be carried out again.
    """
    try:
        catalog.records.save(record, catalog.now_ms())
    except CatalogError as error:
        log.warning("could not save an idempotency key", extra={"reason": error.message})


def _completed_record(record: IdempotencyRecord, answer: object) -> IdempotencyRecord:
    """The record with the result. For a table or view it stores only the metadata location."""
    if isinstance(answer, CatalogEntry):
        answer = {"metadata-location": answer.metadata_location}
    elif isinstance(answer, list):
        answer = {"metadata-location": answer[0].metadata_location} if len(answer) == 1 else None
    return replace(record, answer=orjson.dumps(answer).decode())


def _discard(catalog: Catalog, state: WarehouseState, plan: WritePlan[T]) -> None:
    if not state.is_transaction:
        discard_files(catalog, plan.files)


def discard_files(catalog: Catalog, files: list[tuple[str, Text]]) -> None:
    """Delete files that no row refers to. A failure leaves unused files and is only logged."""
    if files:
        try:
            catalog.files.delete([location for location, _ in files])
        except CatalogError as error:
            log.warning("left an unused metadata file behind", extra={"reason": error.message})


# Metadata files of tables and views


def next_metadata_location(metadata: dict[str, Any], previous: str | None) -> str:
    """A new file name in the table's metadata folder, with the number after that of the previous file."""
    properties = metadata.get("properties") or {}
    folder = properties.get("write.metadata.path") or metadata["location"].rstrip("/") + "/metadata"
    found = _NUMBERED(previous) if previous else None
    number = int(found[1]) + 1 if found else 0
    suffix = ".gz.metadata.json" if _is_gzipped(metadata) else ".metadata.json"
    return f"{folder.rstrip('/')}/{number:05d}-{uuid.uuid4()}{suffix}"


def _is_gzipped(metadata: dict[str, Any]) -> bool:
    """As the table's property says. By default, if the table has many snapshots."""
    default = GZIP_CODEC if len(metadata.get("snapshots") or ()) >= GZIP_SNAPSHOTS_MIN else "none"
    properties = metadata.get("properties") or {}
    return str(properties.get("write.metadata.compression-codec", default)).lower() == GZIP_CODEC


def encode_metadata(location: str, text: Text) -> Sequence[bytes]:
    """The content of the file in parts: gzipped if its name says so."""
    is_gzipped = ".gz.metadata.json" in location or location.endswith(".gz")
    if isinstance(text, bytes):
        return [gzip.compress(text, GZIP_LEVEL) if is_gzipped else text]
    return text.gzipped() if is_gzipped else text.parts()


def outdated_files(before: dict[str, Any] | None, after: dict[str, Any]) -> list[str]:
    """Metadata files that were removed from the log, if the table has them deleted."""
    properties = after.get("properties") or {}
    if before is None or not deletes_old_metadata(properties):
        return []
    kept = {entry["metadata-file"] for entry in after.get("metadata-log") or []}
    had = [entry["metadata-file"] for entry in before.get("metadata-log") or []]
    own = [Location.parse(after["location"]), Location.parse(metadata_folder(after))]
    # The log of a registered file may contain files of other tables: these are not deleted.
    return [
        location
        for location in had
        if location not in kept and any(Location.parse_file(location).is_inside(folder) for folder in own)
    ]


def metadata_folder(metadata: dict[str, Any]) -> str:
    return str(Location.parse(next_metadata_location(metadata, None).rpartition("/")[0]))


# Idempotency keys

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
    """Return the result of `work`. If the key has been used, `work` fails, and the result is what `restore`
    makes of the saved one.
    """
    record = context.record
    if record is None:
        return work()
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
    uuid_ = orjson.loads(text)[f"{kind}-uuid"]
    return CatalogEntry(kind, identifier.namespace.key, identifier.name, uuid_, 0, location, text)


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
    with contextlib.suppress(IdempotencyKeyConflict):  # another request with the key was first
        catalog.records.save(replace(record, status=error.status, answer=answer), catalog.now_ms())
