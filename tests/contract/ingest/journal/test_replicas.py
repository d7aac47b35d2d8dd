"""Several processes append at once: each event once, ids in commit order, nobody waits for ever."""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from ingest.journal.journal import Journal
from ingest.journal.receipts import AppendReceipt
from tests.contract.ingest.journal.journal_setup import (
    WAREHOUSE,
    A,
    B,
    JournalDatabase,
    appended,
    identified,
    identities_in,
    numbered,
    numbers_in,
    parts,
    problems,
)

EVENTS = 200
SIZE = 10


def _shuffled_batches(seed: int) -> list[range]:
    """All events in pieces that overlap, in any order."""
    chance = random.Random(seed)
    starts = [*range(0, EVENTS, SIZE), *(chance.randrange(EVENTS - SIZE) for _ in range(EVENTS // SIZE))]
    chance.shuffle(starts)
    return [range(start, start + SIZE) for start in starts]


@pytest.mark.parametrize("kind", ["numbered", "identified"])
def test_the_same_events_through_two_processes_and_eight_threads(
    journal_database: JournalDatabase, kind: str
) -> None:
    with journal_database.opened() as one, journal_database.opened() as other:

        def produce(number: int) -> list[AppendReceipt]:
            journal = (one, other)[number % 2]
            receipts = []
            for batch in _shuffled_batches(number):
                if kind == "numbered":
                    receipts.append(appended(journal, numbered(batch)))
                else:
                    receipts.append(appended(journal, identified(str(n) for n in batch)))
            return receipts

        with ThreadPoolExecutor(8) as threads:
            receipts = [receipt for found in threads.map(produce, range(8)) for receipt in found]
        ids = sorted(receipt.first for receipt in receipts if receipt.first is not None)
        assert ids == list(range(1, one.head(WAREHOUSE) + 1))
        assert sum(SIZE - len(receipt.duplicates) for receipt in receipts) == EVENTS
        if kind == "numbered":
            assert sorted(n for n in numbers_in(one) if n is not None) == list(range(EVENTS))
        else:
            assert sorted(map(int, identities_in(one))) == list(range(EVENTS))
        assert problems(other) == []


def test_a_reader_that_sees_an_id_sees_all_smaller_ones(journal_database: JournalDatabase) -> None:
    with (
        journal_database.opened() as one,
        journal_database.opened() as other,
        journal_database.opened() as reader,
    ):
        done = threading.Event()
        seen: list[int] = []

        def look(journal: Journal) -> None:
            while not done.is_set():
                head = journal.head(WAREHOUSE)
                ids = [entry.id for entry in journal.read(WAREHOUSE, A, 0, head)]
                assert ids == list(range(1, head + 1))
                seen.append(head)
            journal._database.close()  # a thread closes the connection that it reads on

        def produce(number: int) -> None:
            for n in range(25):
                appended((one, other)[number % 2], numbered([n], source=f"p{number}"))

        with ThreadPoolExecutor(9) as threads:
            looking = threads.submit(look, reader)
            list(threads.map(produce, range(8)))
            done.set()
            looking.result(timeout=60)
        assert reader.head(WAREHOUSE) == 200
        assert seen == sorted(seen)


def test_many_warehouses_transactions_and_trims_at_once_never_lock_each_other_up(
    journal_database: JournalDatabase,
) -> None:
    """Every append locks rows of several warehouses; in an unsorted order this would end in deadlocks."""
    warehouses = [f"w{n}" for n in range(4)]
    with journal_database.opened() as one, journal_database.opened() as other:

        def produce(number: int) -> None:
            journal = (one, other)[number % 2]
            chance = random.Random(number)
            for n in range(12):
                chosen = chance.sample(warehouses, 3)
                source = f"p{number}"
                futures = [
                    journal.submit(warehouse, parts((A, f"{n}"), (B, f"{n}"), source=source))
                    for warehouse in chosen
                ]
                futures += [journal.submit(warehouse, identified([f"{n}"], source)) for warehouse in chosen]
                for future in futures:
                    future.result(timeout=60)
                if n % 4 == 3:
                    journal.trim(chosen[0], {A: 2 * n})

        with ThreadPoolExecutor(8) as threads:
            list(threads.map(produce, range(8)))
        for warehouse in warehouses:
            assert [group.tables for group in one.groups(warehouse)] == [frozenset({A, B})]
        other._read_s = float("-inf")  # as if a moment had passed
        fill = other.buffer_usage()
        assert fill.pending_events == sum(p.events for w in warehouses for p in one.pending(w))
