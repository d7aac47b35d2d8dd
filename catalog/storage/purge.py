"""Deletes the files of a dropped table: the reachable files inside the table's own locations.

The metadata is not trusted. A registered document may refer to files of another table, of the system or of
another bucket. These are counted, but never deleted or opened. A missing file is not an error, and an
interrupted purge can be repeated.

On `file://` two kinds of files are deleted that the metadata does not name: the checksum that Hadoop writes
beside each file (`.<name>.crc`), and directories of the table that have become empty.

No other table has files in these locations: the service reserves the table's location, `write.data.path` and
`write.metadata.path`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from catalog.errors import Forbidden, Invalid, Unavailable
from catalog.locations import PATH_PROPERTIES, Location
from catalog.storage.base import Files
from catalog.storage.reachable import Reachable

_CHUNK = 1_000
_NAMED_MAX = 100
_NAME_BYTES_MAX = 255

Metadata = dict[str, Any]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PurgeReport:
    """The result of a purge. Lists of names contain at most 100; the counts are complete."""

    deleted: int
    """Reachable files that do not exist any more, including those that were missing before."""
    outside_count: int
    outside: tuple[str, ...]
    """Reachable files in other locations, which were not deleted."""
    missing: tuple[str, ...]
    """Manifest lists and manifests that were missing."""
    unreadable: tuple[str, ...]
    """Manifest lists and manifests that could not be read. Files that only they refer to remain."""
    data_kept: bool
    """True if `gc.enabled` is false: other tables may use the data files, so only metadata was deleted."""


def purge(
    files: Files,
    metadata: Metadata,
    metadata_location: str | None,
    root: str,
    *,
    check: Callable[[], None] = lambda: None,
) -> PurgeReport:
    """Delete the table's files below `root`, the root of its warehouse.

    `check` is called before every step and ends the purge by raising. Raises `Unavailable` if storage fails;
    the next call finds all files that remain.
    """
    own_locations = table_locations(metadata, root)

    def may_read(location: str) -> bool:
        check()
        return own_locations.contains(location)

    walk = Reachable(files, metadata, metadata_location, may_read=may_read)
    deleted = 0
    data_kept = _property(metadata, "gc.enabled").lower() == "false"
    for number, group in enumerate(walk.groups()):
        if number == 0 and data_kept:
            continue
        while chunk := list(islice(group, _CHUNK)):
            check()
            deleted += delete_own(files, own_locations, own_locations.select(chunk))
    _remove_directories(files, own_locations)
    return PurgeReport(
        deleted=deleted,
        outside_count=own_locations.outside_count,
        outside=tuple(own_locations.outside),
        missing=tuple(walk.missing[:_NAMED_MAX]),
        unreadable=tuple(walk.unreadable[:_NAMED_MAX]),
        data_kept=data_kept,
    )


def _remove_directories(files: Files, own_locations: TableLocations) -> None:
    for directory in own_locations.directories():
        try:
            files.remove_empty_directory(directory)
        except (Forbidden, Unavailable) as error:
            # An empty directory does no harm, and repeating the purge would not remove it either.
            log.warning("left an empty directory behind", extra={"reason": error.message})


def delete_own(files: Files, own_locations: TableLocations, locations: list[str]) -> int:
    """Delete files of a table, with the checksums that Hadoop wrote beside them. Returns how many."""
    try:
        files.delete(list(_checksums(locations)))
        return files.delete(locations)
    except Forbidden:
        # A link leads out of the warehouse. The other files are deleted already; find those that remain.
        return sum(_deleted_alone(files, own_locations, location) for location in locations)


def _deleted_alone(files: Files, own_locations: TableLocations, location: str) -> int:
    try:
        files.delete(list(_checksums([location])))
        return files.delete([location])
    except Forbidden:
        own_locations.count_outside(location)
        return 0


def _checksums(locations: list[str]) -> Iterator[str]:
    """The checksum files that Hadoop would have written beside these files."""
    for location in locations:
        if location.startswith(("file:", "/")):
            folder, _, name = location.rpartition("/")
            if len(name.encode()) + len("..crc") <= _NAME_BYTES_MAX:
                yield f"{folder}/.{name}.crc"


class TableLocations:
    """The table's own locations, and the files found elsewhere."""

    def __init__(self, own_locations: list[Location]) -> None:
        self._locations = own_locations
        self.outside: list[str] = []
        self.outside_count = 0
        self._directories: set[str] = set()

    def contains(self, location: str) -> bool:
        """Whether this file is in one of the table's locations. False for text that is not a location."""
        try:
            file = Location.parse_file(location)
        except Invalid:
            return False
        return any(file.is_inside(own_location) and file != own_location for own_location in self._locations)

    def select(self, locations: list[str]) -> list[str]:
        """The files inside the table's locations; the others are counted."""
        inside = []
        for location in locations:
            if self.contains(location):
                inside.append(location)
                self._directories.add(location.rpartition("/")[0])
            else:
                self.count_outside(location)
        return inside

    def directories(self) -> list[str]:
        """The directories that contained the table's files and may be empty now, children before parents."""
        found: set[Location] = set()
        for text in self._directories:
            directory = Location.parse_file(text)
            while directory not in found and any(
                directory.is_inside(own_location) for own_location in self._locations
            ):
                found.add(directory)
                directory = Location.parse_file(directory.text.rpartition("/")[0])
        return [one.text for one in sorted(found, key=lambda one: len(one.segments), reverse=True)]

    def count_outside(self, location: str) -> None:
        self.outside_count += 1
        if len(self.outside) < _NAMED_MAX:
            self.outside.append(location)


def table_locations(metadata: Metadata, root: str) -> TableLocations:
    """The table's location and path properties that are below the warehouse root."""
    warehouse_root = Location.parse(root)
    texts = [metadata.get("location"), *(_property(metadata, name) for name in sorted(PATH_PROPERTIES))]
    return TableLocations(
        [
            own_location
            for own_location in _parsed(texts)
            if own_location.is_inside(warehouse_root) and own_location != warehouse_root
        ]
    )


def _parsed(texts: list[Any]) -> Iterator[Location]:
    for text in texts:
        try:
            yield Location.parse(text)
        except Invalid:
            continue  # no file can be in a path that is not a valid location


def _property(metadata: Metadata, name: str) -> str:
    properties = metadata.get("properties")
    value = properties.get(name) if isinstance(properties, dict) else None
    return value if isinstance(value, str) else ""
