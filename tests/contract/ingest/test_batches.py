"""A cut takes a source transaction whole, whenever the transaction arrives."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from catalog.store.database import Database
from catalog.store.migrations import migrate
from ingest.change import TableName
from ingest.journal.journal import Journal
from ingest.landing.batches import BatchCutter
from ingest.settings import Thresholds
from ingest.sources.store import Pause, Pauses
from ingest.staging.context import BatchRange
from ingest.store import schema as landing_schema
from ingest.store.jobs import Jobs, finish
from ingest.store.tables import LandingTables, TableAdvance, land
from tests.contract.ingest.journal.journal_setup import WAREHOUSE, A, B, C, JournalDatabase, appended, parts
from tests.harness.postgres import PostgresServer

STRESS_S = 3.0
READS = ("head", "pending", "groups", "reach", "border", "size")


class Bench:
    """Lanes on a database of their own; a batch that is cut lands at once."""

    def __init__(self, journal: Journal, database: Database) -> None:
        self.journal, self.database = journal, database
        self.tables, self.jobs = LandingTables(database), Jobs(database)
        self.paused = Pauses({}, {})
        enough = Thresholds(events=1, freshness_ms=0)
        self.cutter = BatchCutter(journal, self.tables, self.jobs, enough, lambda _: self.paused)

    def cut(self) -> BatchRange | None:
        return self.cutter.cut(WAREHOUSE, "worker")

    def land(self, cut: BatchRange) -> None:
        assert self.jobs.staged(cut.job_id, 1, b"{}", b"{}", 60)

        def work(connection: Any) -> None:
            finish(connection, cut.job_id, 1, 1, {})
            for table, (start, end) in cut.ranges.items():
                step = TableAdvance(table, start, end, 0, 0, None, None, {})
                land(connection, WAREHOUSE, step, number=1, commit_us=1, snapshots=(None, None))

        self.database.write(work)
        self.journal.trim(WAREHOUSE, {table: end for table, (_, end) in cut.ranges.items()})
        self.cutter.landed(WAREHOUSE, cut.ranges)

    def transactions(self, cut: BatchRange) -> Counter[str]:
        """How many changes the cut has of each source transaction."""
        return Counter(
            change.transaction or ""
            for table, (start, end) in cut.ranges.items()
            for entry in self.journal.read(WAREHOUSE, table, start, end)
            for change in entry.changes
        )


@pytest.fixture(params=("sqlite", "postgres"))
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path}/journal.db"
    else:
        server: PostgresServer = request.getfixturevalue("postgres")
        url = server.database()
    with contextlib.ExitStack() as opened:
        journal = opened.enter_context(JournalDatabase.fresh(url).opened())
        database = Database(url, pool_size=4)
        opened.callback(database.close)
        migrate(database)
        landing_schema.migrate(database)
        yield Bench(journal, database)


class Interruption:
    """Runs `arrive` once, before the read with that number."""

    def __init__(
        self, journal: Journal, monkeypatch: pytest.MonkeyPatch, number: int, arrive: Callable[[], Any]
    ) -> None:
        self._left, self._arrive = number, arrive
        for name in READS:
            monkeypatch.setattr(journal, name, self._counted(getattr(journal, name)))

    def _counted(self, read: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*given: Any, **named: Any) -> Any:
            self._left -= 1
            if self._left == 0:
                self._arrive()
            return read(*given, **named)

        return counted


def transaction(journal: Journal, name: str, *tables: TableName) -> None:
    last = len(tables) - 1
    changes = [(table, f"{name}!" if place == last else name) for place, table in enumerate(tables)]
    appended(journal, parts(*changes, source=name))


@pytest.mark.parametrize("number", range(1, 7))
def test_a_transaction_that_arrives_while_a_batch_is_cut_is_not_split(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    transaction(bench.journal, "before", A)
    Interruption(bench.journal, monkeypatch, number, lambda: transaction(bench.journal, "both", A, B))
    cuts = [bench.cut()]
    monkeypatch.undo()
    while (cut := cuts[-1]) is not None:
        assert bench.transactions(cut)["both"] in (0, 2)
        bench.land(cut)
        cuts.append(bench.cut())
    assert bench.tables.one(WAREHOUSE, A).landed_id == bench.journal.head(WAREHOUSE)


@pytest.mark.parametrize("number", range(1, 7))
def test_a_transaction_whose_second_half_arrives_while_a_batch_is_cut_is_not_split(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    appended(bench.journal, parts((A, "both"), source="s"))
    Interruption(
        bench.journal,
        monkeypatch,
        number,
        lambda: appended(bench.journal, parts((B, "both!"), source="s")),
    )
    first = bench.cut()
    monkeypatch.undo()
    for cut in (first, bench.cut()):
        if cut is not None:
            assert bench.transactions(cut)["both"] in (0, 2)
            bench.land(cut)


@pytest.mark.parametrize("number", range(1, 7))
def test_a_transaction_that_arrives_while_a_batch_is_cut_behind_another_is_not_split(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    transaction(bench.journal, "first", A)
    running = bench.cut()
    assert running is not None
    transaction(bench.journal, "before", A)
    Interruption(bench.journal, monkeypatch, number, lambda: transaction(bench.journal, "both", A, B))
    after = {table: end for table, (_, end) in running.ranges.items()}
    behind = bench.cutter.cut_next(WAREHOUSE, after)
    monkeypatch.undo()
    assert behind is None or bench.transactions(behind)["both"] in (0, 2)


def test_the_tables_of_a_job_that_failed_go_alone_until_they_have_landed(bench: Bench) -> None:
    tables = {A, B, C}
    for number, table in enumerate(sorted(tables)):
        transaction(bench.journal, f"first-{number}", table)
    together = bench.cut()
    assert together is not None
    assert together.ranges.keys() == tables
    fail(bench, together)
    landed: set[TableName] = set()
    while landed != tables - {B}:
        cut = cut_soon(bench)
        [table] = cut.ranges
        if table == B:
            fail(bench, cut)  # it can never be written
        else:
            bench.land(cut)
            landed.add(table)
    for number, table in enumerate(sorted(tables)):
        transaction(bench.journal, f"second-{number}", table)
    found = [cut.ranges.keys() for cut in (cut_soon(bench), cut_soon(bench))]
    assert sorted(found, key=len) == [{B}, {A, C}]


def test_a_large_open_transaction_does_not_keep_other_tables_waiting(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = replace(bench.cutter.thresholds, small_events=1)
    monkeypatch.setattr(BatchCutter, "thresholds", small)
    appended(bench.journal, parts((A, "long"), (A, "long"), source="s"))
    transaction(bench.journal, "other", B)
    cut = bench.cut()
    assert cut is not None
    assert cut.ranges.keys() == {B}
    bench.land(cut)
    begun: list[str] = []
    monkeypatch.setattr(bench.jobs, "begin", lambda *given: begun.append(given[0]))
    assert bench.cut() is None
    assert begun == [], "nothing can be cut, so nothing is claimed"
    monkeypatch.undo()
    appended(bench.journal, parts((A, "long!"), source="s"))
    cut = bench.cut()
    assert cut is not None
    assert bench.transactions(cut) == {"long": 3}


def fail(bench: Bench, cut: BatchRange) -> None:
    """As a worker that gives a job back for the last time."""
    assert bench.jobs.staged(cut.job_id, 1, b"{}", b"{}", 60)
    job = bench.jobs.get(cut.job_id)
    assert job is not None
    assert bench.jobs.discard(job)
    bench.cutter.back_off(cut)


def cut_soon(bench: Bench, *, timeout_s: float = 30) -> BatchRange:
    """The next batch; tables that failed rest for a while first."""
    until_s = time.monotonic() + timeout_s
    while time.monotonic() < until_s:
        cut = bench.cut()
        if cut is not None:
            return cut
        time.sleep(0.02)
    raise AssertionError(f"nothing was cut within {timeout_s} s")


def test_no_transaction_is_split_under_load(bench: Bench) -> None:
    """A producer and a loop of cuts, as fast as they can."""
    tables: list[TableName] = [("db", f"t{n}") for n in range(6)]
    chosen, over = random.Random(), threading.Event()
    sent = Counter[str]()

    def produce() -> None:
        number = 0
        while not over.is_set():
            number += 1
            touched = chosen.sample(tables, chosen.choice((1, 2)))
            sent[str(number)] = len(touched)
            transaction(bench.journal, str(number), *touched)

    producer = threading.Thread(target=produce)
    producer.start()
    landed = Counter[str]()
    split = []
    until_s = time.monotonic() + STRESS_S
    try:
        while time.monotonic() < until_s or producer.is_alive() or bench.journal.pending(WAREHOUSE):
            if time.monotonic() >= until_s:
                over.set()
            cut = bench.cut()
            if cut is not None:
                found = bench.transactions(cut)
                split += [name for name, count in found.items() if count != sent[name]]
                landed += found
                bench.land(cut)
    finally:
        over.set()
        producer.join()
    assert split == []
    assert landed == sent


def test_tables_that_shared_a_transaction_are_cut_apart_once_it_has_landed(bench: Bench) -> None:
    transaction(bench.journal, "both", A, B)
    cut = bench.cut()
    assert cut is not None
    assert cut.ranges.keys() == {A, B}
    bench.land(cut)
    for name, table in (("a", A), ("b", B)):
        transaction(bench.journal, name, table)
    assert [group.tables for group in bench.cutter.waiting(WAREHOUSE)] == [(A,), (B,)]


def test_a_table_that_waits_holds_only_the_transactions_that_touch_it(bench: Bench) -> None:
    transaction(bench.journal, "before", A)
    transaction(bench.journal, "both", A, B)
    transaction(bench.journal, "other", C)
    transaction(bench.journal, "behind", A, C)
    bench.paused.tables[B] = Pause("a test", 0)
    cut = bench.cut()
    assert cut is not None
    assert bench.transactions(cut).keys() == {"before", "other"}
    assert cut.ranges.keys() == {A, C}
    bench.land(cut)
    assert bench.cut() is None
    bench.paused.tables.clear()
    cut = bench.cut()
    assert cut is not None
    assert bench.transactions(cut) == {"both": 2, "behind": 2}


def test_a_paused_source_holds_its_changes_and_no_others(bench: Bench) -> None:
    transaction(bench.journal, "one", A)
    bench.paused.sources["two"] = Pause("a test", 0)
    transaction(bench.journal, "two", A, B)
    transaction(bench.journal, "three", C)
    cut = bench.cut()
    assert cut is not None
    assert bench.transactions(cut).keys() == {"one", "three"}
    bench.land(cut)
    assert bench.cut() is None
    assert bench.cutter.wait_ms(WAREHOUSE) is None
    bench.paused.sources.clear()
    cut = bench.cut()
    assert cut is not None
    assert bench.transactions(cut) == {"two": 2}
