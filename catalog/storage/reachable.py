"""Every file that the metadata of a table refers to, children before parents.

    walk = Reachable(files, metadata, metadata_location)
    for group in walk.groups():       # data files first, the metadata file itself last
        for location in group: ...

This is the order of deletion: after an interruption, a new walk still finds every remaining file. It covers
format v1, v2 and v3: manifest lists, or manifests named in the snapshot; data files, position and equality
deletes; Puffin files with statistics or deletion vectors.

Memory: the paths of all manifests (some hundred bytes each), one manifest, and the hashes of files already
returned, up to `_SEEN_MAX`. Beyond that a file may be returned twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from catalog.errors import FileNotFound, Forbidden, TooLarge
from catalog.storage.avro import NotAvro, strings
from catalog.storage.base import Files

_SEEN_MAX = 1_000_000
_MANIFEST_PATH = ("manifest_path",)
_FILE_PATH = ("data_file", "file_path")

Metadata = dict[str, Any]


class Reachable:
    """The files of one table. `missing` and `unreadable` are filled while the groups are read."""

    def __init__(
        self,
        files: Files,
        metadata: Metadata,
        metadata_location: str | None,
        *,
        may_read: Callable[[str], bool] = lambda _: True,
    ) -> None:
        """`may_read` is called before a manifest or manifest list is opened. A file that it refuses is still
        returned.
        """
        self._files = files
        self._metadata = metadata
        self._metadata_location = metadata_location
        self._may_read = may_read
        self._manifests: list[str] | None = None
        self.missing: list[str] = []
        """Missing manifest lists and manifests. Files that only they refer to cannot be found."""
        self.unreadable: list[str] = []
        """Manifest lists and manifests that are damaged, encrypted, too large or behind a symbolic link."""

    def groups(self) -> Iterator[Iterator[str]]:
        """Data and delete files; manifests; manifest lists; statistics; metadata files."""
        yield self.data_files()
        yield iter(self.manifests())
        yield iter(self.manifest_lists())
        yield iter(self.statistics())
        yield iter(self.metadata_files())

    def data_files(self) -> Iterator[str]:
        """Files in manifests: data files, delete files, deletion vectors, including entries marked
        deleted.
        """
        seen: set[int] = set()
        for manifest in self.manifests():
            for location in self._strings(manifest, _FILE_PATH):
                mark = hash(location)
                if mark not in seen:
                    if len(seen) < _SEEN_MAX:
                        seen.add(mark)
                    yield location

    def manifests(self) -> list[str]:
        """The manifests of all snapshots, each once."""
        if self._manifests is None:
            found: dict[str, None] = {}
            for snapshot in self._snapshots():
                found.update(dict.fromkeys(_texts(snapshot.get("manifests"))))
            for manifest_list in self.manifest_lists():
                found.update(dict.fromkeys(self._strings(manifest_list, _MANIFEST_PATH)))
            self._manifests = list(found)
        return self._manifests

    def manifest_lists(self) -> list[str]:
        return _unique(snapshot.get("manifest-list") for snapshot in self._snapshots())

    def statistics(self) -> list[str]:
        """Statistics and partition statistics."""
        entries = (*_entries(self._metadata, "statistics"), *_entries(self._metadata, "partition-statistics"))
        return _unique(entry.get("statistics-path") for entry in entries)

    def metadata_files(self) -> list[str]:
        """The files of the metadata log, then the current one."""
        log = (entry.get("metadata-file") for entry in _entries(self._metadata, "metadata-log"))
        return _unique([*(file for file in log if file != self._metadata_location), self._metadata_location])

    def _snapshots(self) -> list[Metadata]:
        return _entries(self._metadata, "snapshots")

    def _strings(self, location: str, path: tuple[str, ...]) -> Iterator[str]:
        if not self._may_read(location):
            return
        try:
            yield from strings(self._files.read(location), path)
        except FileNotFound:
            self.missing.append(location)
        except (NotAvro, TooLarge, Forbidden):
            self.unreadable.append(location)


def _entries(metadata: Metadata, name: str) -> list[Metadata]:
    """The objects of a list. A registered document may contain other values; these name no files."""
    found = metadata.get(name)
    return [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []


def _texts(found: object) -> list[str]:
    return [entry for entry in found if isinstance(entry, str)] if isinstance(found, list) else []


def _unique(found: Any) -> list[str]:
    return list(dict.fromkeys(entry for entry in found if isinstance(entry, str) and entry))
