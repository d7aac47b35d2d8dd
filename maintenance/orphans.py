"""Orphans: files in the location of a table that nothing refers to.

Referenced is every file that is reachable from

- the current document of the table, and its documents in dropped tables and open transactions;
- documents of past versions, as far as the history or the metadata log names their files;
- the queue of expired files, which are deleted by their own process.

Only files older than the policy says are orphans: a writer may have written a younger one for a commit that
is still to come.
A location that contains other tables is not searched.

Each table is searched once a day by itself (`OrphanSweep`), one table in a round.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any

import orjson

from catalog.errors import CatalogError, Conflict, Invalid
from catalog.locations import Location, own_locations
from catalog.models import CatalogEntry, Warehouse
from catalog.names import Identifier, Namespace
from catalog.services.catalog import Catalog
from catalog.storage.base import FileInfo
from maintenance.policies import Policies
from maintenance.store import MaintenanceStore

REMOVE_ORPHANS = "remove-orphans"
EVERY_MS = 86_400_000
LOOKED_AT_MAX = 1_000  # tables in a round whose turn has not come
_PAGE = 100
SHOWN_MAX = 100
SHARE_MAX = 0.1
BYTES_ALWAYS_ALLOWED = 1024 * 1024  # a tenth of a tiny table says nothing

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Found:
    """The orphans of a table, beside all files in its location."""

    orphans: list[FileInfo] = field(default_factory=list)
    files_all: int = 0
    bytes_all: int = 0

    @property
    def bytes(self) -> int:
        return sum(one.size for one in self.orphans)

    @property
    def is_too_much(self) -> bool:
        return self.bytes > max(BYTES_ALWAYS_ALLOWED, SHARE_MAX * self.bytes_all)

    def as_json(self) -> dict[str, Any]:
        return {
            "orphans": len(self.orphans),
            "bytes": self.bytes,
            "files-all": self.files_all,
            "bytes-all": self.bytes_all,
            "refused": self.is_too_much,
            "files": [one.location for one in self.orphans[:SHOWN_MAX]],
        }


class Orphans:
    def __init__(self, catalog: Catalog, store: MaintenanceStore) -> None:
        self._catalog = catalog
        self._store = store

    def find(self, warehouse: Warehouse, entry: CatalogEntry, age_hours: int) -> Found:
        """List the location first and what is referenced afterwards: a file that is committed in between is
        then known as referenced.
        """
        metadata: dict[str, Any] = orjson.loads(entry.document or b"{}")
        before_ms = self._catalog.now_ms() - age_hours * 3_600_000
        found = Found()
        old = []
        for location in self._locations(warehouse, entry, metadata):
            for file in self._catalog.files.listed(location):
                found.files_all += 1
                found.bytes_all += file.size
                if file.modified_ms < before_ms:
                    old.append(file)
        used = self._referenced(warehouse, entry.uuid)
        found.orphans = [file for file in old if not _is_used(file.location, used)]
        return found

    def delete(self, warehouse: Warehouse, entry: CatalogEntry, found: Found) -> int:
        """Delete orphans that are still not referenced."""
        from catalog.storage.purge import delete_own, table_locations

        used = self._referenced(warehouse, entry.uuid)
        own = table_locations(orjson.loads(entry.document or b"{}"), warehouse.root)
        gone = [file.location for file in found.orphans if not _is_used(file.location, used)]
        return delete_own(self._catalog.files, own, own.select(gone))

    def remove(self, warehouse: Warehouse, entry: CatalogEntry, age_hours: int) -> tuple[Found, int]:
        """Delete the orphans and record it. Returns what was found, and how many files were deleted. Conflict
        if it is so much that something else must be wrong.
        """
        found = self.find(warehouse, entry, age_hours)
        if found.is_too_much:
            name = Identifier(Namespace.from_key(entry.namespace), entry.name)
            raise Conflict(
                f"{found.bytes} of {found.bytes_all} bytes of {name} would go, more than a tenth. "
                "Nothing was deleted: look at the files with dry-run=true first"
            )
        deleted = self.delete(warehouse, entry, found)
        self.note(warehouse, entry, {"deleted": deleted, "bytes": found.bytes})
        return found, deleted

    def note(self, warehouse: Warehouse, entry: CatalogEntry, facts: dict[str, Any]) -> None:
        facts = {**facts, "time-ms": self._catalog.now_ms()}
        self._store.note(warehouse.name, entry.uuid, REMOVE_ORPHANS, facts)

    def _locations(self, warehouse: Warehouse, entry: CatalogEntry, metadata: dict[str, Any]) -> list[str]:
        """The table's own locations. Conflict if another table has a location inside of one."""
        found = list(own_locations(metadata))
        for location in found:
            others = [
                owner
                for _, owner in self._catalog.records.overlapping(warehouse.name, location)
                if owner != entry.uuid
            ]
            if others:
                raise Conflict(f"The location {location} has other tables inside: its files are left alone")
        return found

    def _referenced(self, warehouse: Warehouse, uuid: str) -> set[str]:
        used: set[str] = set()
        for document, location, is_current in self._store.documents(warehouse.name, uuid):
            used |= self._reachable(orjson.loads(document), location, is_whole=is_current)
        used |= self._store.metadata_locations(warehouse.name, uuid)
        for files in self._store.queued_files(warehouse.name, uuid):
            used |= {*files.manifest_lists, *files.statistics, *files.metadata_files}
            used |= self._reachable(
                {"snapshots": [{"manifest-list": one} for one in files.manifest_lists]}, None
            )
        return {_canonical(location) for location in used}

    def _reachable(
        self, metadata: dict[str, Any], location: str | None, *, is_whole: bool = False
    ) -> set[str]:
        """The files that a document refers to. Documents of the past name files that were deleted since. A
        missing file of the current one may be restored: what it refers to stays.
        """
        from catalog.storage.reachable import Reachable

        walk = Reachable(self._catalog.files, metadata, location)
        found = {path for group in walk.groups() for path in group}
        lost = [*walk.unreadable, *(walk.missing if is_whole else ())]
        if lost:
            raise Conflict(f"{lost[0]} cannot be read, so it is not known which files it refers to")
        return found


class OrphanSweep:
    """Removes orphans by itself: the tables of a warehouse in the order of their names, each once a day."""

    def __init__(self, catalog: Catalog, store: MaintenanceStore, policies: Policies) -> None:
        self._catalog = catalog
        self._store = store
        self._policies = policies
        self._orphans = Orphans(catalog, store)
        self._after: dict[str, tuple[str, str]] = {}

    def next(self, warehouse: Warehouse) -> None:
        """Search the next table whose turn has come, if there is one."""
        due = self._next_due(warehouse.name)
        if due is None:
            return
        entry, age_hours = due
        try:
            _, deleted = self._orphans.remove(warehouse, entry, age_hours)
        except CatalogError as error:
            # It is shown in the table's maintenance, and tried again tomorrow.
            _log.warning("orphans stay", extra={"table": entry.name, "reason": error.message})
            self._orphans.note(warehouse, entry, {"deleted": 0, "reason": error.message})
            return
        if deleted:
            _log.info("removed orphans", extra={"table": entry.name, "files": deleted})

    def _next_due(self, warehouse: str) -> tuple[CatalogEntry, int] | None:
        records, policies = self._store.tables(warehouse), self._store.policies(warehouse)
        before_ms = self._catalog.now_ms() - EVERY_MS
        for _ in range(LOOKED_AT_MAX // _PAGE):
            after = self._after.get(warehouse, ("", ""))
            found = self._catalog.records.entries_after(warehouse, *after, _PAGE)
            for entry in found:
                self._after[warehouse] = (entry.namespace, entry.name)
                if entry.kind != "table":
                    continue
                identifier = Identifier(Namespace.from_key(entry.namespace), entry.name)
                policy = self._policies.effective(policies, identifier)
                last = records[entry.uuid].done.get(REMOVE_ORPHANS, {}) if entry.uuid in records else {}
                if policy.remove_orphans and last.get("time-ms", 0) < before_ms:
                    return entry, policy.orphan_age_hours
            if len(found) < _PAGE:
                self._after.pop(warehouse, None)
                return None
        return None


def _canonical(location: str) -> str:
    """One text for all spellings of a location: engines write file:/a, file:///a and /a, s3a:// and s3://."""
    try:
        return Location.parse_file(location).canonical
    except Invalid:
        return location


def _is_used(location: str, used: set[str]) -> bool:
    """Whether the file is referenced, or is Hadoop's checksum of a file that is."""
    if _canonical(location) in used:
        return True
    folder, _, name = location.rpartition("/")
    return name.startswith(".") and name.endswith(".crc") and _canonical(f"{folder}/{name[1:-4]}") in used
