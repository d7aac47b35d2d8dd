"""`StorageFiles` implements `Files` on local folders and S3, and has the storage properties for engines.

Only the schemes `file` and `s3` are allowed. Every location is parsed by `Location.parse_file` before an
adapter uses it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Protocol

from catalog.errors import CatalogError
from catalog.locations import Location
from catalog.metadata.files import READ_BYTES_MAX
from catalog.storage.base import FileInfo
from catalog.storage.local import LocalFiles
from catalog.storage.s3 import S3Files, S3Settings

_DELETE_CHUNK = 1_000


class _Adapter(Protocol):
    """The storage of one scheme. `catalog.storage.base.Files` describes the methods."""

    def read(self, location: Location, bytes_max: int) -> bytes: ...
    def create(self, location: Location, data: bytes) -> None: ...
    def exists(self, location: Location) -> bool: ...
    def delete(self, locations: Iterable[Location]) -> int: ...
    def make_directory(self, location: Location) -> None: ...
    def remove_empty_directory(self, location: Location) -> None: ...
    def sync(self, directory: Location) -> None: ...
    def listed(self, directory: Location) -> list[FileInfo]: ...
    def probe(self, root: Location) -> None: ...


class StorageFiles:
    """Implements `Files`. Create it after a fork: its client has threads."""

    def __init__(self, s3: S3Settings | None = None, *, file_roots: Iterable[str] = ()) -> None:
        """`file_roots` are the local warehouse roots known at the start; `probe` adds others."""
        self._s3 = s3 or S3Settings()
        self._adapters: dict[str, _Adapter] = {
            "file": LocalFiles(Location.parse(root) for root in file_roots),
            "s3": S3Files(self._s3),
        }

    def read(self, location: str, *, bytes_max: int = READ_BYTES_MAX) -> bytes:
        parsed = Location.parse_file(location)
        return self._adapters[parsed.scheme].read(parsed, bytes_max)

    def create(self, location: str, data: bytes) -> None:
        parsed = Location.parse_file(location)
        self._adapters[parsed.scheme].create(parsed, data)

    def exists(self, location: str) -> bool:
        parsed = Location.parse_file(location)
        return self._adapters[parsed.scheme].exists(parsed)

    def is_missing(self, location: str) -> bool:
        # Not parsed, because every loadTable calls this. The locations of rows were checked when they were
        # written.
        return location.startswith("file:") and not os.path.exists(location.removeprefix("file:"))  # noqa: PTH110

    def delete(self, locations: Iterable[str]) -> int:
        deleted = 0
        failure: Exception | None = None
        for chunk in _chunks(map(Location.parse_file, locations)):
            for scheme, adapter in self._adapters.items():
                try:
                    deleted += adapter.delete(parsed for parsed in chunk if parsed.scheme == scheme)
                except CatalogError as error:
                    failure = failure or error
        if failure is not None:
            raise failure
        return deleted

    def remove_empty_directory(self, location: str) -> None:
        parsed = Location.parse_file(location)
        self._adapters[parsed.scheme].remove_empty_directory(parsed)

    def make_directory(self, location: str) -> None:
        parsed = Location.parse(location)
        self._adapters[parsed.scheme].make_directory(parsed)

    def sync(self, directory: str) -> None:
        parsed = Location.parse(directory)
        self._adapters[parsed.scheme].sync(parsed)

    def listed(self, directory: str) -> list[FileInfo]:
        parsed = Location.parse(directory)
        return self._adapters[parsed.scheme].listed(parsed)

    def unchanged_since(self, directory: str, time_ms: int) -> list[str]:
        return [file.location for file in self.listed(directory) if file.modified_ms < time_ms]

    def probe(self, root: str) -> None:
        parsed = Location.parse(root)
        self._adapters[parsed.scheme].probe(parsed)

    def client_properties(self, root: str) -> dict[str, str]:
        """The properties that `/v1/config` returns for this root. They are defaults: a user's own setting
        wins.

        There are none for files: Iceberg's Java library, PyIceberg and DuckDB select their file IO by the
        scheme. For S3 the Java FileIO is named, because without the AWS classes Java falls back to Hadoop's
        file systems and fails later, with a less clear error. PyIceberg reads `py-io-impl` and not `io-impl`;
        DuckDB reads neither. Keys are never included: engines have their own, or get vended credentials for a
        table.
        """
        if Location.parse(root).scheme != "s3":
            return {}
        settings = self._s3
        properties = {
            "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
            "s3.path-style-access": "true" if settings.path_style else "false",
            "s3.region": settings.region,
            "client.region": settings.region,
        }
        if settings.endpoint is not None:
            properties["s3.endpoint"] = settings.endpoint
            if not settings.path_style:
                # PyIceberg's property. With an endpoint, PyIceberg uses path style unless this is set.
                properties["s3.force-virtual-addressing"] = "true"
        return properties


def _chunks(locations: Iterator[Location]) -> Iterator[list[Location]]:
    while chunk := list(islice(locations, _DELETE_CHUNK)):
        yield chunk
