"""When something fails: nobody is told that changes are durable unless they are, and nobody else suffers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest
import sqlalchemy as sa

from catalog.errors import CommitStateUnknown, Invalid, Unavailable
from ingest.change import Change, ParsedRequest
from ingest.journal.encoded_request import EncodedRequest, encode_request
from ingest.journal.journal import Journal
from ingest.journal.receipts import AppendReceipt
from tests.contract.ingest.journal.journal_setup import (
    WAREHOUSE,
    A,
    JournalDatabase,
    appended,
    identified,
    identities_in,
    numbered,
    numbers_in,
    parts,
    problems,
)
from tests.harness.postgres import PostgresServer


def submit_together(journal: Journal, requests: list[EncodedRequest]) -> list[Future[AppendReceipt]]:
    """So that they share a commit."""
    with journal._group_commit._condition:
        return [journal._group_commit.submit(request) for request in requests]


def test_a_request_that_cannot_be_stored_fails_alone(journal: Journal) -> None:
    requests = [encode_request(WAREHOUSE, numbered([n]), priority=1, deduplicate=True) for n in range(5)]
    object.__setattr__(requests[2].entries[0], "blob", object.__new__(_NotBytes))
    futures = submit_together(journal, requests)
    errors = [future.exception(timeout=60) for future in futures]
    assert [error is None for error in errors] == [True, True, False, True, True]
    assert isinstance(errors[2], Invalid)
    assert numbers_in(journal) == [0, 1, 3, 4]
    assert problems(journal) == []
    assert appended(journal, numbered([2])).first is not None


class _Refusal(Exception):
    def __init__(self, state: str) -> None:
        super().__init__(f"state {state}")
        self.sqlstate = state


@pytest.mark.parametrize("state", ["25006", "XX000", "40001", "42501", "53100", "57P01", "0A000"])
def test_a_server_error_state_may_be_retried(
    journal: Journal, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    """25006: PostgreSQL is read-only after a failover. A producer that is told 400 drops the request."""
    assert isinstance(_refused(journal, monkeypatch, state), Unavailable)


@pytest.mark.parametrize("state", ["22021", "22003", "23514", "54000"])
def test_a_data_error_state_is_final(journal: Journal, monkeypatch: pytest.MonkeyPatch, state: str) -> None:
    assert isinstance(_refused(journal, monkeypatch, state), Invalid)


def _refused(journal: Journal, monkeypatch: pytest.MonkeyPatch, state: str) -> BaseException | None:
    def refuse(requests: object, now_ms: int) -> None:
        raise Unavailable("nothing was stored") from _Refusal(state)

    monkeypatch.setattr(journal._group_commit._appender, "append", refuse)
    return journal.submit(WAREHOUSE, numbered([1])).exception(timeout=60)


class _NotBytes:
    def __len__(self) -> int:
        return 1


def test_what_cannot_be_packed_is_refused_at_once(journal: Journal) -> None:
    with pytest.raises(Invalid):
        journal.submit(WAREHOUSE, ParsedRequest("native", 1, [Change(0, ("a\0",), "insert")]))


Fault = Callable[[Callable[[Any], Any]], Any]


@pytest.mark.parametrize("landed", [True, False])
def test_after_an_unknown_commit_a_repeat_finds_the_result(
    journal: Journal, monkeypatch: pytest.MonkeyPatch, landed: bool
) -> None:
    write = journal._database.write

    def lost(work: Callable[[sa.Connection], Any]) -> Any:
        if landed:
            write(work)
        raise CommitStateUnknown("the answer was lost")

    for parsed in (numbered(range(3)), identified("abc"), parts((A, "1"), (A, "2"))):
        with monkeypatch.context() as broken:
            broken.setattr(journal._database, "write", lost)
            with pytest.raises(CommitStateUnknown):
                appended(journal, parsed)
    assert len(appended(journal, numbered(range(4))).duplicates) == (3 if landed else 0)
    assert len(appended(journal, identified("abcd")).duplicates) == (3 if landed else 0)
    assert [number for number in numbers_in(journal) if number is not None] == [0, 1, 2, 3]
    assert sorted(filter(None, identities_in(journal))) == ["a", "b", "c", "d"]
    assert problems(journal) == []


def test_nothing_is_remembered_of_an_append_that_failed(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    appended(journal, identified("x"))
    write = journal._database.write

    def failing(work: Callable[[sa.Connection], Any]) -> Any:
        def broken(connection: sa.Connection) -> None:
            work(connection)
            raise Unavailable("the database went away")

        return write(broken)

    with monkeypatch.context() as faulty:
        faulty.setattr(journal._database, "write", failing)
        for parsed in (numbered(range(3)), identified("ab"), parts((A, "1"), (A, "1"))):
            with pytest.raises(Unavailable):
                appended(journal, parsed)
    assert journal.head(WAREHOUSE) == 1
    assert problems(journal) == []
    assert appended(journal, identified("abx")).duplicates == {2}
    assert appended(journal, numbered(range(3))).duplicates == frozenset()


def test_uncommitted_appends_of_others_are_not_duplicates(
    journal_database: JournalDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two journals whose appends share a transaction that is undone: neither may know the other's events."""
    with journal_database.opened() as one, journal_database.opened() as other:
        monkeypatch.setattr(other, "_database", one._database)
        appender = other._group_commit._appender
        monkeypatch.setattr(appender, "_database", one._database)
        ours = encode_request(WAREHOUSE, identified("ab"), priority=1, deduplicate=True)
        theirs = encode_request(WAREHOUSE, identified("bc"), priority=1, deduplicate=True)
        for request, journal in ((ours, one), (theirs, other)):
            journal._group_commit._appender._window(request.warehouse).is_loaded = True

        def both(connection: sa.Connection) -> None:
            one._group_commit._appender._work(connection, [ours], 1)
            second = appender._work(connection, [theirs], 1)
            [receipt] = second.answers
            assert isinstance(receipt, AppendReceipt)
            assert receipt.duplicates == {0}
            raise Unavailable("undone")

        with pytest.raises(Unavailable):
            one._database.write(both)
        assert appended(other, identified("bc")).duplicates == frozenset()
        assert appended(one, identified("ab")).duplicates == {1}


def test_close_finishes_all_queued_appends(journal_database: JournalDatabase) -> None:
    with journal_database.opened() as journal:
        with journal._group_commit._condition:
            futures = [journal.submit(WAREHOUSE, numbered([n])) for n in range(20)]
        journal.close()
        assert [future.result(timeout=0).first for future in futures] == list(range(1, 21))
        with pytest.raises(Unavailable, match="closed"):
            journal.submit(WAREHOUSE, numbered([99]))
        journal.close()


def test_a_request_whose_client_has_left_is_stored(journal: Journal) -> None:
    with journal._group_commit._condition:
        futures = [journal.submit(WAREHOUSE, numbered([n])) for n in range(3)]
        assert futures[1].cancel()
    for future in (futures[0], futures[2]):
        future.result(timeout=60)
    assert numbers_in(journal) == [0, 1, 2]


def test_commits_are_synchronous(journal: Journal) -> None:
    """What an answer is worth: the database itself waits for the disk."""
    found: list[Any] = []
    if journal._database.is_sqlite:
        names = ("PRAGMA journal_mode", "PRAGMA synchronous")
    else:
        names = ("SHOW fsync", "SHOW synchronous_commit")

    def look(connection: sa.Connection) -> None:
        found.extend(connection.exec_driver_sql(name).scalar_one() for name in names)

    journal._database.write(look)
    assert found == (["wal", 2] if journal._database.is_sqlite else ["on", "on"])


class Producer(threading.Thread):
    """Sends three numbers at a time, again and again until they are answered."""

    def __init__(self, journal: Journal, source: str) -> None:
        super().__init__(daemon=True)
        self.journal = journal
        self.source = source
        self.acked: list[int] = []
        self.stop = threading.Event()

    def run(self) -> None:
        while not self.stop.is_set():
            numbers = range(len(self.acked), len(self.acked) + 3)
            try:
                appended(self.journal, numbered(numbers, source=self.source))
            except (Unavailable, CommitStateUnknown):
                self.stop.wait(0.02)
                continue
            self.acked += numbers

    def wait_for(self, events: int) -> None:
        while len(self.acked) < events:
            assert self.is_alive(), "a producer got an answer that it does not know"
            self.stop.wait(0.01)


def test_a_database_that_crashes_and_comes_back() -> None:
    """Producers that repeat what was not answered: everything is there once, whatever the crash took."""
    with PostgresServer.started() as server, JournalDatabase.fresh(server.database()).opened() as journal:
        producers = [Producer(journal, f"p{number}") for number in range(3)]
        try:
            for producer in producers:
                producer.start()
            for _ in range(3):
                for producer in producers:
                    producer.wait_for(len(producer.acked) + 20)
                server.kill()
                server.start()
            for producer in producers:
                producer.wait_for(len(producer.acked) + 20)
        finally:
            for producer in producers:
                producer.stop.set()
        for producer in producers:
            producer.join()
        assert problems(journal) == []
        found = sorted(number for number in numbers_in(journal) if number is not None)
        assert found == sorted(number for producer in producers for number in producer.acked)
