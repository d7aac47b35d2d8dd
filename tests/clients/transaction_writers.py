"""The same work inside an open transaction, by each engine:

a row into `a`, a row into `b` with the old one changed, a column more for `b`, and a new table.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from pyiceberg.types import LongType

from tests.clients import pyiceberg_client
from tests.clients.duckdb_client import DuckLake
from tests.clients.spark_client import SparkLake
from tests.harness.stacks import Stack

Work = Callable[[str, str, int], None]  # warehouse reference, namespace, number of the round


def spark_work(lake: SparkLake) -> Work:
    def work(warehouse: str, namespace: str, number: int) -> None:
        here = f"{lake.catalog(warehouse)}.{namespace}"
        lake.sql(f"INSERT INTO {here}.a VALUES ({number})")
        lake.sql(f"ALTER TABLE {here}.b ADD COLUMN extra{number} bigint")
        lake.sql(
            f"MERGE INTO {here}.b t USING (SELECT {number - 1}L AS id UNION ALL SELECT {number}) s "
            f"ON t.id = s.id WHEN MATCHED THEN UPDATE SET extra{number} = {number} "
            f"WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)"
        )
        lake.sql(f"CREATE TABLE {here}.made{number} USING iceberg AS SELECT {number}L AS id")

    return work


def duckdb_work(stack: Stack) -> Work:
    def work(warehouse: str, namespace: str, number: int) -> None:
        with DuckLake(stack, warehouse) as duck:
            here = f"lake.{namespace}"
            duck.sql(f"INSERT INTO {here}.a VALUES ({number})")
            duck.sql(f"ALTER TABLE {here}.b ADD COLUMN extra{number} BIGINT")
            duck.sql(f"INSERT INTO {here}.b (id) VALUES ({number})")
            duck.sql(f"UPDATE {here}.b SET extra{number} = {number} WHERE id = {number - 1}")
            duck.sql(f"CREATE TABLE {here}.made{number} AS SELECT {number}::BIGINT AS id")

    return work


def pyiceberg_work(stack: Stack) -> Work:
    def work(warehouse: str, namespace: str, number: int) -> None:
        catalog = pyiceberg_client.catalog(stack, warehouse)
        catalog.load_table((namespace, "a")).append(pa.table({"id": [number]}))
        b = catalog.load_table((namespace, "b"))
        with b.update_schema() as update:
            update.add_column(f"extra{number}", LongType())
        b.append(pa.table({"id": [number]}))
        changed = pa.table({"id": [number - 1], f"extra{number}": [number]})
        b.overwrite(changed, overwrite_filter=f"id = {number - 1}")
        rows = pa.table({"id": [number]})
        catalog.create_table((namespace, f"made{number}"), rows.schema).append(rows)

    return work
