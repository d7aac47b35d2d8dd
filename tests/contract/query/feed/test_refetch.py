"""When a subscriber must read its tables again: there is never a gap that it is not told of."""

from __future__ import annotations

import uuid

import httpx
import sqlalchemy as sa
from pyiceberg.table import Table

from ingest.store.jobs import PublishPlan
from ingest.store.schema import jobs
from ingest.store.tables import TableAdvance
from tests.clients import pyiceberg_client
from tests.contract.query.feed.feed_lake import FeedLake, told
from tests.harness.stacks import Stack


def table(lake: FeedLake, name: str) -> Table:
    found: Table = pyiceberg_client.catalog(lake.stack, lake.warehouse).load_table((lake.namespace, name))
    return found


def test_changes_that_are_gone(lake: FeedLake) -> None:
    lake.create("orders")
    begin = lake.poll()["next"]
    first = lake.publish({"orders": [("insert", 1, "new")]})
    after = lake.poll(after=first)["next"]
    last = lake.publish({"orders": [("insert", 2, "new")]})
    changes = table(lake, "orders__changes")
    expired = changes.snapshots()[0]
    changes.io.delete(expired.manifest_list)  # as expiry does
    error = lake.refused(tables=lake.name("orders"), **{"from": begin})
    assert (error["code"], error["type"]) == (410, "MustRefetchException")
    assert "snapshot=true" in error["message"]
    with lake.subscribe(tables=lake.name("orders"), last=after) as stream:
        assert told(stream.progress(last)) == [("insert", 2, "new")]
    with lake.subscribe(tables=lake.name("orders"), snapshot="true") as stream:
        assert sorted(told(stream.until("snapshot-end"))) == [("read", 1, "new"), ("read", 2, "new")]


def test_changes_whose_snapshots_are_expired(lake: FeedLake) -> None:
    """The rows are there, in other files, and the job of the publish says which they are."""
    lake.create("orders")
    begin = lake.poll()["next"]
    first = lake.publish({"orders": [("insert", 1, "new"), ("update", 1, "paid"), ("insert", 2, "new")]})
    finished_job(lake, first, lake.commit_us, "orders")
    lake.publish({"orders": [("insert", 3, "new")]})
    changes = table(lake, "orders__changes")
    expired = changes.snapshots()[0]
    changes.overwrite(changes.scan().to_arrow().sort_by([("_position", "descending")]))  # a compaction
    changes.io.delete(expired.manifest_list)
    with lake.subscribe(tables=lake.name("orders"), last=begin) as stream:
        assert told(stream.progress(first)) == [
            ("insert", 1, "new"),
            ("update", 1, "paid"),
            ("insert", 2, "new"),
        ]


def finished_job(lake: FeedLake, number: int, commit_us: int, name: str) -> None:
    """The row that a publish of ingest leaves."""
    step = TableAdvance((lake.namespace, name), 0, 1, 1, 0, None, None, {})
    row = {
        "id": uuid.uuid4().hex,
        "warehouse": lake.warehouse,
        "state": "done",
        "epoch": 1,
        "worker": "w",
        "lease_ends_ms": 0,
        "not_before_ms": 0,
        "created_ms": 0,
        "finished_ms": commit_us // 1000,
        "attempts": 1,
        "description": b"{}",
        "landing": PublishPlan(commit_us, [], [step]).encode(),
        "number": number,
    }
    engine = sa.create_engine(lake.stack.database.replace("postgresql://", "postgresql+psycopg://"))
    with engine.begin() as connection:
        connection.execute(sa.insert(jobs).values(row))
    engine.dispose()


def test_a_warehouse_that_was_created_again(stack: Stack) -> None:
    name = f"w{uuid.uuid4().hex[:8]}"
    url = f"{stack.url}/lake/v1/warehouses"
    httpx.post(url, json={"name": name}, timeout=60).raise_for_status()
    lake = FeedLake(stack, "s", name)
    token = lake.poll()["next"]
    httpx.delete(f"{url}/{name}", timeout=60).raise_for_status()
    httpx.post(url, json={"name": name}, timeout=60).raise_for_status()
    assert lake.refused(**{"from": token})["code"] == 410
    other = FeedLake(stack, "s", "main").poll()["next"]
    assert lake.refused(**{"from": other})["code"] == 410


def test_rows_that_change_in_another_way(lake: FeedLake) -> None:
    lake.create("orders", "items")
    lake.publish({"orders": [("insert", 1, "new")], "items": [("insert", 1, "new")]})
    with lake.subscribe(tables=lake.name("orders")) as stream:
        stream.next()
        mirror = table(lake, "orders")
        mirror.append(mirror.scan().to_arrow())  # by an engine
        number = lake.head()
        [reset] = [event for event in stream.progress(number) if event.kind == "must-refetch"]
        assert (reset.data["table"], reset.data["number"]) == (lake.name("orders"), number)
        table(lake, "items").delete("id = 1")
        with table(lake, "orders").update_schema() as update:  # which changes no row
            update.add_column("note", update._schema.find_type("status"))
        assert {event.kind for event in stream.progress(lake.head())} == {"progress"}
        pyiceberg_client.catalog(lake.stack).drop_table((lake.namespace, "orders"))
        [dropped] = [event for event in stream.progress(lake.head()) if event.kind == "must-refetch"]
        assert "dropped" in dropped.data["reason"]
