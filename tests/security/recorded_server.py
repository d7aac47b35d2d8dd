"""A whole server in this process, over storage that is only memory and that notes every call.

Requests go over real HTTP through the real edge; the database is a private SQLite file, and `Files` a double.
So a test can say of a refused request: storage was not asked for anything.

    with RecordedServer.started(folder, "s3://lake/wh") as server:
        before = server.files.mark()
        ...
        assert server.files.calls_since(before) == []
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from starlette.types import ASGIApp

from calve.app import assemble
from calve.bootstrap import open_database
from calve.http import wrap
from calve.settings import Settings
from catalog.errors import FileNotFound
from catalog.identity.open import OpenIdentity
from catalog.locations import Location
from catalog.metadata.document import READ_BYTES_MAX
from catalog.services.catalog import Catalog, Limits
from catalog.services.warehouses import ensure_main
from catalog.storage.base import FileInfo
from tests.harness.thread_server import ThreadServer

Call = tuple[str, str]  # method of the port, location


class MemoryFiles:
    """Keeps `catalog.storage.base.Files` in a dict; `calls` is what was asked of it, in order."""

    def __init__(self) -> None:
        self.held: dict[str, bytes] = {}
        self.calls: list[Call] = []

    def mark(self) -> int:
        return len(self.calls)

    def calls_since(self, mark: int) -> list[Call]:
        return self.calls[mark:]

    def read(self, location: str, *, bytes_max: int = READ_BYTES_MAX) -> bytes:
        self.calls.append(("read", location))
        found = self.held.get(_key(location))
        if found is None:
            raise FileNotFound(f"Failed to open input stream for file: {location}")
        return found

    def create(self, location: str, *data: bytes) -> None:
        self.calls.append(("create", location))
        if _key(location) in self.held:
            raise FileExistsError(location)
        self.held[_key(location)] = b"".join(data)

    def exists(self, location: str) -> bool:
        self.calls.append(("exists", location))
        return _key(location) in self.held

    def is_missing(self, location: str) -> bool:
        return not self.exists(location)

    def delete(self, locations: Iterable[str]) -> int:
        asked = list(locations)
        for location in asked:
            self.calls.append(("delete", location))
            self.held.pop(_key(location), None)
        return len(asked)

    def remove_empty_directory(self, location: str) -> None:
        self.calls.append(("remove_empty_directory", location))

    def make_directory(self, location: str) -> None:
        self.calls.append(("make_directory", location))

    def sync(self, directory: str) -> None:
        self.calls.append(("settle", directory))

    def listed(self, directory: str) -> list[FileInfo]:
        self.calls.append(("listed", directory))
        return []

    def unchanged_since(self, directory: str, time_ms: int) -> list[str]:
        self.calls.append(("unchanged_since", directory))
        return []

    def probe(self, root: str) -> None:
        self.calls.append(("probe", root))


class RecordedServer:
    """The server, running in a thread until `stop`."""

    def __init__(self, folder: Path, root: str) -> None:
        self.root = root
        self.files = MemoryFiles()
        # Without maintenance: it looks for orphans, which are calls of storage that no request made.
        self.settings = Settings(home=folder, port=0, log_level="error", maintenance=False)
        self._server = ThreadServer(self._application(self.settings), self.settings)
        self.port = self._server.port

    @classmethod
    @contextlib.contextmanager
    def started(cls, folder: Path, root: str) -> Iterator[RecordedServer]:
        server = cls(folder, root)
        server.start()
        try:
            yield server
        finally:
            server.stop()

    @property
    def url(self) -> str:
        return self._server.url

    @property
    def catalog(self) -> Catalog:
        return self._catalog

    def start(self) -> None:
        self._server.start()

    def stop(self) -> None:
        self._server.stop()

    def _application(self, settings: Settings) -> ASGIApp:
        self._catalog = Catalog(open_database(settings), self.files, Limits(), lambda root: {})
        ensure_main(self._catalog, self.root)
        return wrap(assemble(settings, self._catalog, OpenIdentity()), settings)


def _key(location: str) -> str:
    return Location.parse_file(location).canonical
