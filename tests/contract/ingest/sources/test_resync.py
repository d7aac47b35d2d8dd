"""Resync: a table that its source sends again, and what the source no longer has is deleted."""

from __future__ import annotations

import time
from typing import Any

from tests.contract.ingest.sources.control_lake import ControlLake, event
from tests.contract.ingest.staging_lake import WAREHOUSE
from tests.contract.ingest.test_source_model import check_changes

RESYNC = "namespaces/shop/tables/orders/resync"
INGEST = "namespaces/shop/tables/orders/ingest"
NOW_MS = 1_763_280_000_000


def change(sequence: int, operation: str, **row: Any) -> dict[str, Any]:
    found = {**event(sequence, "shop.orders", **row), "operation": operation}
    if operation == "DELETE":
        found["before"] = found.pop("after")
    return found


def leased(lake: ControlLake) -> dict[str, Any] | None:
    return lake.ingest.job_service.lease("w", [WAREHOUSE], {}, "anonymous")


def mirror(lake: ControlLake) -> dict[int, str]:
    return {row["id"]: row["item"] for row in lake.mirrors["orders"].rows.values()}


def with_rows(lake: ControlLake) -> None:
    lake.send(*(change(n, "INSERT", id=n, item=f"old {n}") for n in range(1, 5)))
    lake.land()


def read(sequence: int, key: int, item: str) -> dict[str, Any]:
    return change(sequence, "READ", id=key, item=item)


def test_a_resync_replaces_all_rows_in_one_publish(lake: ControlLake) -> None:
    with_rows(lake)
    begun = lake.call("POST", RESYNC)
    assert (begun["state"], begun["generation"]) == ("open", 1)
    lake.send(read(5, 1, "new 1"))
    lake.send(change(6, "UPDATE", id=2, item="streamed 2"), change(7, "DELETE", id=3))
    # These were read before the changes above came: they are older.
    lake.send(read(8, 2, "read 2"), read(9, 3, "read 3"))
    assert leased(lake) is None
    assert mirror(lake)[1] == "old 1"
    shown = lake.call("GET", RESYNC)
    assert (shown["state"], shown["waiting-events"]) == ("open", 5)
    status = lake.client.get("/status").json()["landing"]["tables"]["shop.orders"]
    assert status["resync"]["state"] == "open"
    assert lake.call("POST", f"{RESYNC}/end")["state"] == "ending"
    assert lake.call("POST", f"{RESYNC}/end")["state"] == "ending"
    lake.land()
    assert mirror(lake) == {1: "new 1", 2: "streamed 2"}
    done = lake.call("GET", RESYNC)
    assert done["state"] == "published"
    assert done["number"] is not None
    assert leased(lake) is None
    lake.send(change(10, "INSERT", id=9, item="later"))
    lake.land()
    assert mirror(lake)[9] == "later"


def test_a_source_that_is_empty_empties_the_table(lake: ControlLake) -> None:
    with_rows(lake)
    lake.call("PUT", INGEST, {"truncate": "ignore"})
    lake.call("POST", RESYNC)
    lake.call("POST", f"{RESYNC}/end")
    lake.land()
    assert mirror(lake) == {}
    assert lake.call("POST", RESYNC)["generation"] == 2


def test_an_aborted_resync_deletes_nothing(lake: ControlLake) -> None:
    with_rows(lake)
    lake.call("POST", RESYNC)
    assert "running" in lake.call("POST", RESYNC, status=409)["error"]["message"]
    lake.send(read(5, 1, "new 1"))
    lake.call("POST", f"{RESYNC}/end")
    job = lake.lease()
    assert lake.call("POST", f"{RESYNC}/abort")["state"] == "aborted"
    answer = lake.client.post(
        f"/lake/v1/jobs/{job['id']}/publish", json={"epoch": job["epoch"], "tables": [], "metrics": {}}
    )
    assert answer.status_code >= 400
    lake.ingest.job_service.fail(job["id"], job["epoch"], "the resync was given up", retry=False)
    lake.land()
    assert mirror(lake) == {1: "new 1", 2: "old 2", 3: "old 3", 4: "old 4"}
    assert "given up" in lake.call("POST", f"{RESYNC}/end", status=409)["error"]["message"]


def test_a_resync_that_is_never_ended_is_given_up(lake: ControlLake) -> None:
    with_rows(lake)
    lake.call("POST", RESYNC)
    lake.send(read(5, 1, "new 1"))
    later_ms = time.time_ns() // 1_000_000 + lake.settings.resync_timeout_s * 1000 + 1
    lake.ingest.resync.expire(WAREHOUSE, later_ms)
    shown = lake.call("GET", RESYNC)
    assert shown["state"] == "expired"
    assert "resync_timeout_s" in shown["reason"]
    lake.land()
    assert mirror(lake)[1] == "new 1"
    assert len(mirror(lake)) == 4


def test_a_resync_needs_a_mirror_with_a_key(lake: ControlLake) -> None:
    lake.call("POST", RESYNC, status=404)
    lake.call("GET", RESYNC, status=404)
    with_rows(lake)
    lake.call("PUT", INGEST, {"deletes": "soft"})
    assert "set deletes to hard" in lake.call("POST", RESYNC, status=409)["error"]["message"]


def debezium(op: str, lsn: int, row: dict[str, Any], snapshot: str = "false") -> dict[str, Any]:
    source = {
        "connector": "postgresql",
        "name": "pg",
        "schema": "shop",
        "table": "orders",
        "lsn": lsn,
        "ts_ms": NOW_MS + lsn,
        "snapshot": snapshot,
        "sequence": f'[null,"{lsn}"]' if op == "r" else f'["{lsn - 1}","{lsn}"]',
    }
    return {"op": op, "before": None, "after": row, "source": source, "ts_ms": NOW_MS + lsn}


def snapshot(lsn: int, *rows: dict[str, Any]) -> list[dict[str, Any]]:
    last = len(rows) - 1
    return [
        debezium("r", lsn, row, "last_in_data_collection" if n == last else "true")
        for n, row in enumerate(rows)
    ]


def test_the_last_row_of_a_debezium_snapshot_ends_the_resync(lake: ControlLake) -> None:
    kept, gone = {"id": 1, "item": "kept"}, {"id": 2, "item": "gone"}
    lake.send(*snapshot(100, kept, gone), source="")
    lake.land()
    assert mirror(lake) == {1: "kept", 2: "gone"}
    lake.call("POST", RESYNC)
    # The database has not moved: the row is the same at the same position as before.
    lake.send(*snapshot(100, kept), source="")
    until_s = time.monotonic() + 30
    while lake.call("GET", RESYNC)["state"] == "open" and time.monotonic() < until_s:
        time.sleep(0.02)
    lake.land()
    assert mirror(lake) == {1: "kept"}


def test_a_read_row_with_a_position_is_ordered_by_it(lake: ControlLake) -> None:
    lake.send(*snapshot(100, {"id": 1, "item": "a"}, {"id": 2, "item": "b"}), source="")
    lake.land()
    lake.call("POST", RESYNC)
    lake.send(debezium("u", 110, {"id": 1, "item": "before the snapshot"}), source="")
    lake.send(debezium("u", 130, {"id": 2, "item": "behind the snapshot"}), source="")
    rows = [{"id": 1, "item": "read 1"}, {"id": 2, "item": "read 2"}]
    lake.send(*(debezium("r", 120, row, "true") for row in rows), source="")
    lake.call("POST", f"{RESYNC}/end")
    lake.land()
    assert mirror(lake) == {1: "read 1", 2: "behind the snapshot"}


def test_a_change_from_before_the_resync_does_not_undo_it(lake: ControlLake) -> None:
    """It arrives during the resync or after it: late, or a dead letter that is replayed."""
    with_rows(lake)
    lake.send(change(20, "UPDATE", id=1, item="old 1, again"))
    lake.land()
    lake.call("POST", RESYNC)
    lake.send(read(21, 1, "new 1"), read(22, 2, "new 2"))
    lake.send(change(10, "UPDATE", id=2, item="late 2"), change(11, "UPDATE", id=3, item="late 3"))
    lake.send(change(23, "INSERT", id=5, item="streamed 5"))
    lake.call("POST", f"{RESYNC}/end")
    lake.land()
    assert mirror(lake) == {1: "new 1", 2: "new 2", 5: "streamed 5"}
    lake.send(change(12, "UPDATE", id=2, item="later 2"), change(13, "UPDATE", id=4, item="later 4"))
    lake.land()
    assert mirror(lake) == {1: "new 1", 2: "new 2", 5: "streamed 5"}
    lake.send(change(24, "UPDATE", id=2, item="newer 2"))
    lake.land()
    assert mirror(lake)[2] == "newer 2"
    expected = [{"id": key, "item": item} for key, item in sorted(mirror(lake).items())]
    check_changes(lake.mirrors["orders"], expected, _rows_of, "a verification gives other rows")


def _rows_of(changes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"id": change["id"], "item": change["item"]} for change in changes]


def test_a_resync_from_a_log_whose_positions_have_fallen_keeps_all_changes(lake: ControlLake) -> None:
    """After a failover without a new epoch, the rows are read at an earlier position than what had landed."""
    lake.send(*snapshot(500, {"id": 1, "item": "a"}, {"id": 2, "item": "b"}), source="")
    lake.land()
    lake.call("POST", RESYNC)
    lake.send(*(debezium("r", 120, {"id": key, "item": f"read {key}"}, "true") for key in (1, 2)), source="")
    lake.send(debezium("u", 130, {"id": 2, "item": "behind the snapshot"}), source="")
    lake.call("POST", f"{RESYNC}/end")
    lake.land()
    assert mirror(lake) == {1: "read 1", 2: "behind the snapshot"}


def test_what_came_before_the_resync_lands_before_it(lake: ControlLake) -> None:
    with_rows(lake)
    lake.send(change(5, "INSERT", id=5, item="before"))
    lake.call("POST", RESYNC)
    lake.send(read(6, 1, "new 1"))
    lake.call("POST", f"{RESYNC}/end")
    lake.land()
    assert mirror(lake)[5] == "before"
    lake.land()
    assert mirror(lake) == {1: "new 1"}


def test_other_tables_go_on_and_shared_transactions_wait(lake: ControlLake) -> None:
    with_rows(lake)
    lake.call("POST", RESYNC)
    lake.send(event(5, "shop.customers", id=1))
    assert [table["name"] for table in lake.land()["tables"]] == ["customers"]
    lake.send(read(6, 1, "new 1"))
    assert leased(lake) is None
    lake.call("POST", f"{RESYNC}/end")
    assert [table["name"] for table in lake.land()["tables"]] == ["orders"]
