"""What server processes tell each other of their queries."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from catalog.models import Caller, Role
from catalog.store import migrations
from catalog.store.database import Database
from catalog.store.queries import QueryStore, SavedQuery
from query import sharing
from query.errors import Cancelled
from query.registry import RECENT_MAX, NoSuchQuery, Query, Registry
from query.sharing import SharedQueries

ANN, BOB = Caller("ann", {"main": Role.READER}), Caller("bob", {"main": Role.READER})
ADMIN = Caller("root", {"main": Role.ADMIN})


class CountedStore(QueryStore):
    """Counts writes."""

    writes = 0

    def save(self, *arguments: object) -> None:
        self.writes += 1
        super().save(*arguments)  # type: ignore[arg-type]


class Process:
    """A server process, as far as its queries are concerned."""

    def __init__(self, database: Database, now_ms: Callable[[], int]) -> None:
        self.registry = Registry()
        self.store = CountedStore(database)
        self.shared = SharedQueries(
            self.store,
            self.registry,
            now_ms,
            lambda query, caller: query.stop(Cancelled(f"by {caller}")),
        )

    def begin(self, caller: str = "ann", warehouse: str = "main") -> Query:
        return self.registry.begin(caller, "SELECT 1", warehouse)

    def begin_long(self, caller: str = "ann") -> Query:
        query = self.begin(caller)
        query.started_s -= sharing.LONG_S
        return query

    def turn(self) -> None:
        asyncio.run(self.shared.take_turn())

    def states(self) -> list[str]:
        return [one["state"] for one in self.shared.listed("main")]


class Clock:
    ms = 1_000_000_000

    def now_ms(self) -> int:
        return self.ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def processes(tmp_path: Path, clock: Clock) -> Iterator[tuple[Process, Process]]:
    database = Database(f"sqlite:///{tmp_path}/catalog.db")
    migrations.migrate(database)
    yield Process(database, clock.now_ms), Process(database, clock.now_ms)
    database.close()


def test_a_process_without_queries_writes_nothing(processes: tuple[Process, Process]) -> None:
    one, _ = processes
    one.turn()
    one.begin()  # a second has not passed
    one.turn()
    assert one.store.writes == 0


def test_long_queries_and_ended_ones_are_seen_by_others(processes: tuple[Process, Process]) -> None:
    one, other = processes
    long, short = one.begin_long(), one.begin()
    one.turn()
    assert other.states() == ["waiting"]
    assert one.states() == []  # its own ones are not read from SQL
    one.registry.finish(short)
    one.registry.finish(long, "broken")
    one.turn()
    assert sorted(other.states()) == ["done", "failed"]
    assert other.shared.listed("blue") == []
    assert one.store.writes == 2  # however many queries there are


def test_a_query_is_cancelled_through_another_process(
    processes: tuple[Process, Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = processes
    monkeypatch.setattr(sharing, "POLL_S", 0.01)
    query = one.begin_long()
    one.turn()

    async def scenario() -> bool:
        cancelling = asyncio.create_task(other.shared.cancel(query.id, ANN))
        while query.stopped is None:
            await one.shared.take_turn()
            await asyncio.sleep(0.01)
        one.registry.finish(query, "cancelled")
        await one.shared.take_turn()
        return await cancelling

    assert asyncio.run(scenario())
    assert query.stopped is not None
    assert query.stopped.message == "by ann"
    assert query.state == "cancelled"


def test_a_query_belongs_to_its_caller_and_to_administrators(
    processes: tuple[Process, Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = processes
    monkeypatch.setattr(sharing, "UNSAVED_WAIT_S", 0.0)
    monkeypatch.setattr(sharing, "CANCEL_WAIT_S", 0.0)
    query = one.begin_long()
    one.turn()
    for query_id, caller in ((query.id, BOB), ("0" * 32, ANN), ("x", ANN), (other.registry.process, ANN)):
        with pytest.raises(NoSuchQuery):
            asyncio.run(other.shared.cancel(query_id, caller))
    assert one.store.cancelled(one.registry.process) == []
    assert asyncio.run(other.shared.cancel(query.id, ADMIN)) is False  # its process has not ended it yet
    assert one.store.cancelled(one.registry.process) == [(query.id, "root")]
    one.registry.finish(query)
    one.turn()
    with pytest.raises(NoSuchQuery):
        asyncio.run(other.shared.cancel(query.id, ANN))


def test_rows_have_a_lifetime(processes: tuple[Process, Process], clock: Clock) -> None:
    one, other = processes
    lost = one.begin_long()
    one.turn()
    clock.ms += sharing.SILENT_MS_MAX
    assert other.states() == [], "a process that says nothing any more is gone, and its queries with it"
    for _ in range(3):
        for _ in range(RECENT_MAX - 1):
            other.registry.finish(other.begin())
        other.turn()
    assert len(_saved(one)) == RECENT_MAX
    clock.ms += sharing.LIFETIME_MS + 1
    other.registry.finish(other.begin())
    other.turn()
    assert len(_saved(one)) == 1
    assert lost.id not in {row.id for row in _saved(one)}


def _saved(process: Process) -> list[SavedQuery]:
    return process.store.of_others(process.registry.process, 0)
