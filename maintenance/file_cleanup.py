"""Deletes the files that only expired snapshots refer to.

A file is deleted only if no snapshot of the table's current document reaches it. The document has every
snapshot that a kept moment, a branch, a tag or an open transaction needs, so this is enough. If a manifest or
manifest list of a remaining snapshot cannot be read, nothing of the table is deleted.

Files are deleted before the files that name them: data files, then manifests, then manifest lists, then the
row of the queue. After a crash at any point, the next run finds what is left.
"""

from __future__ import annotations

import sys
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from catalog import faults
from catalog.errors import FileNotFound
from catalog.storage.base import Files
from maintenance.store import ExpiredFiles

CACHED_BYTES_MAX = 32 * 2**20
_CHUNK = 1_000

Metadata = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Deleted:
    """How many files were deleted, by kind."""

    data_files: int = 0
    manifests: int = 0
    manifest_lists: int = 0
    others: int = 0

    @property
    def total(self) -> int:
        return self.data_files + self.manifests + self.manifest_lists + self.others


class AvroCache:
    """The paths in manifest lists, and hashes of the paths in manifests. These files never change, so each is
    read once. A collision of two hashes only keeps a file that could be deleted.
    """

    def __init__(self, files: Files, bytes_max: int = CACHED_BYTES_MAX) -> None:
        self._files = files
        self._bytes_max = bytes_max
        self._known: OrderedDict[str, Any] = OrderedDict()
        self._bytes = 0

    def manifests(self, manifest_list: str) -> tuple[str, ...]:
        """The manifests in a manifest list. Lists share most of them, so the texts are interned."""
        found: tuple[str, ...] = self._cached(
            manifest_list, lambda: tuple(map(sys.intern, self._read(manifest_list, ("manifest_path",))))
        )
        return found

    def data_files(self, manifest: str) -> list[str]:
        """All files in a manifest, those marked deleted included."""
        return list(self._read(manifest, ("data_file", "file_path")))

    def live_hashes(self, manifest: str) -> array[int]:
        """Files that are live in a manifest."""
        path = ("data_file", "file_path")
        found: array[int] = self._cached(
            manifest, lambda: array("q", map(hash, self._read(manifest, path, live_only=True)))
        )
        return found

    def _cached(self, location: str, read: Callable[[], Any]) -> Any:
        if location in self._known:
            self._known.move_to_end(location)
            return self._known[location]
        found = self._known[location] = read()
        self._bytes += _size(location, found)
        while self._bytes > self._bytes_max:
            self._bytes -= _size(*self._known.popitem(last=False))
        return found

    def _read(self, location: str, path: tuple[str, ...], *, live_only: bool = False) -> Iterator[str]:
        from catalog.storage.avro import strings  # imports an Avro reader that a server needs rarely

        return strings(self._files.read(location), path, live_only=live_only)


def _size(location: str, found: Sequence[Any]) -> int:
    return 300 + len(location) + 8 * len(found)


class FileCleanup:
    """Finds and deletes files of one table at a time."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._avro = AvroCache(files)

    def run(
        self,
        metadata: Metadata,
        root: str,
        candidates: Iterable[ExpiredFiles],
        *,
        protected: frozenset[str] = frozenset(),
        check: Callable[[], None] = lambda: None,
    ) -> Deleted:
        """Delete what only `candidates` refer to. `metadata` is the table's current document, `protected`
        are metadata files that stay. `check` is called between steps and ends the run by raising.
        """
        from catalog.storage.purge import delete_own, table_locations

        properties = metadata.get("properties") or {}
        if str(properties.get("gc.enabled", "true")).lower() == "false":
            return Deleted()
        own = table_locations(metadata, root)
        given = list(candidates)
        remaining = {one["manifest-list"] for one in _snapshots(metadata) if "manifest-list" in one}
        live_manifests = self._live_manifests(metadata, remaining, check)
        lists = [path for one in given for path in one.manifest_lists if path not in remaining]
        dead = self._dead_manifests(lists, live_manifests, check)
        data_files = self._dead_files(dead, live_manifests, check)
        kept = _statistics(metadata) | _metadata_files(metadata) | protected
        others = [
            path for one in given for path in (*one.statistics, *one.metadata_files) if path not in kept
        ]

        def delete(paths: Iterable[str], point: str) -> int:
            count, found = 0, list(dict.fromkeys(paths))
            for start in range(0, len(found), _CHUNK):
                check()
                count += delete_own(self._files, own, own.select(found[start : start + _CHUNK]))
            faults.reach(point)
            return count

        return Deleted(
            data_files=delete(data_files, "cleanup.data-files"),
            manifests=delete(dead, "cleanup.manifests"),
            manifest_lists=delete(lists, "cleanup.manifest-lists"),
            others=delete(others, "cleanup.others"),
        )

    def _live_manifests(
        self, metadata: Metadata, lists: Iterable[str], check: Callable[[], None]
    ) -> set[str]:
        found = {path for one in _snapshots(metadata) for path in one.get("manifests") or ()}
        for manifest_list in lists:
            check()
            found.update(self._avro.manifests(manifest_list))
        return found

    def _dead_manifests(self, lists: Iterable[str], live: set[str], check: Callable[[], None]) -> list[str]:
        found: dict[str, None] = {}
        for manifest_list in lists:
            check()
            try:
                paths = self._avro.manifests(manifest_list)
            except FileNotFound:
                continue  # deleted by an earlier run, after everything that only it referred to
            found.update(dict.fromkeys(path for path in paths if path not in live))
        return list(found)

    def _dead_files(
        self, dead: Iterable[str], live_manifests: Iterable[str], check: Callable[[], None]
    ) -> list[str]:
        """The files of dead manifests that are live in no remaining manifest."""
        candidates: dict[str, None] = {}
        for manifest in dead:
            check()
            try:
                candidates.update(dict.fromkeys(self._avro.data_files(manifest)))
            except FileNotFound:
                continue  # as above
        hashes = {hash(path) for path in candidates}
        alive: set[int] = set()
        for manifest in live_manifests if hashes else ():
            check()
            alive.update(hashes.intersection(self._avro.live_hashes(manifest)))
        return [path for path in candidates if hash(path) not in alive]


def _snapshots(metadata: Metadata) -> list[Metadata]:
    return metadata.get("snapshots") or []


def _statistics(metadata: Metadata) -> set[str]:
    entries = (*(metadata.get("statistics") or ()), *(metadata.get("partition-statistics") or ()))
    return {entry["statistics-path"] for entry in entries}


def _metadata_files(metadata: Metadata) -> set[str]:
    return {entry["metadata-file"] for entry in metadata.get("metadata-log") or ()}
