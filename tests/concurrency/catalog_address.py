"""A catalog without a server: the services on a real database and real storage, in this process or a child.

A `CatalogAddress` can be sent to another process, and `catalog()` opens a catalog on it. Two catalogs of one
address are like two server processes: they share only the database and the files.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from catalog.names import Identifier, Namespace, warehouse_ref
from catalog.services import namespaces, tables
from catalog.services.catalog import Catalog, Limits
from catalog.services.check import check
from catalog.services.warehouse_state import WarehouseState
from catalog.services.warehouses import ensure_main
from catalog.services.writes import WriteContext
from catalog.storage.files import StorageFiles
from catalog.storage.s3 import S3Settings
from catalog.store.database import Database
from catalog.store.migrations import migrate
from tests.harness.rest import SCHEMA
from tests.harness.stacks import Stack, StackName, Stacks
from tests.harness.storage_roots import s3_settings

CONTEXT = WriteContext("tester")
NAMESPACE = Namespace(("db",))


@dataclass(frozen=True, slots=True)
class CatalogAddress:
    """Where a catalog is kept."""

    database: str
    root: str
    s3: S3Settings | None = None

    @classmethod
    def fresh(
        cls, stacks: Stacks, name: StackName, folder: Path, *, local_files: bool = False
    ) -> CatalogAddress:
        """An empty one on the components of a stack, or on its database and local files."""
        home = folder / f"catalog-{uuid.uuid4().hex[:8]}"
        home.mkdir(parents=True)
        if name == "embedded":
            made = cls(f"sqlite:///{home}/catalog.db", f"file://{home}/warehouse")
        elif local_files:
            made = cls(stacks.postgres.database(), f"file://{home}/warehouse")
        else:
            root = f"s3://{stacks.s3.bucket()}/warehouse"
            made = cls(stacks.postgres.database(), root, s3_settings(stacks.s3.access))
        with made.opened() as catalog:
            migrate(catalog.database)
            ensure_main(catalog, made.root)
        return made

    @classmethod
    def of(cls, stack: Stack) -> CatalogAddress:
        """That of a running server."""
        return cls(stack.database, stack.warehouse_root, s3_settings(stack.s3) if stack.s3 else None)

    def catalog(self, limits: Limits | None = None) -> Catalog:
        roots = [self.root] if self.root.startswith("file:") else []
        files = StorageFiles(self.s3 or S3Settings(), file_roots=roots)
        database = Database(self.database, pool_size=4)
        return Catalog(database, files, limits or Limits(), files.client_properties)

    @contextlib.contextmanager
    def opened(self, limits: Limits | None = None) -> Iterator[Catalog]:
        catalog = self.catalog(limits)
        try:
            yield catalog
        finally:
            catalog.database.close()


def state(catalog: Catalog, ref: str = "main") -> WarehouseState:
    return catalog.state(warehouse_ref(ref))


def table(name: str) -> Identifier:
    return Identifier(NAMESPACE, name)


def create_tables(catalog: Catalog, *names: str) -> None:
    """The namespace `db`, and these tables in it."""
    main = state(catalog)
    if main.entry(NAMESPACE.key, "") is None:
        namespaces.create(catalog, main, CONTEXT, NAMESPACE, {})
    for name in names:
        tables.create(catalog, main, CONTEXT, table(name), {"name": name, "schema": SCHEMA})


def problems(catalog: Catalog) -> list[str]:
    """What `calve check` would say."""
    return [f"{found.name}: {problem}" for found in check(catalog) for problem in found.problems]


def gaps(catalog: Catalog) -> list[str]:
    """What is wrong with the history: numbers must run from 1 to the head, ordinals from 0."""
    head = catalog.entries.number("main")
    assert head is not None
    rows = catalog.history.events("main", 0, 1_000_000)
    numbers = sorted({row["number"] for row in rows})
    wrong = (
        [] if numbers == list(range(1, head[0] + 1)) else [f"numbers {numbers} with the head at {head[0]}"]
    )
    for number in numbers:
        ordinals = [row["ordinal"] for row in rows if row["number"] == number]
        if ordinals != list(range(len(ordinals))):
            wrong.append(f"ordinals {ordinals} under number {number}")
    return wrong
