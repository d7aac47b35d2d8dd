"""Atomic: a source transaction is visible whole or not at all, whoever looks, and whenever.

Each source transaction moves an amount from an account in one table to an account in the other, so the total
over both never changes. Readers attach to `main@now` anew for each look.

The long form runs until CALVE_PROOF_PUBLISHES (500) batches are published. The batches join small files as
they go; a Spark session reads as well, and tries to compact both tables from outside, which a batch a second
rarely lets it.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from spark_jobs.session import attach
from tests.clients.duckdb_client import DuckLake
from tests.clients.spark_client import SparkLake, SparkRefused, s3_options, started_session
from tests.concurrency.seeds import seed
from tests.harness.stacks import STACKS, Stack, StackName, Stacks
from tests.pipeline.conftest import Pipeline
from tests.pipeline.own import own_pipeline
from tests.pipeline.producer import Event, Producer, flush, wait_until_landed

__all__ = ["seed"]  # a fixture

ACCOUNTS = 20
EACH = 1_000
TOTAL = 2 * ACCOUNTS * EACH
PAUSE_S = 0.05  # the machine is also the worker's
FRESHNESS = {"CALVE_FRESHNESS_TARGET_MS": "20"}


class Bank:
    """Two tables `a` and `b` in a namespace of their own, and the source that moves amounts between them."""

    def __init__(self, pipeline: Pipeline, rng: random.Random) -> None:
        self.space = f"n{uuid.uuid4().hex[:8]}"
        self.producer = Producer(pipeline.url, f"bank-{self.space}")
        self._rng = rng
        self._amounts = {table: dict.fromkeys(range(ACCOUNTS), EACH) for table in "ab"}
        self._names = itertools.count(1)

    def opening(self) -> list[Event]:
        events = [
            self._event("INSERT", table, account, "opening") for table in "ab" for account in range(ACCOUNTS)
        ]
        events[-1]["metadata"]["transactionEnd"] = True
        return events

    def transfer(self) -> list[Event]:
        """From one table to the other, and sometimes over an account that is closed and opened again."""
        name, amount = f"x{next(self._names)}", self._rng.randrange(1, 50)
        tables = self._rng.sample("ab", 2)
        one, other = (self._rng.randrange(ACCOUNTS) for _ in tables)
        self._amounts[tables[0]][one] -= amount
        self._amounts[tables[1]][other] += amount
        events = []
        if self._rng.random() < 0.2:
            events.append(self._event("DELETE", tables[0], one, name))
            events.append(self._event("INSERT", tables[0], one, name))
        else:
            events.append(self._event("UPDATE", tables[0], one, name))
        events.append(self._event("UPDATE", tables[1], other, name))
        events[-1]["metadata"]["transactionEnd"] = True
        return events

    def send(self, transfers: int) -> None:
        """In one request, or cut in the middle of a transaction."""
        events = [event for _ in range(transfers) for event in self.transfer()]
        cut = self._rng.randrange(1, len(events)) if self._rng.random() < 0.5 else len(events)
        for part in (events[:cut], events[cut:]):
            if part:
                self.producer.insist(part)

    def _event(self, operation: str, table: str, account: int, transaction: str) -> Event:
        row = {"id": account, "amount": self._amounts[table][account]}
        before, after = (row, None) if operation == "DELETE" else (None, row)
        return self.producer.event(
            operation, f"{self.space}.{table}", before, after, transactionId=transaction
        )

    @property
    def total_query(self) -> str:
        parts = " UNION ALL ".join(f"SELECT amount FROM lake.{self.space}.{table}" for table in "ab")
        return f"SELECT sum(amount), count(*) FROM ({parts})"


def duck_look(stack: Stack, bank: Bank) -> tuple[int, int]:
    with DuckLake(stack, "main@now") as lake:
        total, count = lake.sql(bank.total_query)[0]
        return int(total), count


@contextlib.contextmanager
def looking(look: Callable[[], tuple[int, int]]) -> Iterator[list[tuple[int, int]]]:
    """What a thread saw from before the block until after it."""
    seen: list[tuple[int, int]] = []
    over = threading.Event()

    def work() -> None:
        last = False
        while not last:
            last = over.wait(PAUSE_S)
            seen.append(look())

    with ThreadPoolExecutor(1) as threads:
        looks = threads.submit(work)
        try:
            yield seen
        finally:
            over.set()
        looks.result()


def publishes(pipeline: Pipeline, bank: Bank) -> set[int]:
    """The number that table `a` was last published under, and that of `b`: they are one."""
    tables = httpx.get(f"{pipeline.url}/status", timeout=60).json()["landing"]["tables"]
    return {tables[f"{bank.space}.{table}"]["number"] for table in "ab"}


def test_readers_never_see_half_of_a_transaction(pipeline: Pipeline, seed: int) -> None:
    bank = Bank(pipeline, random.Random(seed))
    bank.producer.insist(bank.opening())
    flush(pipeline.url)
    numbers: set[int] = set()
    with looking(lambda: duck_look(pipeline.stack, bank)) as seen:
        for _ in range(10):
            bank.send(8)
            flush(pipeline.url)
            numbers |= publishes(pipeline, bank)
    bank.producer.client.close()
    assert len(numbers) >= 10
    assert set(seen) == {(TOTAL, 2 * ACCOUNTS)}
    print(f"{len(numbers)} publishes, {len(seen)} looks by DuckDB")


@pytest.mark.proof
@pytest.mark.xdist_group("pipeline")
@pytest.mark.parametrize("name", STACKS)
def test_readers_never_see_half_of_a_transaction_beside_compaction(
    stacks: Stacks, tmp_path: Path, name: StackName, seed: int
) -> None:
    wanted = int(os.environ.get("CALVE_PROOF_PUBLISHES", "500"))
    with own_pipeline(stacks, name, tmp_path, FRESHNESS) as pipeline, spark_of(pipeline.stack) as spark:
        bank = Bank(pipeline, random.Random(seed))
        bank.producer.insist(bank.opening())
        flush(pipeline.url)
        compactor = Compactor(spark, bank)
        numbers: set[int] = set()
        with (
            looking(lambda: duck_look(pipeline.stack, bank)) as by_duckdb,
            looking(lambda: spark_look(spark, pipeline.stack, bank)) as by_spark,
            looking(compactor.once) as compactions,
        ):
            while len(numbers) < wanted:
                bank.send(4)
                numbers |= publishes(pipeline, bank)
                time.sleep(PAUSE_S)
        wait_until_landed(pipeline.url)
        bank.producer.client.close()
        assert set(by_duckdb) == {(TOTAL, 2 * ACCOUNTS)}
        assert set(by_spark) == {(TOTAL, 2 * ACCOUNTS)}
        replaced = compacted(pipeline, bank)
        assert replaced > 0, compactor.refusals
        print(
            f"{len(numbers)} publishes, looks: {len(by_duckdb)} by DuckDB, {len(by_spark)} by Spark; "
            f"{replaced} commits join files, {compactor.done} from outside in {len(compactions)} tries"
        )


def compacted(pipeline: Pipeline, bank: Bank) -> int:
    """How often files of the two tables were joined, by the batches themselves or by others."""
    found = 0
    for table in "ab":
        address = f"{pipeline.url}/v1/main/namespaces/{bank.space}/tables/{table}"
        snapshots = httpx.get(address, timeout=60).json()["metadata"]["snapshots"]
        found += sum(snapshot["summary"]["operation"] == "replace" for snapshot in snapshots)
    return found


@contextlib.contextmanager
def spark_of(stack: Stack) -> Iterator[SparkLake]:
    session = started_session()
    try:
        yield SparkLake(session, stack)
    finally:
        session.stop()


_looks = itertools.count()


def spark_look(spark: SparkLake, stack: Stack, bank: Bank) -> tuple[int, int]:
    """Under a new name each time: Spark keeps a catalog, and where it stands, under its name for ever."""
    name = f"look{next(_looks)}"
    attach(spark.session, name, stack.url, warehouse="main@now", s3=s3_options(stack))
    parts = " UNION ALL ".join(f"SELECT amount FROM {name}.{bank.space}.{table}" for table in "ab")
    total, count = spark.sql(f"SELECT sum(amount), count(*) FROM ({parts})")[0]
    return int(total), int(count)


class Compactor:
    """Maintenance that others run: it may lose against a batch, and then tries again."""

    def __init__(self, spark: SparkLake, bank: Bank) -> None:
        self._spark, self._bank = spark, bank
        self.done = 0
        self.refusals: list[str] = []

    def once(self) -> tuple[int, int]:
        catalog = self._spark.catalog()
        for table in "ab":
            try:
                self._spark.sql(
                    f"CALL {catalog}.system.rewrite_data_files(table => '{self._bank.space}.{table}', "
                    "options => map('min-input-files', '2', 'delete-file-threshold', '1'))"
                )
                self.done += 1
            except SparkRefused as refused:
                self.refusals.append(str(refused)[:300])
        return self.done, len(self.refusals)
