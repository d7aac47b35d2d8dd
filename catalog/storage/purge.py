"""Deletes the files of a dropped table: of the reachable ones those that lie in the table's own place.

The metadata is not trusted. A document that someone registered may name files of another table, of the
system or of another bucket; they are counted, never deleted and never opened. What is already gone is fine,
and an interrupted purge can be run again.

On `file://` two things go that no metadata names: the checksum that Hadoop writes beside each file
(`.<name>.crc`), and the directories that became empty by this, up to the table's own place.

Whether another table lives in the same place is not asked here: the service reserves locations (the table's
own, `write.data.path` and `write.metadata.path`) so that none does.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from catalog.errors import Forbidden, Invalid, Unavailable
from catalog.locations import Location
from catalog.storage.base import Files
from catalog.storage.reachable import Reachable

_CHUNK = 1_000
_NAMED_MAX = 100
_NAME_BYTES_MAX = 255
_PLACES = ("write.data.path", "write.metadata.path", "write.object-storage.path", "write.folder-storage.path")

Metadata = dict[str, Any]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PurgeReport:
    """What a purge did. Lists of names end at 100; the counts beside them do not."""

    deleted: int
    """Files that are absent now and were reachable; those that had gone before are among them."""
    outside_count: int
    outside: tuple[str, ...]
    """Reachable files that lie elsewhere and were left alone."""
    missing: tuple[str, ...]
    """Manifest lists and manifests that were gone already."""
    unreadable: tuple[str, ...]
    """Manifest lists and manifests that could not be read, so that files which only they name stay."""
    data_kept: bool
    """True if `gc.enabled` is false: data files may belong to other tables, so only metadata was deleted."""


def purge(
    files: Files,
    metadata: Metadata,
    metadata_location: str | None,
    root: str,
    *,
    check: Callable[[], None] = lambda: None,
) -> PurgeReport:
    """Delete the table's files below `root`, the root of its warehouse.

    `check` is called before every step and ends the purge by raising. `Unavailable` if the storage fails in
    between; everything that is left is found again by the next call.
    """
    places = own_places(metadata, root)

    def may_read(location: str) -> bool:
        check()
        return places.hold(location)

    walk = Reachable(files, metadata, metadata_location, may_read=may_read)
    deleted = 0
    data_kept = _property(metadata, "gc.enabled").lower() == "false"
    for number, group in enumerate(walk.groups()):
        if number == 0 and data_kept:
            continue
        while chunk := list(islice(group, _CHUNK)):
            check()
            deleted += _deleted(files, places, places.own(chunk))
    _remove_directories(files, places)
    return PurgeReport(
        deleted=deleted,
        outside_count=places.outside_count,
        outside=tuple(places.outside),
        missing=tuple(walk.missing[:_NAMED_MAX]),
        unreadable=tuple(walk.unreadable[:_NAMED_MAX]),
        data_kept=data_kept,
    )


def _remove_directories(files: Files, places: OwnPlaces) -> None:
    for directory in places.emptied():
        try:
            files.remove_empty_directory(directory)
        except (Forbidden, Unavailable) as error:
            # An empty directory harms nobody, and beginning the purge again would not remove it either.
            log.warning("left an empty directory behind", extra={"reason": error.message})


def _deleted(files: Files, places: OwnPlaces, locations: list[str]) -> int:
    try:
        files.delete(list(_checksums(locations)))
        return files.delete(locations)
    except Forbidden:
        # A link leads out of the warehouse. The others are gone already; find out which ones stay.
        return sum(_deleted_alone(files, places, location) for location in locations)


def _deleted_alone(files: Files, places: OwnPlaces, location: str) -> int:
    try:
        files.delete(list(_checksums([location])))
        return files.delete([location])
    except Forbidden:
        places.leave(location)
        return 0


def _checksums(locations: list[str]) -> Iterator[str]:
    """What Hadoop would have written beside these files."""
    for location in locations:
        if location.startswith(("file:", "/")):
            folder, _, name = location.rpartition("/")
            if len(name.encode()) + len("..crc") <= _NAME_BYTES_MAX:
                yield f"{folder}/.{name}.crc"


class OwnPlaces:
    """Where a table's own files are, and which files were met elsewhere."""

    def __init__(self, places: list[Location]) -> None:
        self._places = places
        self.outside: list[str] = []
        self.outside_count = 0
        self._directories: set[str] = set()

    def hold(self, location: str) -> bool:
        """Whether this file lies in one of the places; False also for what is no location at all."""
        try:
            file = Location.parse_file(location)
        except Invalid:
            return False
        return any(file.is_inside(place) and file != place for place in self._places)

    def own(self, locations: list[str]) -> list[str]:
        """Those that lie inside; the others are counted."""
        inside = []
        for location in locations:
            if self.hold(location):
                inside.append(location)
                self._directories.add(location.rpartition("/")[0])
            else:
                self.leave(location)
        return inside

    def emptied(self) -> list[str]:
        """The directories that held the table's files and may be empty now, each before the one it is in."""
        found: set[Location] = set()
        for text in self._directories:
            directory = Location.parse_file(text)
            while directory not in found and any(directory.is_inside(place) for place in self._places):
                found.add(directory)
                directory = Location.parse_file(directory.text.rpartition("/")[0])
        return [one.text for one in sorted(found, key=lambda one: len(one.segments), reverse=True)]

    def leave(self, location: str) -> None:
        self.outside_count += 1
        if len(self.outside) < _NAMED_MAX:
            self.outside.append(location)


def own_places(metadata: Metadata, root: str) -> OwnPlaces:
    """The table's location and the paths it writes to, as far as they are below the warehouse's root."""
    whole = Location.parse(root)
    claimed = [metadata.get("location"), *(_property(metadata, name) for name in _PLACES)]
    return OwnPlaces([place for place in _parsed(claimed) if place.is_inside(whole) and place != whole])


def _parsed(claimed: list[Any]) -> Iterator[Location]:
    for text in claimed:
        try:
            yield Location.parse(text)
        except Invalid:
            continue  # nothing can lie in a place that no location names


def _property(metadata: Metadata, name: str) -> str:
    properties = metadata.get("properties")
    value = properties.get(name) if isinstance(properties, dict) else None
    return value if isinstance(value, str) else ""
