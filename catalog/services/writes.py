"""Decide, write, and decide again after a lost race: the loop that every write goes through.

A metadata file is written before the swap. If the swap surely did not happen the file is removed again; if
nobody knows, it stays, because the row may point to it.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
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
from catalog.metadata.files import encode_metadata
from catalog.models import (
    UNNUMBERED,
    CatalogEntry,
    ConcurrentUpdate,
    EntryChange,
    IdempotencyKeyConflict,
    IdempotencyRecord,
    WriteRequest,
)
from catalog.services.catalog import Catalog
from catalog.services.warehouse_state import WarehouseState

ATTEMPTS_MAX = 20
BACKOFF_S = 0.005
BACKOFF_MAX_S = 0.25
log = logging.getLogger(__name__)
T = TypeVar("T")


@dataclass(slots=True)
class WritePlan(Generic[T]):
    """What to write, the files that must be there before it, and what to answer once it is written."""

    answer: T
    changes: list[EntryChange] = field(default_factory=list)
    files: list[tuple[str, bytes]] = field(default_factory=list)  # location and JSON text


@dataclass(frozen=True, slots=True)
class WriteContext:
    """Who asked for a write, what their idempotency key should remember, and until when it may be done."""

    principal: str
    record: IdempotencyRecord | None = None
    deadline_s: float | None = None  # on the clock of time.monotonic()

    def require_time(self) -> None:
        """The client has been answered when the deadline has passed: nothing is written after it."""
        if self.deadline_s is not None and time.monotonic() >= self.deadline_s:
            raise NotWritten("The request was not carried out before its deadline: send it again")


def write_with_retry(
    catalog: Catalog, state: WarehouseState, asked: WriteContext, decide: Callable[[], WritePlan[T]]
) -> T:
    """Run `decide` until its changes land.

    A decision without changes is answered as it is (and remembered).
    """
    names = ""
    for attempt in range(ATTEMPTS_MAX):
        asked.require_time()
        decision = decide()
        if not decision.changes:
            if asked.record is not None:
                _save_record(catalog, _completed_record(asked.record, decision.answer))
            return decision.answer
        faults.reach("write.decided")
        _require_free_locations(catalog, state, decision.changes)
        try:
            # Inside a transaction only the last version counts: publishing writes its file.
            write_files(catalog, [] if state.is_transaction else decision.files)
        except Unavailable as error:
            raise NotWritten(error.message) from error
        try:
            record = _completed_record(asked.record, decision.answer) if asked.record is not None else None
            version = state.write(WriteRequest(decision.changes, asked.principal, catalog.now_ms(), record))
            faults.reach("write.before-answer")
            return _numbered(decision.answer, version)
        except ConcurrentUpdate as race:
            names = str(race)
            _discard(catalog, state, decision)
            time.sleep(random.uniform(0, min(BACKOFF_S * 2**attempt, BACKOFF_MAX_S)))  # noqa: S311
        except CommitStateUnknown:
            raise
        except Unavailable as error:
            _discard(catalog, state, decision)
            raise NotWritten(error.message) from error
        except (CatalogError, IdempotencyKeyConflict):
            _discard(catalog, state, decision)
            raise
    raise CommitFailed(f"Cannot commit: {names} is written to by too many others at once; try again")


def _numbered(answer: T, version: int) -> T:
    """The answer with the version that the store gave to entries new under their name."""
    entries: Any = answer if isinstance(answer, list) else [answer]
    numbered = [
        replace(entry, version=version)
        if isinstance(entry, CatalogEntry) and entry.version == UNNUMBERED
        else entry
        for entry in entries
    ]
    return numbered if isinstance(answer, list) else numbered[0]  # type: ignore[return-value]


def _require_free_locations(catalog: Catalog, state: WarehouseState, changes: list[EntryChange]) -> None:
    """Before a file is written: not into the place of another table. The store looks again, locked."""
    if state.is_transaction:
        return  # nothing is written yet, and the owner may be dropped in the same transaction
    for change in changes:
        for place in change.locations:
            for taken, owner in catalog.records.taken(state.warehouse.name, place):
                if change.after is not None and owner != change.after.uuid:
                    raise Invalid(f"Location {place} overlaps {taken}, which belongs to another table")


def write_files(catalog: Catalog, files: list[tuple[str, bytes]]) -> None:
    """Before the swap.

    A store that does not take a file would not remove one either, and asking it doubles the wait: what it
    took before is litter.
    """
    for location, text in files:
        catalog.files.create(location, encode_metadata(location, text))
        faults.reach("write.file-written")


def _save_record(catalog: Catalog, record: IdempotencyRecord) -> None:
    """For a request that changed nothing, perhaps because it landed before: that it did must be answered, and
    what fails here costs a later replay its short cut and nothing else.
    """
    try:
        catalog.records.remember(record, catalog.now_ms())
    except CatalogError as error:
        log.warning("could not remember an idempotency key", extra={"reason": error.message})


def _completed_record(record: IdempotencyRecord, answer: object) -> IdempotencyRecord:
    """The record with what a replay needs of the answer: small ones whole, of a document only where it is."""
    if isinstance(answer, CatalogEntry):
        answer = {"metadata-location": answer.metadata_location}
    elif isinstance(answer, list):
        answer = {"metadata-location": answer[0].metadata_location} if len(answer) == 1 else None
    return replace(record, answer=orjson.dumps(answer).decode())


def _discard(catalog: Catalog, state: WarehouseState, decision: WritePlan[T]) -> None:
    if not state.is_transaction:
        discard_files(catalog, decision.files)


def discard_files(catalog: Catalog, files: list[tuple[str, bytes]]) -> None:
    """Remove files that surely nobody points to.

    If that fails they are litter, and the answer stays what it is.
    """
    if files:
        try:
            catalog.files.delete([location for location, _ in files])
        except CatalogError as error:
            log.warning("left an unused metadata file behind", extra={"reason": error.message})
