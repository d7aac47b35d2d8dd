"""Random histories against a plain model: nothing lost, nothing twice, ids without gaps."""

from __future__ import annotations

import contextlib
import itertools
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from ingest.change import Change, ParsedRequest, Reject, TableName
from ingest.journal.journal import Journal
from ingest.journal.receipts import AppendReceipt
from ingest.settings import JournalLimits
from tests.contract.ingest.journal.journal_setup import A, B, Clock, JournalDatabase

LIMITS = JournalLimits(window_ms=8_000)
TABLES = st.sampled_from((A, B))
SOURCES = st.sampled_from("st")
NUMBERED = st.builds(
    Change,
    index=st.just(0),
    table=TABLES,
    operation=st.just("insert"),
    source=SOURCES,
    number=st.integers(0, 30),
    transaction=st.none() | st.sampled_from("12"),
    transaction_ends=st.booleans(),
)
IDENTIFIED = st.builds(
    Change,
    index=st.just(0),
    table=TABLES,
    operation=st.just("delete"),
    source=SOURCES,
    identity=st.sampled_from("abcdefghij"),
)
PLAIN = st.builds(Change, index=st.just(0), table=TABLES, operation=st.just("read"))
REJECTED = st.builds(
    Reject,
    index=st.just(0),
    reason=st.just("bad"),
    original=st.binary(max_size=3),
    table=TABLES,
    source=SOURCES,
    identity=st.sampled_from(("", "a", "z")),
)
CHANGES = st.lists(NUMBERED | IDENTIFIED | PLAIN, max_size=6) | st.builds(
    lambda source, first, size: [
        Change(0, A, "insert", source=source, number=first + n) for n in range(size)
    ],
    SOURCES,
    st.integers(0, 25),
    st.integers(1, 8),
)
REQUESTS = st.builds(lambda changes, rejects: (changes, rejects), CHANGES, st.lists(REJECTED, max_size=2))
Events = tuple[list[Change], list[Reject]]
_names = itertools.count()


@dataclass
class Model:
    """What the journal should hold."""

    entries: dict[int, dict[TableName, list[Change | Reject]]] = field(default_factory=dict)
    numbers: set[tuple[str, int]] = field(default_factory=set)
    identities: dict[tuple[str, str], int] = field(default_factory=dict)  # -> known until
    head: int = 0

    def take(self, events: list[Change | Reject], receipt: AppendReceipt, now_ms: int) -> None:
        new = []
        for event in events:
            is_duplicate = event.index in receipt.duplicates
            assert self._is_right(event, is_duplicate, now_ms), (event, receipt)
            if not is_duplicate:
                new.append(event)
                if event.number is not None:
                    self.numbers.add((event.source, event.number))
                elif event.identity:
                    self.identities[event.source, event.identity] = now_ms + LIMITS.window_ms
        if new:
            self.head += 1
            of_tables: dict[TableName, list[Change | Reject]] = {}
            for event in new:
                assert event.table is not None
                of_tables.setdefault(event.table, []).append(event)
            self.entries[self.head] = of_tables
            assert set(receipt.tables) == set(of_tables)
        assert (receipt.first, receipt.last) == ((self.head, self.head) if new else (None, None))
        assert receipt.head == self.head

    def _is_right(self, event: Change | Reject, is_duplicate: bool, now_ms: int) -> bool:
        if event.number is not None:
            return is_duplicate == ((event.source, event.number) in self.numbers)
        until = self.identities.get((event.source, event.identity)) if event.identity else None
        return is_duplicate == (until is not None and now_ms < until)


class Machine(RuleBasedStateMachine):
    journal_database: JournalDatabase

    @initialize()
    def begin(self) -> None:
        self.warehouse = f"w{next(_names)}"
        self.clock = Clock()
        self.model = Model()
        self.open()

    def open(self) -> None:
        self.opened = contextlib.ExitStack()
        opening = [
            self.opened.enter_context(self.journal_database.opened(LIMITS, self.clock)) for _ in range(2)
        ]
        self.journals: list[Journal] = opening

    @rule(requests=st.lists(REQUESTS, min_size=1, max_size=4), which=st.integers(0, 1))
    def append(self, requests: list[Events], which: int) -> None:
        """Some requests at once: they may share a commit."""
        journal = self.journals[which]
        parsed = [_parsed(*events) for events in requests]
        with journal._group_commit._condition:
            futures = [journal.submit(self.warehouse, one) for one in parsed]
        for one, future in zip(parsed, futures, strict=True):
            receipt = future.result(timeout=60)
            self.model.take([*one.changes, *one.rejects], receipt, self.clock.now_ms)

    @rule(table=TABLES, part=st.floats(0, 1), which=st.integers(0, 1))
    def trim(self, table: TableName, part: float, which: int) -> None:
        up_to = int(self.model.head * part)
        self.journals[which].trim(self.warehouse, {table: up_to})
        for journal_id, of_tables in self.model.entries.items():
            if journal_id <= up_to:
                of_tables.pop(table, None)

    @rule(passed_ms=st.sampled_from((1, 500, 3_000, 9_500)), which=st.integers(0, 1))
    def wait(self, passed_ms: int, which: int) -> None:
        self.clock.now_ms += passed_ms
        self.journals[which].expire(self.clock.now_ms)

    @rule()
    def reopen(self) -> None:
        self.opened.close()
        self.open()

    @invariant()
    def it_holds_what_the_model_holds(self) -> None:
        if not hasattr(self, "journals"):
            return
        journal = self.journals[0]
        assert journal.head(self.warehouse) == self.model.head
        found: dict[TableName, list[tuple[int, list[Change | Reject]]]] = {}
        for one in journal.pending(self.warehouse):
            entries = list(journal.read(self.warehouse, one.table, 0, self.model.head))
            found[one.table] = [(entry.id, [*entry.changes, *entry.rejects]) for entry in entries]
            assert one.events == sum(len(events) for _, events in found[one.table])
            assert (one.first_id, one.last_id) == (entries[0].id, entries[-1].id)
        expected: dict[TableName, list[tuple[int, list[Change | Reject]]]] = {}
        for journal_id, of_tables in self.model.entries.items():
            for table, events in of_tables.items():
                expected.setdefault(table, []).append((journal_id, events))
        assert found == expected

    def teardown(self) -> None:
        if hasattr(self, "opened"):
            self.opened.close()


def _parsed(changes: list[Change], rejects: list[Reject]) -> ParsedRequest:
    """The drawn events, each with its own index."""
    events: list[Change | Reject] = [*changes, *rejects]
    for index, event in enumerate(events):
        event.index = index
    return ParsedRequest("any", len(changes) + len(rejects), changes, rejects)


@pytest.mark.parametrize("examples", [20, pytest.param(2_000, marks=pytest.mark.proof)])
def test_random_histories(journal_database: JournalDatabase, examples: int) -> None:
    class OnDatabase(Machine):
        pass

    OnDatabase.journal_database = journal_database
    run_state_machine_as_test(
        OnDatabase,
        settings=settings(
            max_examples=examples,
            stateful_step_count=12,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_the_machine_runs_on_files(tmp_path: Path) -> None:
    """It opens the same file twice, as two processes do."""
    journal_database = JournalDatabase.fresh(f"sqlite:///{tmp_path}/journal.db")
    with journal_database.opened() as one, journal_database.opened() as other:
        assert one.head("main") == other.head("main") == 0
