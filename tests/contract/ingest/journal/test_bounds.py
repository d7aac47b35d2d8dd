"""A full journal refuses before it stores anything, the least important first."""

from __future__ import annotations

import contextlib
from concurrent.futures import Future

import pytest

from catalog.errors import TooLarge
from ingest.change import ParsedRequest, TransactionBegin
from ingest.journal.encoded_request import EncodedRequest, encode_request
from ingest.journal.journal import Journal
from ingest.journal.receipts import AppendReceipt, JournalFull
from ingest.settings import JournalLimits
from tests.contract.ingest.journal.journal_setup import (
    WAREHOUSE,
    A,
    Clock,
    JournalDatabase,
    appended,
    identified,
    numbered,
    numbers_in,
    problems,
)

LIMITS = JournalLimits(bytes_max=10_000, fallback_bytes_max=5_000)


def _fill_to(journal: Journal, level: float, start: int = 0) -> int:
    """Append single events up to a level; the next number."""
    number = start
    while journal.buffer_usage().level < level:
        appended(journal, numbered([number]), priority=0)
        number += 1
    return number


def test_priorities_are_refused_in_order(journal_database: JournalDatabase) -> None:
    with journal_database.opened(LIMITS) as journal:
        number, refused = 0, dict[int, JournalFull]()
        while len(refused) < 4:
            for priority in {3, 2, 1, 0} - refused.keys():
                try:
                    appended(journal, numbered([number]), priority=priority)
                    number += 1
                except JournalFull as full:
                    refused[priority] = full
        assert list(refused) == [3, 2, 1, 0]
        for refusal, bound in zip(refused.values(), (0.5, 0.7, 0.9, 1.5), strict=True):
            assert bound - 0.02 < refusal.level < bound + 0.04
            assert (refusal.status, refusal.retry_after_s) == (429, 1)
        assert numbers_in(journal) == list(range(number))
        assert journal.buffer_usage().pending_bytes <= 15_000


def test_a_refused_request_leaves_no_trace_and_can_be_sent_again(journal_database: JournalDatabase) -> None:
    with journal_database.opened(LIMITS) as journal:
        number = _fill_to(journal, 0.91)
        for parsed in (numbered([number, number + 1]), identified(["a", "b"])):
            with pytest.raises(JournalFull):
                appended(journal, parsed)
        assert problems(journal) == []
        journal.trim(WAREHOUSE, {A: journal.head(WAREHOUSE)})
        assert appended(journal, numbered([number, number + 1])).duplicates == frozenset()
        assert appended(journal, identified(["a", "b"])).duplicates == frozenset()


def test_the_limit_holds_across_processes(journal_database: JournalDatabase) -> None:
    """The second has an old idea of how full it is; the transaction itself looks."""
    with journal_database.opened(LIMITS) as one, journal_database.opened(LIMITS) as other:
        assert other.buffer_usage().level == 0
        number = _fill_to(one, 0.91)
        other._set_usage((0, 0))
        with pytest.raises(JournalFull):
            appended(other, numbered([number]))
        assert problems(other) == []


def test_in_one_group_commit_requests_that_fit_are_stored_and_others_refused(
    journal_database: JournalDatabase,
) -> None:
    limits = JournalLimits(bytes_max=2_000, fallback_bytes_max=0, levels=(0.5, 0.7, 1.0))
    with journal_database.opened(limits) as journal:
        size = _size_of_one(journal)
        journal._group_commit._condition.acquire()  # nobody commits while these are queued
        futures = [journal._group_commit.submit(one) for one in _packed(range(100, 100 + 2_000 // size + 10))]
        journal._group_commit._condition.release()
        answers = [future.exception(timeout=60) for future in futures]
        taken = answers.count(None)
        assert 0 < taken < len(answers)
        assert all(isinstance(answer, JournalFull) for answer in answers if answer is not None)
        assert answers[:taken] == [None] * taken
        assert journal.buffer_usage().pending_bytes <= 2_000
        assert problems(journal) == []


def _size_of_one(journal: Journal) -> int:
    appended(journal, numbered([0]))
    return journal.buffer_usage().pending_bytes


def _packed(numbers: range) -> list[EncodedRequest]:
    return [encode_request(WAREHOUSE, numbered([n]), priority=1, deduplicate=True) for n in numbers]


def test_a_request_that_is_too_large_for_the_journal_is_refused(journal_database: JournalDatabase) -> None:
    with (
        journal_database.opened(JournalLimits(bytes_max=100, fallback_bytes_max=0)) as journal,
        pytest.raises(TooLarge),
    ):
        journal.submit(WAREHOUSE, identified(f"{n * 7919 % 10_007}" for n in range(1_000)))


def test_what_waits_in_memory_is_bounded_too(journal_database: JournalDatabase) -> None:
    with journal_database.opened(JournalLimits(queue_bytes_max=1_000)) as journal:
        with journal._group_commit._condition:  # nobody commits
            queued: list[Future[AppendReceipt]] = []
            while journal._group_commit.queued_bytes < 900:
                queued.append(journal.submit(WAREHOUSE, numbered([len(queued)])))
            with pytest.raises(JournalFull):
                journal.submit(WAREHOUSE, numbered(range(1_000, 1_100)))
            assert 500 < journal._group_commit.queued_bytes <= 1_000
        for future in queued:
            future.result(timeout=60)
        assert journal.submit(WAREHOUSE, numbered([5_000]), priority=0).result(timeout=60).first
        assert problems(journal) == []


def test_it_takes_more_when_another_process_has_trimmed(journal_database: JournalDatabase) -> None:
    with journal_database.opened(LIMITS) as journal, journal_database.opened(LIMITS) as worker:
        number = _fill_to(journal, 0.91)
        with pytest.raises(JournalFull):
            appended(journal, numbered([number]))
        worker.trim(WAREHOUSE, {A: worker.head(WAREHOUSE)})
        journal._read_s = float("-inf")  # as if a moment had passed
        assert appended(journal, numbered([number])).first is not None


def test_a_source_transaction_larger_than_the_journal_does_not_block_it(
    journal_database: JournalDatabase, clock: Clock
) -> None:
    """Its end was announced, but there is no room for it: a silence is enough, and the rest gets in."""
    with journal_database.opened(LIMITS, clock) as journal:
        appended(journal, ParsedRequest("debezium", 1, begins=[TransactionBegin(0, "s", "1")]))
        number = 0
        with contextlib.suppress(JournalFull):
            while True:
                appended(journal, numbered([number], transaction="1"))
                number += 1
        head = journal.head(WAREHOUSE)
        assert journal.border(WAREHOUSE, [A], {A: 0}, head, clock.now_ms) == 0
        clock.now_ms += LIMITS.transaction_linger_ms
        assert journal.border(WAREHOUSE, [A], {A: 0}, head, clock.now_ms) == head
        journal.trim(WAREHOUSE, {A: head})
        appended(journal, numbered([number], transaction="1"))
        clock.now_ms += LIMITS.transaction_linger_ms
        assert journal.border(WAREHOUSE, [A], {A: head}, head + 1, clock.now_ms) == head
