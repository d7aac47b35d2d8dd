"""A PostgreSQL database that lives: tables of many types, and transactions that change them in every way.

Everything random comes from a seed. `made` counts the changes that were committed, by table and operation, as
a log of the database shows them: a new key is a delete and an insert.
"""

from __future__ import annotations

import random
import time
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, LiteralString

import psycopg
import sqlalchemy as sa
from psycopg import sql

from tests.harness.postgres import ACCOUNT

Rows = list[tuple[Any, ...]]
TOAST_CHARACTERS = 9_000  # beyond what a page holds

TABLES: dict[str, LiteralString] = {
    "orders": """
        id serial PRIMARY KEY, customer text NOT NULL, amount numeric(12, 2) NOT NULL, loose numeric,
        placed timestamptz NOT NULL DEFAULT now(), local timestamp NOT NULL DEFAULT now(), day date, at time,
        token uuid NOT NULL, extra jsonb, picture bytea, tags text[], counts int[], paid boolean NOT NULL,
        small smallint, large bigint, ratio double precision, body text""",
    "lines": """
        order_id int, line int, item text NOT NULL, price numeric(10, 3), note text,
        PRIMARY KEY (order_id, line)""",
    "people": "email text PRIMARY KEY, name text NOT NULL, active boolean NOT NULL, photo bytea, notes text",
    "accounts": "id bigint PRIMARY KEY, balance bigint NOT NULL, tags text[], memo text",
    "scratch": "id int PRIMARY KEY, word text NOT NULL, body text",
    "done": "id int PRIMARY KEY, word text",
}
KEYS = {"lines": ["order_id", "line"], "people": ["email"]}  # the others have a column `id`
LARGE = {"orders": "body", "lines": "note", "people": "photo", "accounts": "memo", "scratch": "body"}

# How a column is compared, where its value as Python shows it is not enough: by PostgreSQL, by DuckDB.
_COMPARED = {
    "amount": ("amount::text", "amount::varchar"),
    "loose": ("trim_scale(loose)::text", "loose"),
    "price": ("price::text", "price::varchar"),
    "placed": ("(extract(epoch FROM placed) * 1000000)::bigint", "epoch_us(placed)"),
    "local": ("(extract(epoch FROM local) * 1000000)::bigint", "epoch_us(local)"),
    "token": ("token::text", "token::varchar"),
    "extra": ("extra::text", "extra"),
    "at": ("to_char(at, 'HH24:MI:SS.US')", '"at"'),
}


class Shop:
    """The tables in a schema of its own, and what happens to them."""

    def __init__(
        self, database: str, schema: str, tables: Sequence[str] = tuple(TABLES), seed: int = 4
    ) -> None:
        url = sa.make_url(database)
        self.database = database
        self.schema = schema
        self.tables = tuple(tables)
        self.made: Counter[tuple[str, str]] = Counter()
        self._random = random.Random(seed)
        self._pending: Counter[tuple[str, str]] = Counter()
        self._next_id = 1_000_000
        self.connection = psycopg.connect(
            host=url.host, port=url.port, user=ACCOUNT, dbname=url.database, autocommit=True
        )
        self._run("CREATE SCHEMA {schema}")
        for table in self.tables:
            self._run(sql.SQL("CREATE TABLE {t} (") + sql.SQL(TABLES[table]) + sql.SQL(")"), table)
            if table in LARGE:
                self._run("ALTER TABLE {t} ALTER COLUMN {c} SET STORAGE EXTERNAL", table, c=LARGE[table])

    @property
    def names(self) -> list[str]:
        return [f"{self.schema}.{table}" for table in self.tables]

    def connected(self) -> psycopg.Connection:
        """A session of its own, for transactions that stay open."""
        url = sa.make_url(self.database)
        return psycopg.connect(host=url.host, port=url.port, user=ACCOUNT, dbname=url.database)

    def wait_for_slot(self, on: psycopg.Connection | None = None) -> None:
        """Until a slot that is being made waits for a transaction; for this one, if it is said."""
        query = "SELECT pg_blocking_pids(pid) FROM pg_stat_activity WHERE query LIKE 'CREATE_REPLICATION%'"
        until_s = time.monotonic() + 120
        while not any(
            pids and (on is None or on.info.backend_pid in pids)
            for (pids,) in self.connection.execute(query).fetchall()
        ):
            assert time.monotonic() < until_s, "no slot is being made"
            time.sleep(0.05)

    def close(self) -> None:
        self.connection.close()

    # -- transactions

    def transaction(self, work: Callable[[], object]) -> None:
        """All of it, counted when it is committed."""
        self._pending = Counter()
        with self.connection.transaction():
            work()
        self.made += self._pending

    def fill(self, rows: int) -> None:
        """Before anybody looks: nothing of it is counted but as rows of a first load."""
        for table in self.tables:
            if table != "done":
                self.transaction(partial(self._insert_some, table, rows))
        self.made = Counter({(table, "read"): self.size(table) for table in self.tables})
        self.made = +self.made

    def step(self) -> None:
        """One transaction of some changes, anywhere."""
        choices: list[Callable[[str], object]] = [self.insert, self.update, self.update]
        choices += [self.update_large, self.delete, self.change_key]
        tables = [table for table in self.tables if table != "done"]

        def work() -> None:
            for _ in range(self._random.randint(1, 6)):
                self._random.choice(choices)(self._random.choice(tables))

        self.transaction(work)

    def corner_cases(self) -> None:
        """What goes wrong most easily, each in a transaction of its own."""
        for table in self.tables:
            if table in LARGE:
                self._corners_of(table)
        self.transaction(self._delete_and_insert_again)
        self.transaction(lambda: self.truncate("scratch"))
        self.transaction(partial(self._insert_some, "scratch", 5))
        self.transaction(self._truncate_between)
        self._rolled_back()

    def mark_end(self) -> int:
        """A last row: when it is there, all before it is."""
        number = self.size("done") + 1
        self._run("INSERT INTO {t} VALUES (%s, 'end')", "done", (number,))
        self.made["done", "insert"] += 1
        return number

    # -- single changes

    def insert(self, table: str, *, large: bool | None = None) -> dict[str, Any]:
        row = self._row(table, self._random.random() < 0.2 if large is None else large)
        self._insert(table, row)
        return row

    def update(self, table: str) -> None:
        """Leaves the large column alone."""
        key = self._any_key(table)
        if key is not None:
            row = self._row(table, large=False)
            self._set(table, key, {c: v for c, v in row.items() if c not in (*key, LARGE.get(table))})

    def update_large(self, table: str) -> None:
        key = self._any_key(table)
        if key is not None:
            self._set(table, key, {LARGE[table]: self._row(table, large=True)[LARGE[table]]})

    def delete(self, table: str) -> None:
        key = self._any_key(table)
        if key is not None:
            where = self._where(key)
            self._run(sql.SQL("DELETE FROM {t} WHERE ") + where, table, tuple(key.values()))
            self._pending[table, "delete"] += 1

    def change_key(self, table: str, *, touch: bool | None = None) -> None:
        key = self._any_key(table)
        if key is None:
            return
        row = self._row(table, large=True)
        values = {column: row[column] for column in key}
        if self._random.random() < 0.5 if touch is None else touch:
            values[LARGE[table]] = row[LARGE[table]]
        self._run_set(table, key, values)
        self._pending[table, "delete"] += 1
        self._pending[table, "insert"] += 1

    def truncate(self, table: str) -> None:
        self._run("TRUNCATE {t}", table)
        self._pending[table, "truncate"] += 1

    # -- looking

    def size(self, table: str) -> int:
        return int(self._run("SELECT count(*) FROM {t}", table)[0][0])

    def rows(self, table: str) -> Rows:
        names = [_COMPARED.get(column, (f'"{column}"', ""))[0] for column in self.columns(table)]
        listed = sql.SQL(", ".join(names))
        return _sorted(self._run(sql.SQL("SELECT ") + listed + sql.SQL(" FROM {t}"), table))

    def columns(self, table: str) -> list[str]:
        found = self._run("SELECT * FROM {t} LIMIT 0", table, described=True)
        return [column[0] for column in found]

    def lake_query(self, table: str) -> str:
        """What must give the same rows from the catalog."""
        return lake_query(self.schema, table, self.columns(table))

    # -- inside

    def _corners_of(self, table: str) -> None:
        moved = partial(self.change_key, table, touch=False)
        moved_anew = partial(self.change_key, table, touch=True)
        insert = partial(self.insert, table, large=True)
        update, update_large = partial(self.update, table), partial(self.update_large, table)
        steps: list[list[Callable[[], object]]] = [
            [insert],
            [moved],
            [insert],
            [moved_anew],
            [moved, moved],
            [update, update_large, update],
            [insert, update, moved, update, partial(self.delete, table)],
        ]
        for works in steps:
            self.transaction(partial(_each, works))

    def _insert_some(self, table: str, rows: int) -> None:
        for _ in range(rows):
            self.insert(table)

    def _delete_and_insert_again(self) -> None:
        row = self.insert("accounts", large=True)
        key = {"id": row["id"]}
        self._run(sql.SQL("DELETE FROM {t} WHERE ") + self._where(key), "accounts", (row["id"],))
        self._pending["accounts", "delete"] += 1
        self._insert("accounts", {**row, "balance": -1})

    def _truncate_between(self) -> None:
        """Rows before and after a truncate, in one transaction with another table."""
        self.insert("accounts")
        self.insert("scratch", large=True)
        self.truncate("scratch")
        self.insert("scratch", large=True)
        self.update("scratch")

    def _rolled_back(self) -> None:
        with self.connection.transaction(force_rollback=True):
            self.insert("accounts")

        def partly() -> None:
            self.insert("accounts")
            counted = Counter(self._pending)
            with self.connection.transaction(force_rollback=True):
                self.insert("accounts")
            self._pending = counted

        self.transaction(partly)

    def _insert(self, table: str, row: dict[str, Any]) -> None:
        columns = sql.SQL(", ").join(map(sql.Identifier, row))
        places = sql.SQL(", ").join(sql.Placeholder() * len(row))
        query = sql.SQL("INSERT INTO {t} (") + columns + sql.SQL(") VALUES (") + places + sql.SQL(")")
        self._run(query, table, tuple(row.values()))
        self._pending[table, "insert"] += 1

    def _set(self, table: str, key: dict[str, Any], values: dict[str, Any]) -> None:
        self._run_set(table, key, values)
        self._pending[table, "update"] += 1

    def _run_set(self, table: str, key: dict[str, Any], values: dict[str, Any]) -> None:
        sets = sql.SQL(", ").join(
            sql.Identifier(column) + sql.SQL(" = ") + sql.Placeholder() for column in values
        )
        query = sql.SQL("UPDATE {t} SET ") + sets + sql.SQL(" WHERE ") + self._where(key)
        self._run(query, table, (*values.values(), *key.values()))

    def _where(self, key: dict[str, Any]) -> sql.Composable:
        return sql.SQL(" AND ").join(
            sql.Identifier(column) + sql.SQL(" = ") + sql.Placeholder() for column in key
        )

    def _any_key(self, table: str) -> dict[str, Any] | None:
        columns = KEYS.get(table, ["id"])
        listed = sql.SQL(", ").join(map(sql.Identifier, columns))
        keys = self._run(sql.SQL("SELECT ") + listed + sql.SQL(" FROM {t} ORDER BY ") + listed, table)
        return dict(zip(columns, self._random.choice(keys), strict=True)) if keys else None

    def _run(
        self,
        query: LiteralString | sql.Composable,
        table: str = "",
        values: Sequence[Any] = (),
        *,
        described: bool = False,
        c: str = "",
    ) -> Rows:
        text = query if isinstance(query, str) else query.as_string(self.connection)
        whole = sql.SQL(text).format(
            schema=sql.Identifier(self.schema), t=sql.Identifier(self.schema, table), c=sql.Identifier(c)
        )
        found = self.connection.execute(whole, values or None)
        if described:
            return [tuple(column) for column in found.description or []]
        return found.fetchall() if found.description else []

    def _row(self, table: str, large: bool) -> dict[str, Any]:
        """A new row, with a key that no row has."""
        some = self._random
        self._next_id += 1
        text = self._long_text() if large else some.choice([None, "short", ""])
        if table == "orders":
            return self._order(text)
        if table == "lines":
            price = some.choice([None, f"{some.randint(-9999, 9999)}.{some.randint(0, 999):03d}"])
            return {"order_id": self._next_id, "line": some.randint(1, 9), "item": "näht", "price": price,
                    "note": text}  # fmt: skip
        if table == "people":
            photo = None if text is None else text.encode()
            name, notes = some.choice(["Ann", "", "Bo 'x'"]), some.choice([None, "n"])
            return {"email": f"p{self._next_id}@example.org", "name": name,
                    "active": some.random() < 0.5, "photo": photo, "notes": notes}  # fmt: skip
        if table == "accounts":
            return {"id": self._next_id * 10_000_000, "balance": some.randint(-(2**60), 2**60),
                    "tags": some.choice([None, [], ["a", "b"]]), "memo": text}  # fmt: skip
        return {"id": self._next_id, "word": some.choice(["one", "two"]), "body": text}

    def _order(self, text: str | None) -> dict[str, Any]:
        some = self._random
        day = f"{some.randint(1950, 2090)}-{some.randint(1, 12):02d}-{some.randint(1, 28):02d}"
        time = f"{some.randint(0, 23):02d}:{some.randint(0, 59):02d}:07.{some.randint(0, 999_999):06d}"
        return {
            "id": self._next_id,
            "customer": some.choice(["Zoë", "", 'with "quotes"', "line\nbreak"]),
            "amount": f"{some.randint(-(10**9), 10**9)}.{some.randint(0, 99):02d}",
            "loose": some.choice([None, "1.5", "-12345678901234567890.123456789", "0", "7"]),
            "placed": f"{day} {time}+0{some.randint(0, 9)}:00",
            "local": f"{day} {time}",
            "day": some.choice([None, day]),
            "at": some.choice([None, time]),
            "token": str(uuid.UUID(int=some.getrandbits(128), version=4)),
            "extra": some.choice([None, '{"a": [1, 2.50, null], "b": "ü"}', "[]", '"text"']),
            "picture": some.choice([None, b"", some.randbytes(20)]),
            "tags": some.choice([None, [], ["x", None, "y, z"]]),
            "counts": some.choice([None, [], [1, None, -3]]),
            "paid": some.random() < 0.5,
            "small": some.choice([None, -32768, 32767]),
            "large": some.choice([None, 2**63 - 1, -(2**63)]),
            "ratio": some.choice([None, 0.1, -1e300, 5e-324]),
            "body": text,
        }

    def _long_text(self) -> str:
        return f"{self._random.getrandbits(64):x}-" * (TOAST_CHARACTERS // 16)


def lake_query(schema: str, table: str, columns: Sequence[str]) -> str:
    names = [_COMPARED.get(column, ("", f'"{column}"'))[1] for column in columns]
    return f"SELECT {', '.join(names)} FROM lake.{schema}.{table}"


def _each(works: Sequence[Callable[[], object]]) -> None:
    for work in works:
        work()


def _sorted(rows: Rows) -> Rows:
    return sorted(rows, key=repr)


def compared(rows: Rows) -> Rows:
    """Rows as DuckDB gives them, in the order and with the types of `Shop.rows`."""
    return _sorted([tuple(bytes(v) if isinstance(v, bytearray) else v for v in row) for row in rows])
