"""What the proofs of failovers share: the load, Debezium Server, an operator's steps, and the comparison."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.clients.duckdb_client import DuckLake
from tests.harness import components
from tests.harness.stacks import Stack
from tests.pipeline.debezium import Debezium, Sending
from tests.pipeline.producer import wait_until_landed
from tests.pipeline.stock import KEYS, TABLES, Load, Stock, in_order, lake_query, loading
from tests.pipeline.worker import Worker

SOURCE = "stock"  # Debezium's topic.prefix
ARRIVED_S = 1_800


@dataclass(slots=True)
class Failover:
    """Everything from the source database to the lake."""

    stack: Stack
    worker: Worker
    stock: Stock
    debezium: Debezium

    # -- an operator's steps

    def calve(self, *words: str) -> subprocess.CompletedProcess[str]:
        """The real command, with the address of the server."""
        command = [str(components.calve()), *words, "--uri", self.stack.url]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=ARRIVED_S)

    def begin_anew(self, database: str, load: Load) -> None:
        """The steps of docs/debezium.md after a failover: nothing of the old history stays."""
        reason = ["--reason", "the standby was promoted"]
        require(self.calve("sources", "epoch", SOURCE, *reason))
        for table in TABLES:
            require(self.calve("table", "resync", f"{self.stock.schema}.{table}"))
        self.debezium.forget_offsets()
        self.debezium.connect_to(database)
        load.go_on(database)
        self.debezium.start()

    def go_on(self, database: str, load: Load) -> None:
        """The steps if Debezium finds its GTID at the new primary: only the address changes."""
        self.debezium.connect_to(database)
        load.go_on(database)
        self.debezium.start()

    # -- waiting and looking

    def wait_for_order(self, above: int) -> None:
        """Wait until the mirror has an order with a larger id."""
        name = f"lake.{self.stock.schema}.orders"
        until_s = time.monotonic() + ARRIVED_S
        while not self.lake(f"SELECT 1 FROM {name} WHERE id > {above} LIMIT 1"):
            assert time.monotonic() < until_s, f"no order arrives:\n{self.debezium.tail()}"
            time.sleep(0.3)

    def wait_for_mirrors(self) -> None:
        """Wait until each table has a mirror."""
        until_s, wanted = time.monotonic() + ARRIVED_S, set(self.stock.names)
        while not wanted <= self.tables().keys():
            assert time.monotonic() < until_s, f"the first load does not arrive:\n{self.debezium.tail()}"
            time.sleep(0.3)
        wait_until_landed(self.stack.url)

    def wait_for_all(self) -> None:
        """Wait until the mirror has the last row that the source has: Debezium sends in order."""
        number = self.stock.mark_end()
        name = f"lake.{self.stock.schema}.done"
        until_s = time.monotonic() + ARRIVED_S
        while not self.lake(f"SELECT 1 FROM {name} WHERE id = {number}"):
            assert time.monotonic() < until_s, f"not all has arrived: {self.tables()}\n{self.debezium.tail()}"
            assert self.debezium.running, self.debezium.tail()
            time.sleep(0.5)
        wait_until_landed(self.stack.url)

    def tables(self) -> dict[str, Any]:
        """What /status shows of each table that has landed."""
        found = httpx.get(f"{self.stack.url}/status", timeout=30).json()["landing"]["tables"]
        return {name: table for name, table in found.items() if table.get("events")}

    def lake(self, query: str) -> list[tuple[object, ...]]:
        with DuckLake(self.stack) as lake:
            return lake.sql(query)

    def ids(self, table: str) -> set[object]:
        return {row[0] for row in self.lake(f"SELECT id FROM lake.{self.stock.schema}.{table}")}


def require(ended: subprocess.CompletedProcess[str]) -> str:
    assert ended.returncode == 0, f"{ended.args}: {ended.stdout}{ended.stderr}"
    return ended.stdout


@contextlib.contextmanager
def running(stack: Stack, folder: Path, stock: Stock, *, rows: int) -> Iterator[Failover]:
    """All of it, with some rows in each table and mirrors that have them."""
    with contextlib.ExitStack() as ending:
        ending.callback(stock.close)
        stock.create(rows)
        for table, key in KEYS.items():
            path = f"/lake/v1/main/namespaces/{stock.schema}/tables/{table}/ingest"
            httpx.put(f"{stack.url}{path}", json={"key": key}).raise_for_status()
        worker = Worker(stack, folder / "worker")
        ending.callback(worker.stop)
        sending = Sending(batches=True, batch_size_max=200)
        debezium = Debezium(
            folder / "debezium", stock.database, url=f"{stack.url}/cdc", tables=stock.names, sending=sending,
            name=SOURCE,
        )  # fmt: skip
        ending.callback(debezium.kill)
        worker.start(wait=False)
        debezium.start()
        run = Failover(stack, worker, stock, debezium)
        run.wait_for_mirrors()
        yield run


def load_all(stock: Stock, changes: int) -> None:
    with loading(stock, changes) as load:
        load.wait()


def require_equal(run: Failover) -> dict[str, Any]:
    """Each mirror has the rows of its source table, by DuckDB and by `calve verify --source`."""
    for table in TABLES:
        columns = run.stock.columns(table)
        found = in_order(run.lake(lake_query(run.stock.schema, table, columns)))
        wanted = run.stock.rows(table)
        extra, missing = set(found) - set(wanted), set(wanted) - set(found)
        assert found == wanted, (
            f"the mirror of {table} has {len(extra)} other rows {list(extra)[:3]}, "
            f"and lacks {len(missing)} {list(missing)[:3]}"
        )
    verified = run.calve("verify", "--source", run.stock.address, "--wait", "30", "--json", *run.stock.names)
    reports = json.loads(require(verified))
    assert {report["state"] for report in reports} == {"equal"}, reports
    assert not any(report["not-compared"] for report in reports), reports
    return {
        "rows": sum(report["rows"] for report in reports),
        "tables": len(reports),
        "changes": sum(table["events"] for table in run.tables().values()),
    }
