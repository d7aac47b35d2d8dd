"""What the proofs with Debezium Server share: a database, the connector, and the comparison at the end."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.clients.duckdb_client import DuckLake
from tests.harness.postgres import PostgresServer
from tests.harness.stacks import Stack
from tests.pipeline.debezium import Debezium, Sending
from tests.pipeline.producer import wait_until_landed
from tests.pipeline.shop import KEYS, TABLES, Shop, compared
from tests.pipeline.worker import LOCAL, Master, Worker

LOGICAL = {"wal_level": "logical"}
ARRIVED_S = 900


@dataclass(slots=True)
class Run:
    """Everything from the source database to the lake."""

    stack: Stack
    worker: Worker
    shop: Shop
    debezium: Debezium

    def kill_debezium(self) -> None:
        self.debezium.kill()
        self.debezium.start(wait=False)

    def kill_server(self) -> None:
        self.stack.server.kill()
        self.stack.server.start()

    def kill_worker(self) -> None:
        """While it works."""
        until_s = time.monotonic() + ARRIVED_S
        while not any(job["state"] == "leased" for job in self._landing()["jobs"]):
            assert time.monotonic() < until_s, "the worker takes no job"
            time.sleep(0.1)
        self.worker.kill()
        self.worker.start(wait=False)

    def wait_for_load(self) -> None:
        """Until every row that was there before has been taken: a load that is killed begins anew."""
        until_s, rows = time.monotonic() + ARRIVED_S, self.shop.made.total()
        while self.received() < rows:
            assert time.monotonic() < until_s, f"the first load does not arrive:\n{self.debezium.tail()}"
            time.sleep(0.1)

    def wait_for_all(self) -> None:
        """Until the lake has the last row that the source has: Debezium sends in order."""
        number = self.shop.mark_end()
        until_s = time.monotonic() + ARRIVED_S
        while not self._has_end(number):
            assert time.monotonic() < until_s, f"not all has arrived:\n{self.debezium.tail()}"
            assert self.debezium.running, self.debezium.tail()
            time.sleep(0.5)
        wait_until_landed(self.stack.url)

    def _has_end(self, number: int) -> bool:
        table = f"{self.stack.url}/v1/main/namespaces/{self.shop.schema}/tables/done"
        try:
            if httpx.get(table, timeout=30).status_code != 200:
                return False
        except httpx.HTTPError:
            return False
        return (number,) in self.lake(f"SELECT id FROM lake.{self.shop.schema}.done")

    def lake(self, query: str) -> list[tuple[object, ...]]:
        with DuckLake(self.stack) as lake:
            return lake.sql(query)

    def received(self) -> int:
        """How many events of this source the lake and the journal have together."""
        tables = self._landing()["tables"]
        own = [table for name, table in tables.items() if name.startswith(f"{self.shop.schema}.")]
        return sum(table["pending-events"] + table["events"] for table in own)

    def _landing(self) -> dict[str, Any]:
        found: dict[str, Any] = httpx.get(f"{self.stack.url}/status", timeout=30).json()["landing"]
        return found


def tell_keys(stack: Stack, shop: Shop) -> None:
    """Debezium's HTTP sink does not send keys: those that are not called `id` have to be told."""
    for table, key in KEYS.items():
        if table in shop.tables:
            path = f"/lake/v1/main/namespaces/{shop.schema}/tables/{table}/ingest"
            httpx.put(f"{stack.url}{path}", json={"key": key}).raise_for_status()


@contextlib.contextmanager
def running(
    stack: Stack,
    folder: Path,
    *,
    sending: Sending,
    rows: int,
    master: Master = LOCAL,
    schema: str = "shop",
    tables: Sequence[str] = tuple(TABLES),
) -> Iterator[Run]:
    """All of it, with some rows in each table and nothing sent yet."""
    with PostgresServer.started(LOGICAL) as source, contextlib.ExitStack() as ending:
        shop = Shop(source.database(), schema, tables)
        ending.callback(shop.close)
        shop.fill(rows)
        tell_keys(stack, shop)
        worker = Worker(stack, folder / "worker", master=master)
        ending.callback(worker.stop)
        url = f"{stack.url}/cdc"
        debezium = Debezium(folder / "debezium", shop.database, url=url, tables=shop.names, sending=sending)
        ending.callback(debezium.kill)
        yield Run(stack, worker, shop, debezium)


def require_mirrors(run: Run) -> None:
    """Each mirror is its source table."""
    for table in run.shop.tables:
        found = compared(run.lake(run.shop.lake_query(table)))
        assert found == run.shop.rows(table), f"the mirror of {table} is not the table"


def require_equal(run: Run) -> None:
    """Each mirror is its source table, and each event is in the history once."""
    require_mirrors(run)
    shop = run.shop
    made: Counter[tuple[str, str]] = Counter()
    for table in shop.tables:
        history = f"lake.{shop.schema}.{table}__changes"
        counted = run.lake(
            f"SELECT _operation, count(*), count(DISTINCT _event_id) FROM {history} GROUP BY 1"
        )
        for operation, events, identities in counted:
            assert events == identities, f"{table}: {operation} events are there twice"
            made[table, str(operation)] += int(str(events))
    assert made == shop.made
