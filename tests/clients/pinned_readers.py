"""Readers that pin the present (`main@now`) again and again, and keep what they saw each time.

    with watching(stack, duckdb_at, look) as seen: ...

A look gets a reader that stands at one number, and may ask it for as many tables as it likes.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

import duckdb
from pyiceberg.catalog.rest import RestCatalog

from tests.clients import pyiceberg_client
from tests.clients.duckdb_client import DuckLake
from tests.harness.stacks import Stack

T = TypeVar("T")
PAUSE_S = 0.05  # the machine is also the writer's


class Pinned(Protocol):
    """A reader that stands at one number."""

    def which(self, namespace: str, names: Iterable[str]) -> set[str]:
        """Those of the names that are tables."""
        ...

    def columns(self, namespace: str, table: str) -> list[str]: ...

    def ids(self, namespace: str, table: str) -> list[int]:
        """The column `id`, sorted."""
        ...


class PinnedDuck:
    def __init__(self, lake: DuckLake) -> None:
        self._lake = lake

    def which(self, namespace: str, names: Iterable[str]) -> set[str]:
        # Not by a listing: that asks for the tables of every namespace there is.
        return {name for name in names if self._is_there(namespace, name)}

    def _is_there(self, namespace: str, name: str) -> bool:
        try:
            self.columns(namespace, name)
        except duckdb.CatalogException:
            return False
        return True

    def columns(self, namespace: str, table: str) -> list[str]:
        return [row[0] for row in self._lake.sql(f'DESCRIBE lake.{namespace}."{table}"')]

    def ids(self, namespace: str, table: str) -> list[int]:
        return [row[0] for row in self._lake.sql(f'SELECT id FROM lake.{namespace}."{table}" ORDER BY id')]


class PinnedIceberg:
    def __init__(self, catalog: RestCatalog) -> None:
        self._catalog = catalog

    def which(self, namespace: str, names: Iterable[str]) -> set[str]:
        return {identifier[-1] for identifier in self._catalog.list_tables((namespace,))} & set(names)

    def columns(self, namespace: str, table: str) -> list[str]:
        return [field.name for field in self._catalog.load_table((namespace, table)).schema().fields]

    def ids(self, namespace: str, table: str) -> list[int]:
        scan = self._catalog.load_table((namespace, table)).scan(selected_fields=("id",))
        return sorted(scan.to_arrow()["id"].to_pylist())


@contextlib.contextmanager
def duckdb_at(stack: Stack, warehouse: str) -> Iterator[Pinned]:
    with DuckLake(stack, warehouse) as lake:
        yield PinnedDuck(lake)


@contextlib.contextmanager
def pyiceberg_at(stack: Stack, warehouse: str) -> Iterator[Pinned]:
    yield PinnedIceberg(pyiceberg_client.catalog(stack, warehouse))


Pin = Callable[[Stack, str], contextlib.AbstractContextManager[Pinned]]


@contextlib.contextmanager
def watching(stack: Stack, pin: Pin, look: Callable[[Pinned], T]) -> Iterator[list[T]]:
    """What a thread saw from before the block until after it; an error in it is raised at the end."""
    seen: list[T] = []
    over, begun = threading.Event(), threading.Event()

    def watch() -> None:
        try:
            while True:
                last = over.wait(PAUSE_S)  # so that there is one whole look after the block
                with pin(stack, "main@now") as reader:
                    seen.append(look(reader))
                begun.set()
                if last:
                    return
        finally:
            begun.set()

    with ThreadPoolExecutor(1) as pool:
        watched = pool.submit(watch)
        try:
            begun.wait()
            yield seen
        finally:
            over.set()
        watched.result()
