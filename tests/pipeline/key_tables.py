"""Tables whose keys a producer does not tell, and changes that show what the keys are.

They are the same on PostgreSQL, whose log has only the key of a deleted row, and on MariaDB, whose log has
all of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import psycopg
import pymysql
import sqlalchemy as sa

from tests.pipeline.stock import Row

TABLES = {
    # A key of two columns, beside columns for which Debezium invents values.
    "accounts": "tenant_id int NOT NULL, id int NOT NULL, owner varchar(40) NOT NULL DEFAULT 'nobody', "
    "opened timestamp NOT NULL DEFAULT '2020-01-01 00:00:00', ratio double precision NOT NULL, balance int, "
    "PRIMARY KEY (tenant_id, id)",
    # The key is not the column `id`, whose values change.
    "codes": "code varchar(20) PRIMARY KEY, id int NOT NULL, label varchar(40)",
    # No column is called id.
    "badges": "badge varchar(20) PRIMARY KEY, owner varchar(40)",
    "done": "id int PRIMARY KEY",
}
FIRST = (
    "INSERT INTO accounts VALUES (1, 1, 'ann', '2021-01-01', 1.5, 10), (1, 2, 'bo', '2021-01-02', 2.5, 20)",
    "INSERT INTO codes VALUES ('a', 1, 'x'), ('b', 2, 'y'), ('c', 3, 'z'), ('d', 4, 'z'), ('e', 5, 'z')",
    "INSERT INTO badges VALUES ('q', 'ann')",
)
THEN = (
    "INSERT INTO accounts VALUES (2, 1, 'cy', '2021-01-03', 1, 30), (2, 2, 'di', '2021-01-04', 1, NULL)",
    "INSERT INTO accounts VALUES (2, 3, 'ed', '2021-01-05', 1, 1), (3, 3, 'ed', '2021-01-05', 1, 1)",
    "UPDATE accounts SET balance = 31 WHERE tenant_id = 2 AND id = 1",
    "DELETE FROM accounts WHERE tenant_id = 1 AND id = 1",
    "DELETE FROM accounts WHERE tenant_id = 2 AND id = 2",
    "DELETE FROM accounts WHERE tenant_id = 2 AND id = 3",
    "UPDATE accounts SET tenant_id = 3 WHERE tenant_id = 2 AND id = 1",
    "UPDATE codes SET id = 9 WHERE code = 'a'",
    "DELETE FROM codes WHERE code = 'b'",
    "UPDATE codes SET code = 'cc' WHERE code = 'c'",
    "DELETE FROM codes WHERE code = 'd'",
    "UPDATE badges SET owner = 'bo' WHERE badge = 'q'",
    "INSERT INTO done VALUES (1)",
)


class KeyTables:
    """The tables in a database; every statement is a transaction."""

    def __init__(self, database: str, schema: str) -> None:
        self.database = database
        self.schema = schema
        url = sa.make_url(database)
        if database.startswith("postgresql"):
            self._connection: Any = psycopg.connect(
                host=url.host, port=url.port, user=url.username, dbname=url.database, autocommit=True
            )
            self.run(f"CREATE SCHEMA {schema}")
            self.run(f"SET search_path = {schema}")
        else:
            self._connection = pymysql.connect(
                host=url.host or "", port=url.port or 0, user=url.username, database=schema, autocommit=True
            )
        for table, columns in TABLES.items():
            self.run(f"CREATE TABLE {table} ({columns})")

    @property
    def names(self) -> list[str]:
        return [f"{self.schema}.{table}" for table in TABLES]

    def run(self, *statements: str) -> None:
        for statement in statements:
            with self._connection.cursor() as cursor:
                cursor.execute(statement)

    def rows(self) -> dict[str, list[Row]]:
        return {table: self._rows(f"SELECT {', '.join(COMPARED[table])} FROM {table}") for table in TABLES}

    def _rows(self, query: str) -> list[Row]:
        with self._connection.cursor() as cursor:
            cursor.execute(query)
            return sorted(map(tuple, cursor.fetchall()), key=repr)

    def close(self) -> None:
        self._connection.close()


COMPARED = {
    "accounts": ["tenant_id", "id", "owner", "balance"],
    "codes": ["code", "id", "label"],
    "badges": ["badge", "owner"],
    "done": ["id"],
}


def verdicts(
    status: Mapping[str, Any], schema: str, found: Mapping[str, Sequence[Any]], wanted: Mapping[str, Any]
) -> dict[str, str]:
    """For each table: right, or the reason that /status has for a mirror that is not. Fails without one."""
    result = {}
    for table in TABLES:
        shown = status[f"{schema}.{table}"]
        is_right = found.get(table) == wanted[table]
        reason = shown.get("in-doubt") or shown.get("notice")
        assert is_right or reason, f"{table} is wrong, and nothing says so: {found.get(table)}, {shown}"
        result[table] = "right" if is_right else str(reason)
    return result
