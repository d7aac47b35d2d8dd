"""A stack is a running server together with the database and the storage below it.

There are two, and every behaviour is shown on both: `embedded` (SQLite and files, the default on a laptop)
and `postgres-s3` (the form of production). tests/conftest.py has the fixtures.
"""

from __future__ import annotations

import contextlib
import functools
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from tests.harness.errors import ComponentFailed
from tests.harness.postgres import PostgresServer
from tests.harness.s3 import S3Access, S3Server
from tests.harness.server import CalveServer

StackName = Literal["embedded", "postgres-s3"]
STACKS: tuple[StackName, ...] = get_args(StackName)


@dataclass(frozen=True, slots=True)
class Stack:
    """A running server, and what its clients need."""

    name: StackName
    server: CalveServer
    warehouse_root: str  # where the warehouse `main` keeps its tables: file:///… or s3://…
    database: str  # SQLAlchemy address
    s3: S3Access | None

    @property
    def url(self) -> str:
        return self.server.url

    @property
    def client_properties(self) -> dict[str, str]:
        """Catalog properties for PyIceberg and Iceberg's Java library, storage keys included."""
        return {"type": "rest", "uri": self.url, **(self.s3.iceberg if self.s3 else {})}


# Nothing expires in a stack that tests share: an expiry is a commit, and tests count the commits they made.
SHARED = {"CALVE_KEPT_MOMENTS": "all:7d"}


class Stacks:
    """The stacks of one test process, and the components below them, each started when first needed.

    `running` ends them, the last started first: a server before its database.
    """

    def __init__(self, folder: Path, running: contextlib.ExitStack) -> None:
        self._folder = folder
        self._running = running
        self._shared: dict[StackName, Stack] = {}

    @functools.cached_property
    def postgres(self) -> PostgresServer:
        return self._running.enter_context(PostgresServer.started())

    @functools.cached_property
    def s3(self) -> S3Server:
        return self._running.enter_context(S3Server.started(self._folder / "s3"))

    def shared(self, name: StackName) -> Stack:
        """The one stack of this name that tests share."""
        if name not in self._shared:
            started = self.started(name, self._folder / name, SHARED)
            self._shared[name] = self._running.enter_context(started)
        return self._shared[name]

    @contextlib.contextmanager
    def started(
        self,
        name: StackName,
        folder: Path,
        settings: Mapping[str, str] | None = None,
        *,
        s3: S3Server | None = None,
    ) -> Iterator[Stack]:
        """A stack with an empty database and an empty warehouse; `settings` are added to the server's own.

        `s3` is the object store of `postgres-s3`, if it is not the one that stacks share.
        """
        stack = self.prepared(name, folder, settings, s3=s3)
        stack.server.start()
        try:
            yield stack
        finally:
            stack.server.stop()

    def prepared(
        self,
        name: StackName,
        folder: Path,
        settings: Mapping[str, str] | None = None,
        *,
        s3: S3Server | None = None,
    ) -> Stack:
        """The same, with the server not started yet."""
        chosen = dict(settings or {})
        access: S3Access | None = None
        below: dict[str, str] = {}
        if name == "embedded":
            home = folder / "lake"
            database, root = f"sqlite:///{home}/catalog.db", f"file://{home}/warehouse"
            if not home.exists() and not {"CALVE_HOME", "CALVE_DATABASE", "CALVE_JOURNAL"} & chosen.keys():
                shutil.copytree(self._migrated_home, home)
        else:
            store = s3 or self.s3
            access = store.access
            database = chosen.get("CALVE_DATABASE") or self.postgres.database(self._migrated_database)
            root = f"s3://{store.bucket()}/warehouse"
            below = {"CALVE_DATABASE": database, "CALVE_WAREHOUSE_ROOT": root, **access.settings}
            below["CALVE_WEBHOOK_KEY"] = "only for tests, not a secret"
        given = {**below, **chosen}
        database = given.get("CALVE_DATABASE", database)
        root = given.get("CALVE_WAREHOUSE_ROOT", root)
        stack = Stack(name, CalveServer(folder, given), warehouse_root=root, database=database, s3=access)
        if not database.startswith("sqlite:") and {"CALVE_DATABASE", "CALVE_JOURNAL"} & chosen.keys():
            _migrate(stack.server)
        return stack

    # `calve migrate` takes as long as the start of a server, so it runs once and its result is copied.

    @functools.cached_property
    def _migrated_home(self) -> Path:
        """A home folder with SQLite files at the newest schema."""
        home = self._folder / "migrated"
        _migrate(CalveServer(self._folder / "migration", {"CALVE_HOME": str(home)}))
        return home

    @functools.cached_property
    def _migrated_database(self) -> str:
        """A PostgreSQL database at the newest schema, for copies only."""
        database = self.postgres.database()
        _migrate(CalveServer(self._folder / "migration", {"CALVE_DATABASE": database}))
        return database


def _migrate(server: CalveServer) -> None:
    """A server leaves the schema of a database that others may share alone."""
    ended = server.command("migrate")
    if ended.returncode != 0:
        raise ComponentFailed(f"calve migrate ended with {ended.returncode}:\n{ended.stdout}{ended.stderr}")
