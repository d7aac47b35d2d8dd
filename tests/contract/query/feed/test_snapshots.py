"""Snapshots of subscribers: many share one read, and one that is disconnected goes on where it was."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any

import httpx
import pyarrow as pa
import pytest

from calve.bootstrap import open_catalog
from calve.querying import open_tables
from calve.settings import Settings
from catalog.services.catalog import Catalog
from query.feed import snapshot_rows
from query.feed.cursors import Cursor, cursor_of
from query.feed.errors import MustRefetch
from query.feed.events import Message
from query.feed.filters import Filter
from query.feed.followed import FollowedTables
from query.feed.pinned_tables import PinnedTables
from query.feed.snapshot_rows import SnapshotRows
from query.tables.access import TableOpener
from tests.clients import pyiceberg_client
from tests.contract.query.feed.feed_lake import FeedLake, told
from tests.harness.stacks import Stack

PIECE_ROWS = 300
FILE_ROWS = 700
FILES = 3


class Reader:
    """The snapshot rows of a server process, here in the process of the test."""

    def __init__(self, catalog: Catalog, opener: TableOpener, threads: Executor) -> None:
        self.catalog = catalog
        self._opener = opener
        self._threads = threads
        self.restart()

    def restart(self) -> None:
        """As a new server process, which has nothing in memory."""
        self.tables = PinnedTables(lambda: self._opener, self._threads, piece_rows_max=PIECE_ROWS)
        followed = FollowedTables(self.catalog, lambda: self._opener)
        self.rows = SnapshotRows(self.catalog, followed, self.tables, self._threads)

    def begin(self, lake: FeedLake) -> Cursor:
        """A snapshot of what there is now."""
        return cursor_of(lake.poll()["next"])

    async def some(self, lake: FeedLake, cursor: Cursor, count: int) -> tuple[list[Message], Cursor]:
        """At most `count` messages of a connection, and where to go on."""
        warehouse = self.catalog.warehouse(lake.warehouse)
        found: list[Message] = []
        async for chunk in self.rows.chunks(warehouse, Filter((f"{lake.namespace}.*",)), cursor):
            found += chunk
            if len(found) >= count:
                break
        return found[:count], found[:count][-1].cursor

    async def all(self, lake: FeedLake, cursor: Cursor, rng: random.Random) -> list[Message]:
        """The whole snapshot, over connections of a few rows each."""
        found: list[Message] = []
        while not found or found[-1].kind != "snapshot-end":
            more, cursor = await self.some(lake, cursor, rng.randrange(1, 400))
            found += more
        return found


def snapshot(cursor: Cursor) -> Cursor:
    return Cursor(cursor.generation, cursor.number, cursor.time_ms, is_snapshot=True)


@pytest.fixture
def own(stack: Stack) -> FeedLake:
    """A warehouse for this test alone: no other test commits to it, and the test may expire its moments."""
    name = f"w{uuid.uuid4().hex[:8]}"
    httpx.post(f"{stack.url}/lake/v1/warehouses", json={"name": name}, timeout=60).raise_for_status()
    lake = FeedLake.on(stack, name)
    lake.create("orders")
    add_files(lake, FILES)
    return lake


def add_files(lake: FeedLake, count: int) -> None:
    mirror = pyiceberg_client.catalog(lake.stack, lake.warehouse).load_table((lake.namespace, "orders"))
    for file in range(count):
        ids = range(file * FILE_ROWS, (file + 1) * FILE_ROWS)
        rows = [{"id": id_, "status": f"s{id_ % 7}"} for id_ in ids]
        mirror.append(pa.Table.from_pylist(rows, schema=mirror.schema().as_arrow()))


@pytest.fixture
def reader(stack: Stack) -> Iterator[Reader]:
    given: dict[str, Any] = {
        name.removeprefix("CALVE_").lower(): value
        for name, value in stack.server.settings.items()
        if name.startswith("CALVE_")
    }
    settings = Settings(**given)
    catalog = open_catalog(settings)
    with ThreadPoolExecutor(4) as threads:
        yield Reader(catalog, open_tables(settings, catalog, None), threads)
    catalog.database.close()


def ids(messages: list[Message]) -> list[int]:
    return [message.data["after"]["id"] for message in messages if message.kind == "change"]


def test_many_who_are_disconnected_at_random_share_one_read_of_each_file(
    own: FeedLake, reader: Reader
) -> None:
    begin = snapshot(reader.begin(own))
    rng = random.Random(7)

    async def run() -> list[list[Message]]:
        readers = [reader.all(own, begin, random.Random(rng.random())) for _ in range(50)]
        return await asyncio.gather(*readers)

    first, *others = asyncio.run(run())
    assert sorted(ids(first)) == list(range(FILES * FILE_ROWS))
    assert all(ids(other) == ids(first) for other in others)
    assert reader.tables.reads == FILES


def test_files_are_shared_by_snapshots_of_different_commits(own: FeedLake, reader: Reader) -> None:
    early = snapshot(reader.begin(own))
    add_files(own, 1)
    late = snapshot(reader.begin(own))

    async def run() -> list[list[Message]]:
        rng = random.Random(7)
        return [await reader.all(own, cursor, rng) for cursor in (early, late)]

    former, latter = asyncio.run(run())
    assert len(ids(former)) == FILES * FILE_ROWS
    assert len(ids(latter)) == (FILES + 1) * FILE_ROWS
    assert reader.tables.reads == FILES + 1


def test_who_returns_reads_only_the_file_where_it_was(own: FeedLake, reader: Reader) -> None:
    begin = snapshot(reader.begin(own))

    async def run() -> tuple[list[int], list[int]]:
        rows, cursor = await reader.some(own, begin, 2 * FILE_ROWS + 10)
        reader.restart()
        rest = await reader.all(own, cursor, random.Random(7))
        return ids(rows), ids(rest)

    rows, rest = asyncio.run(run())
    assert sorted(rows + rest) == list(range(FILES * FILE_ROWS))
    assert reader.tables.reads == 1


@pytest.mark.parametrize("is_large", [True, False])
def test_a_large_snapshot_can_be_read_to_its_end_after_its_moment_would_be_forgotten(
    own: FeedLake, reader: Reader, monkeypatch: pytest.MonkeyPatch, is_large: bool
) -> None:
    monkeypatch.setattr(snapshot_rows, "PINNED_ROWS", PIECE_ROWS if is_large else 10**9)
    begin = snapshot(reader.begin(own))

    async def run() -> list[int]:
        rows, cursor = await reader.some(own, begin, PIECE_ROWS)
        await asyncio.to_thread(add_files, own, 1)
        now_ms = reader.catalog.now_ms()
        forgotten = reader.catalog.moments.thin(
            own.warehouse, now_ms=now_ms, before_ms=now_ms + 1, limit=1000, choose=lambda _: set()
        )
        assert forgotten
        rest = await reader.all(own, cursor, random.Random(7))
        return sorted(ids(rows) + ids(rest))

    if is_large:
        assert asyncio.run(run()) == list(range(FILES * FILE_ROWS))
    else:
        with pytest.raises(MustRefetch):
            asyncio.run(run())


def test_a_token_inside_a_snapshot_goes_on_with_another_filter(own: FeedLake) -> None:
    with own.subscribe(snapshot="true") as stream:
        whole = stream.until("snapshot-end")
    middle = len(whole) // 2
    rest = told(whole[middle + 1 :])
    for params, wanted in (
        ({"where": "status = 's3'"}, [row for row in rest if row[2] == "s3"]),
        ({"where": "status = 's3'", "columns": "id"}, [(*row[:2], None) for row in rest if row[2] == "s3"]),
        ({"columns": "id"}, [(*row[:2], None) for row in rest]),
        ({"where": "id > 100000"}, []),
    ):
        with own.subscribe(last=whole[middle].token, **params) as stream:
            assert told(stream.until("snapshot-end")) == wanted, params


def test_a_snapshot_whose_moment_is_forgotten_is_refused(own: FeedLake, reader: Reader) -> None:
    with own.subscribe(snapshot="true") as stream:
        token = stream.next().token
    add_files(own, 1)
    now_ms = reader.catalog.now_ms()
    reader.catalog.moments.thin(
        own.warehouse, now_ms=now_ms, before_ms=now_ms + 1, limit=1000, choose=lambda _: set()
    )
    error = own.refused(tables=f"{own.namespace}.*", **{"from": token})
    assert (error["code"], error["type"]) == (410, "MustRefetchException")
