"""PostgreSQL or MariaDB under load: transactions over several tables, changed keys, ALTERs, a truncate.

    stock = Stock(database, schema); stock.create(rows=100)
    with loading(stock, changes=1_000) as load:     # in a thread of its own
        primary.kill()
        load.wait_for_loss()
        load.go_on(address_of_the_new_primary)
        load.wait()

Everything random comes from a seed. All tables have names and types that both servers know.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
import pymysql
import sqlalchemy as sa

Row = tuple[Any, ...]
CHANGES_MAX = 6  # in one transaction
LOST = (psycopg.OperationalError, pymysql.err.OperationalError, pymysql.err.InterfaceError)

TABLES = {
    "orders": "id bigint PRIMARY KEY, customer varchar(80) NOT NULL, amount decimal(12, 2) NOT NULL, "
    "code int, placed timestamp(6) NOT NULL, note varchar(200)",
    "order_lines": "order_id bigint, line int, item varchar(80) NOT NULL, quantity int NOT NULL, "
    "PRIMARY KEY (order_id, line)",
    "people": "email varchar(80) PRIMARY KEY, name varchar(80) NOT NULL, visits int NOT NULL",
    "scratch": "id int PRIMARY KEY, word varchar(20) NOT NULL",
    "done": "id int PRIMARY KEY, word varchar(20)",
}
KEYS = {"order_lines": ["order_id", "line"], "people": ["email"]}  # the others have a column `id`
BUSY = ("orders", "orders", "order_lines", "people", "scratch")


class Stock:
    """The tables, and single transactions on them. `changes` counts those that were committed."""

    def __init__(self, database: str, schema: str, seed: int = 11) -> None:
        self.schema = schema
        self.changes = 0
        self.rows_lost = 0  # that the old server had, and the new one has not
        self.made: Counter[str] = Counter()
        self._random = random.Random(seed)
        self._next_id = 1_000
        self._columns = {"orders": ["id", "customer", "amount", "code", "placed", "note"]}
        self._columns["order_lines"] = ["order_id", "line", "item", "quantity"]
        self._columns["people"] = ["email", "name", "visits"]
        self._columns["scratch"] = self._columns["done"] = ["id", "word"]
        self._keys: dict[str, list[Row]] = {table: [] for table in TABLES}
        self.connect(database)

    @property
    def is_postgres(self) -> bool:
        return self.database.startswith("postgresql")

    @property
    def address(self) -> str:
        """As `calve verify --source` takes it."""
        return self.database.replace("+psycopg", "").replace("+pymysql", "")

    @property
    def names(self) -> list[str]:
        return [f"{self.schema}.{table}" for table in TABLES]

    @property
    def newest_id(self) -> int:
        """No row has had a larger one."""
        return self._next_id

    def connect(self, database: str) -> None:
        """Go on with this server. What it has is what there is."""
        self.database = database
        url = sa.make_url(database)
        if self.is_postgres:
            self._connection: Any = psycopg.connect(
                host=url.host,
                port=url.port,
                user=url.username,
                dbname=url.database,
                options="-c TimeZone=UTC",
            )
        else:
            self._connection = pymysql.connect(
                host=url.host or "", port=url.port or 0, user=url.username, database=url.database
            )

    def close(self) -> None:
        self._connection.close()

    # -- the tables

    def create(self, rows: int) -> None:
        if self.is_postgres:
            self._run(f"CREATE SCHEMA {self.schema}")
        for table, columns in TABLES.items():
            self._run(f"CREATE TABLE {self.schema}.{table} ({columns})")
        self._connection.commit()
        for table in TABLES:
            if table != "done":
                for _ in range(rows):
                    self._insert(table)
            else:
                self._put("done", {"id": 1, "word": "begin"})
        self._connection.commit()
        self.made.clear()

    def load_keys(self) -> None:
        """Look at what is there, after the server was changed."""
        self.rows_lost = 0
        for table in TABLES:
            listed = ", ".join(key_of(table))
            found = [tuple(row) for row in self._rows(f"SELECT {listed} FROM {self.schema}.{table}")]
            self.rows_lost += len(set(self._keys[table]) - set(found))
            self._keys[table] = found
        self._connection.commit()

    def rows(self, table: str, columns: Sequence[str] | None = None) -> list[Row]:
        """The rows, all values as text, in an order that `lake_query` has too."""
        form, moment = "CAST({} AS CHAR(300))", "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', placed)"
        if self.is_postgres:
            form, moment = "CAST({} AS text)", "(extract(epoch FROM placed) * 1000000)::bigint"
        names = [moment if name == "placed" else name for name in columns or self._columns[table]]
        texts = ", ".join(form.format(name) for name in names)
        found = self._rows(f"SELECT {texts} FROM {self.schema}.{table}")
        self._connection.commit()
        return in_order([tuple(row) for row in found])

    def columns(self, table: str) -> list[str]:
        return self._columns[table]

    # -- transactions

    def step(self) -> None:
        """One transaction. It is counted, and its keys are known, when it is committed."""
        made: Counter[str] = Counter()
        try:
            for _ in range(self._random.randint(1, CHANGES_MAX)):
                made[self._change(self._random.choice(BUSY))] += 1
            self._connection.commit()
        except LOST:
            made.clear()
            raise
        self.made += made
        self.changes += sum(made.values())

    def add_column(self) -> None:
        self._alter("orders", "ADD COLUMN channel varchar(20)")
        self._columns["orders"] = [*self._columns["orders"], "channel"]

    def widen_column(self) -> None:
        """int to bigint: Iceberg widens the column."""
        form = "ALTER COLUMN quantity TYPE bigint" if self.is_postgres else "MODIFY quantity bigint NOT NULL"
        self._alter("order_lines", form)

    def change_type(self) -> None:
        """int to text: the column is converted."""
        form = "ALTER COLUMN code TYPE varchar(40)" if self.is_postgres else "MODIFY code varchar(40)"
        self._alter("orders", form)
        self._codes_are_text = True

    def truncate(self) -> None:
        self._run(f"TRUNCATE TABLE {self.schema}.scratch")
        self._connection.commit()
        self._keys["scratch"].clear()
        self.made["truncate"] += 1
        self.changes += 1

    def mark_end(self) -> int:
        """A last row: when it is there, all before it is."""
        self._next_id += 1
        self._put("done", {"id": self._next_id, "word": "end"})
        self._connection.commit()
        return self._next_id

    def rotate_log(self) -> None:
        """MariaDB begins another file of its log."""
        if not self.is_postgres:
            self._run("FLUSH BINARY LOGS")

    # -- inside

    _codes_are_text = False

    def _alter(self, table: str, action: str) -> None:
        self._run(f"ALTER TABLE {self.schema}.{table} {action}")
        self._connection.commit()
        self.made["alter"] += 1

    def _change(self, table: str) -> str:
        chance = self._random.random()
        if chance < 0.45 or not self._keys[table]:
            return self._insert(table)
        number = self._random.randrange(len(self._keys[table]))
        if chance < 0.85:
            return self._update(table, number)
        return self._delete(table, number) if chance < 0.99 else self._change_key(table, number)

    def _insert(self, table: str) -> str:
        self._put(table, self._new_row(table))
        return "insert"

    def _put(self, table: str, row: dict[str, Any]) -> None:
        places = ", ".join(["%s"] * len(row))
        self._run(
            f"INSERT INTO {self.schema}.{table} ({', '.join(row)}) VALUES ({places})", tuple(row.values())
        )
        self._keys[table].append(tuple(row[column] for column in key_of(table)))

    def _update(self, table: str, number: int) -> str:
        row, key = self._new_row(table), key_of(table)
        self._set(table, number, {name: value for name, value in row.items() if name not in key})
        return "update"

    def _change_key(self, table: str, number: int) -> str:
        row = self._new_row(table)
        values = {column: row[column] for column in key_of(table)}
        self._set(table, number, values)
        self._keys[table][number] = tuple(values.values())
        return "key change"

    def _delete(self, table: str, number: int) -> str:
        key = self._keys[table][number]
        self._keys[table][number] = self._keys[table][-1]
        self._keys[table].pop()
        self._run(f"DELETE FROM {self.schema}.{table} WHERE {_where(table)}", key)
        return "delete"

    def _set(self, table: str, number: int, values: dict[str, Any]) -> None:
        sets = ", ".join(f"{name} = %s" for name in values)
        statement = f"UPDATE {self.schema}.{table} SET {sets} WHERE {_where(table)}"
        self._run(statement, (*values.values(), *self._keys[table][number]))

    def _new_row(self, table: str) -> dict[str, Any]:
        """With a key that no row has."""
        some = self._random
        self._next_id += 1
        if table == "orders":
            row = {
                "id": self._next_id,
                "customer": some.choice(["Zoë", "", 'with "quotes"', "line\nbreak"]),
                "amount": f"{some.randint(-(10**9), 10**9)}.{some.randint(0, 99):02d}",
                "code": some.choice([None, 7, some.randint(-(2**31), 2**31 - 1)]),
                "placed": f"{some.randint(1980, 2030)}-05-11 07:08:09.{some.randint(0, 999_999):06d}",
                "note": some.choice([None, "", "näht"]),
            }
            if self._codes_are_text:
                row["code"] = some.choice([None, "seven", str(self._next_id)])
            if "channel" in self._columns["orders"]:
                row["channel"] = some.choice([None, "shop", "net"])
            return row
        if table == "order_lines":
            return {"order_id": self._next_id, "line": some.randint(1, 9), "item": "nut",
                    "quantity": some.randint(-9, 10**6)}  # fmt: skip
        if table == "people":
            return {"email": f"p{self._next_id}@example.org", "name": some.choice(["Ann", ""]),
                    "visits": some.randint(0, 99)}  # fmt: skip
        return {"id": self._next_id, "word": some.choice(["one", "two"])}

    def _run(self, statement: str, values: Row | None = None) -> None:
        with self._connection.cursor() as cursor:
            cursor.execute(statement, values)

    def _rows(self, statement: str) -> list[Row]:
        with self._connection.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())


def key_of(table: str) -> list[str]:
    return KEYS.get(table, ["id"])


def lake_query(schema: str, table: str, columns: Sequence[str]) -> str:
    """What must give the rows of `Stock.rows` from the catalog."""
    names = ["epoch_us(placed)" if name == "placed" else f'"{name}"' for name in columns]
    return f"SELECT {', '.join(f'CAST({name} AS VARCHAR)' for name in names)} FROM lake.{schema}.{table}"


def in_order(rows: Sequence[Row]) -> list[Row]:
    return sorted(rows, key=repr)


def _where(table: str) -> str:
    return " AND ".join(f"{column} = %s" for column in key_of(table))


class Load:
    """Transactions one after the other, in a thread, until a number of changes is reached.

    If the server is lost, the thread waits until it is told the address of another one.
    """

    def __init__(self, stock: Stock, changes: int) -> None:
        self._stock = stock
        self._changes = changes
        self._lost = threading.Event()
        self._found = threading.Event()
        self._stopped = False
        self._error: Exception | None = None
        self._address = ""
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)
        self._thread.start()

    def reached(self, changes: int, timeout_s: float = 600) -> None:
        """Wait until so many changes were made."""
        until_s = time.monotonic() + timeout_s
        while self._stock.changes < changes and self._thread.is_alive():
            assert time.monotonic() < until_s, f"only {self._stock.changes} changes"
            time.sleep(0.02)
        self._raise()

    def wait_for_loss(self, timeout_s: float = 60) -> None:
        assert self._lost.wait(timeout_s), "the load has not noticed that its server is gone"
        self._raise()

    def go_on(self, address: str) -> None:
        self._address = address
        self._found.set()

    def wait(self, timeout_s: float = 1_800) -> None:
        self._thread.join(timeout_s)
        self._raise()
        assert not self._thread.is_alive(), f"only {self._stock.changes} changes after {timeout_s} s"

    def stop(self) -> None:
        self._stopped = True
        self._found.set()
        self._thread.join(60)

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            while self._stock.changes < self._changes and not self._stopped:
                try:
                    self._stock.step()
                except LOST:
                    self._lost.set()
                    self._found.wait()
                    if not self._stopped:
                        self._stock.connect(self._address)
                        self._stock.load_keys()
                        self._found.clear()
        except Exception as error:  # noqa: BLE001 (the main thread raises it)
            self._error = error
            self._lost.set()


@contextmanager
def loading(stock: Stock, changes: int) -> Iterator[Load]:
    """Run a load; it has ended when the block ends."""
    load = Load(stock, changes)
    try:
        yield load
    finally:
        load.stop()
