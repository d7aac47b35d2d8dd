"""Group commit: writes that wait for SQLite share a transaction, and each has its own result."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import RootTransaction
from sqlalchemy.exc import OperationalError

from catalog.errors import CommitStateUnknown, Unavailable
from catalog.fast.group_commit import GroupCommit
from catalog.models import ConcurrentUpdate
from catalog.store.database import Database

WORKS = 6
_metadata = sa.MetaData()
_numbers = sa.Table("numbers", _metadata, sa.Column("number", sa.Integer, primary_key=True))
_READ = sa.select(_numbers.c.number).order_by(_numbers.c.number)

Work = Callable[[sa.Connection], Any]


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    opened = Database(f"sqlite:///{tmp_path / 'x.db'}", writer=GroupCommit())
    opened.write(_metadata.create_all)
    yield opened
    opened.close()


class Counted:
    """COMMITs, and a fault for them."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.fails = False
        committed = RootTransaction.commit

        def commit(transaction: RootTransaction) -> None:
            self.count += 1
            if self.fails:
                raise OperationalError("COMMIT", {}, Exception("disk I/O error"))
            committed(transaction)

        patch.setattr(RootTransaction, "commit", commit)


@pytest.fixture
def commits(database: Database, monkeypatch: pytest.MonkeyPatch) -> Counted:
    return Counted(monkeypatch)


def adding(number: int, refusal: Exception | None = None) -> Work:
    def work(connection: sa.Connection) -> int:
        connection.execute(sa.insert(_numbers).values(number=number))
        if refusal is not None:
            raise refusal
        return number

    return work


def together(
    database: Database, works: list[Work], meanwhile: Callable[[], None] = lambda: None
) -> list[Any]:
    """Run the works while a first one holds the database, so that they queue up; what each came to."""
    held, may_go = threading.Event(), threading.Event()

    def first(_connection: sa.Connection) -> None:
        held.set()
        assert may_go.wait(60)
        meanwhile()

    with ThreadPoolExecutor(len(works) + 1) as threads:
        leading = threads.submit(database.write, first)
        assert held.wait(60)
        writing: list[Future[Any]] = []
        for work in works:
            writing.append(threads.submit(database.write, work))
            _until(lambda: len(_waiting(database)) == len(writing))
        may_go.set()
        _ = leading.exception(60)
        return [one.exception(60) or one.result() for one in writing]


def _waiting(database: Database) -> Any:
    assert isinstance(database._writer, GroupCommit)
    return database._writer._waiting


def _until(condition: Callable[[], bool]) -> None:
    for _ in range(60_000):
        if condition():
            return
        threading.Event().wait(0.001)
    raise AssertionError("it never happened")


def kept(database: Database) -> list[int]:
    return [row[0] for row in database.fetch_all(_READ, {})]


def test_those_who_wait_share_one_commit(database: Database, commits: Counted) -> None:
    assert together(database, [adding(number) for number in range(WORKS)]) == list(range(WORKS))
    assert kept(database) == list(range(WORKS))
    assert commits.count == 2  # of the first one, and of all who waited for it


def test_a_refused_work_leaves_nothing_and_disturbs_nobody(database: Database, commits: Counted) -> None:
    works = [adding(number, ConcurrentUpdate(("a", "b")) if number == 2 else None) for number in range(WORKS)]
    found = together(database, works)
    assert isinstance(found[2], ConcurrentUpdate)
    assert kept(database) == [0, 1, 3, 4, 5]
    assert commits.count == 2


def test_a_broken_rule_of_the_database_is_the_fault_of_one(database: Database) -> None:
    found = together(database, [adding(1), adding(1), adding(2)])
    assert [type(one) for one in found] == [int, sa.exc.IntegrityError, int]
    assert kept(database) == [1, 2]


def test_a_failure_of_the_database_hits_only_the_work_that_meets_it(database: Database) -> None:
    failure = OperationalError("INSERT", {}, Exception("disk I/O error"))
    found = together(database, [adding(1), adding(2, failure), adding(3)])
    assert [type(one) for one in found] == [int, Unavailable, int]
    assert kept(database) == [1, 3]


def test_a_commit_that_is_not_confirmed_is_unknown_to_all_who_wrote(
    database: Database, commits: Counted
) -> None:
    works = [adding(1), adding(2, ConcurrentUpdate(("a", "b"))), adding(3)]
    found = together(database, works, meanwhile=lambda: setattr(commits, "fails", True))
    assert [type(one) for one in found] == [CommitStateUnknown, Unavailable, CommitStateUnknown]
    commits.fails = False
    assert database.write(adding(4)) == 4
    assert kept(database) == [4]


def test_who_cannot_wait_longer_has_changed_nothing(database: Database, tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path / 'x.db'}", writer=GroupCommit(wait_max_s=0.05))
    held, may_go = threading.Event(), threading.Event()

    def first(_connection: sa.Connection) -> None:
        held.set()
        assert may_go.wait(60)

    with ThreadPoolExecutor(1) as threads:
        leading = threads.submit(database.write, first)
        assert held.wait(60)
        with pytest.raises(Unavailable):
            database.write(adding(1))
        may_go.set()
        leading.result(60)
    assert kept(database) == []
    assert database.write(adding(2)) == 2
