"""Random commits by PyIceberg, and a model that remembers what the warehouse was after each of them.

Creates, appends, deletes, changed columns, renames, drops, and names that are used again.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.table import Table
from pyiceberg.types import LongType

from tests.clients import pyiceberg_client
from tests.harness.rest import Rest
from tests.harness.stacks import Stack

NAMES = ("t1", "t2", "t3", "t4")  # few, so that they are used again


@dataclass(frozen=True)
class TableModel:
    """Columns in order, and rows as values in that order, sorted by id."""

    columns: tuple[str, ...] = ("id",)
    rows: tuple[tuple[int | None, ...], ...] = ()


Moment = dict[str, TableModel]


@dataclass
class RandomHistory:
    """`moments[n]` is what the namespace `db` held at number n of a warehouse that nobody else uses."""

    stack: Stack
    warehouse: str
    random: random.Random
    namespace: str = "db"
    tables: Moment = field(default_factory=dict)
    moments: dict[int, Moment] = field(default_factory=dict)
    next_value: int = 0

    def __post_init__(self) -> None:
        self.rest = Rest(self.stack.url)
        made = self.rest.lake("POST", "warehouses", json={"name": self.warehouse})
        assert made.status_code == 200, made.text
        self.catalog: RestCatalog = pyiceberg_client.catalog(self.stack, self.warehouse)

    def run(self, commits: int) -> None:
        self.catalog.create_namespace(self.namespace)
        assert self.head() == 1
        self.moments[1] = {}
        for number in range(2, commits + 2):
            self._step()
            assert self.head() == number, "each step is one commit"
            self.moments[number] = dict(self.tables)

    def head(self) -> int:
        answer = self.rest.lake("GET", f"warehouses/{self.warehouse}")
        number: int = answer.json()["number"]
        return number

    def _step(self) -> None:
        free = [name for name in NAMES if name not in self.tables]
        steps: list[Any] = [self._create] * 2 if free else []
        if self.tables:
            steps += [self._append] * 4 + [self._add_column, self._add_column, self._drop]
            steps += [self._rename] if free else []
            steps += [self._rename_column, self._drop_column] if self._widened() else []
            steps += [self._delete] if self._filled() else []
        self.random.choice(steps)()

    def _new(self) -> int:
        self.next_value += 1
        return self.next_value

    def _some(self, names: list[str] | None = None) -> str:
        return self.random.choice(sorted(names or self.tables))

    def _widened(self) -> list[str]:
        return [name for name, table in self.tables.items() if len(table.columns) > 1]

    def _filled(self) -> list[str]:
        return [name for name, table in self.tables.items() if len(table.rows) > 1]

    def _load(self, name: str) -> Table:
        found: Table = self.catalog.load_table((self.namespace, name))
        return found

    def _free(self) -> str:
        return self._some([name for name in NAMES if name not in self.tables])

    # -- the steps

    def _create(self) -> None:
        name = self._free()
        self.catalog.create_table((self.namespace, name), pa.schema([("id", pa.int64())]))
        self.tables[name] = TableModel()

    def _append(self) -> None:
        name = self._some()
        table = self.tables[name]
        row = tuple(self._new() for _ in table.columns)
        self._load(name).append(
            pa.table({column: [value] for column, value in zip(table.columns, row, strict=True)})
        )
        self.tables[name] = TableModel(table.columns, (*table.rows, row))

    def _delete(self) -> None:
        name = self._some(self._filled())
        table = self.tables[name]
        border = table.rows[-1][0]
        assert border is not None
        self._load(name).delete(f"id < {border}")
        self.tables[name] = TableModel(table.columns, table.rows[-1:])

    def _add_column(self) -> None:
        name, column = self._some(), f"c{self._new()}"
        with self._load(name).update_schema() as update:
            update.add_column(column, LongType())
        table = self.tables[name]
        self.tables[name] = TableModel((*table.columns, column), tuple((*row, None) for row in table.rows))

    def _rename_column(self) -> None:
        name = self._some(self._widened())
        table = self.tables[name]
        old, new = table.columns[-1], f"r{self._new()}"
        with self._load(name).update_schema() as update:
            update.rename_column(old, new)
        self.tables[name] = TableModel((*table.columns[:-1], new), table.rows)

    def _drop_column(self) -> None:
        name = self._some(self._widened())
        table = self.tables[name]
        with self._load(name).update_schema() as update:
            update.delete_column(table.columns[-1])
        self.tables[name] = TableModel(table.columns[:-1], tuple(row[:-1] for row in table.rows))

    def _rename(self) -> None:
        old, new = self._some(), self._free()
        self.catalog.rename_table((self.namespace, old), (self.namespace, new))
        self.tables[new] = self.tables.pop(old)

    def _drop(self) -> None:
        name = self._some()
        self.catalog.drop_table((self.namespace, name))
        del self.tables[name]
