"""Snapshots, rollback, tags and branches through HTTP, on tables that PyIceberg writes."""

from __future__ import annotations

import pytest

from tests.clients import pyiceberg_client
from tests.contract.query.tables.table_lake import TableLake, orders


def test_snapshots_are_listed_newest_first_with_their_numbers(lake: TableLake) -> None:
    numbers = lake.orders()
    answer = lake.get("orders", "snapshots")
    newest, oldest = answer["snapshots"]
    known = lake.table("orders").snapshots()
    assert [newest["snapshot_id"], oldest["snapshot_id"]] == [
        known[1].snapshot_id,
        known[0].snapshot_id,
    ]
    assert [oldest["number"], newest["number"]] == numbers
    assert (oldest["parent_id"], newest["parent_id"]) == (None, oldest["snapshot_id"])
    assert (oldest["is_current"], newest["is_current"]) == (False, True)
    assert newest["operation"] == "append"
    assert newest["summary"]["added-records"] == "1"
    assert newest["refs"] == ["main"]
    assert newest["principal"] == oldest["principal"] is not None
    assert answer["as_of"]["snapshot_id"] == newest["snapshot_id"]
    assert lake.get("orders", "snapshots", str(oldest["snapshot_id"])) == oldest


def test_snapshots_come_in_pages(lake: TableLake) -> None:
    lake.orders()
    whole = lake.get("orders", "snapshots")
    assert whole["next-page-token"] is None
    first = lake.get("orders", "snapshots", pageSize=1)
    second = lake.get("orders", "snapshots", pageSize=1, pageToken=first["next-page-token"])
    assert first["snapshots"] + second["snapshots"] == whole["snapshots"]
    assert second["next-page-token"] is None


def test_snapshots_as_of_a_number_and_a_snapshot(lake: TableLake) -> None:
    first, _ = lake.orders()
    (only,) = lake.get("orders", "snapshots", as_of=first)["snapshots"]
    assert only["is_current"]
    assert only["number"] == first
    assert lake.get("orders", "snapshots", as_of=only["time_ms"])["as_of"]["snapshot_id"] in (
        only["snapshot_id"],
        None,  # the commit that added it can be a millisecond later
    )
    by_id = lake.get("orders", "snapshots", as_of=f"snapshot:{only['snapshot_id']}")
    assert by_id["as_of"] == {
        "number": first,
        "time": only["time"],
        "snapshot_id": only["snapshot_id"],
    }


def test_an_error_for_a_moment_before_the_table_says_since_when_it_exists(lake: TableLake) -> None:
    before = lake.head()
    lake.orders()
    error = lake.refused("GET", "orders", "snapshots", params={"as_of": before})
    assert error["code"] == 404
    assert "did not exist then" in error["message"]
    assert f"(number {before + 1})" in error["message"]
    error = lake.refused("GET", "orders", "snapshots", params={"as_of": "2020-01-01"})
    assert "did not exist then (2020-01-01T00:00:00Z, number 0)" in error["message"]
    error = lake.refused("GET", "missing", "snapshots", params={"as_of": before})
    assert error["type"] == "NoSuchTableException"
    assert "did not exist then" not in error["message"]


@pytest.mark.parametrize(
    ("as_of", "code", "message"),
    [
        ("2999-01-01", 400, "in the future"),
        ("99999999999", 400, "has no commit"),
        ("snapshot:1", 404, "has no snapshot 1"),
        ("soon", 400, "is not a moment"),
        ("main:1", 409, "not visible yet"),
        ("other:1", 400, "token"),
    ],
)
def test_moments_that_are_refused(lake: TableLake, as_of: str, code: int, message: str) -> None:
    lake.orders()
    error = lake.refused("GET", "orders", "snapshots", params={"as_of": as_of})
    assert (error["code"], message in error["message"]) == (code, True), error


def test_numbers_of_snapshots_survive_a_rename(lake: TableLake) -> None:
    numbers = lake.orders()
    pyiceberg_client.catalog(lake.stack).rename_table((lake.namespace, "orders"), (lake.namespace, "renamed"))
    found = [one["number"] for one in lake.get("renamed", "snapshots")["snapshots"]]
    assert found == numbers[::-1]
    error = lake.refused("GET", "renamed", "snapshots", params={"as_of": numbers[0]})
    assert "did not exist then" in error["message"]


@pytest.mark.parametrize("by", ["snapshot_id", "number", "text"])
def test_rollback_sets_main_back_and_keeps_history(lake: TableLake, by: str) -> None:
    first, _ = lake.orders()
    newest, oldest = lake.get("orders", "snapshots")["snapshots"]
    body = {
        "snapshot_id": {"snapshot_id": oldest["snapshot_id"]},
        "number": {"as_of": first},
        "text": {"as_of": str(first)},
    }[by]
    planned = lake.post("orders", "rollback", **body, dry_run=True)
    assert [one["snapshot_id"] for one in planned["undone"]] == [newest["snapshot_id"]]
    assert planned["number"] is None
    assert len(lake.rows("orders")) == 3
    done = lake.post("orders", "rollback", **body)
    assert done == planned | {"number": lake.head()}
    assert done["snapshot_id"] == oldest["snapshot_id"]
    assert done["previous_snapshot_id"] == newest["snapshot_id"]
    assert lake.rows("orders") == [(1, "new"), (2, "paid")]
    assert len(lake.get("orders", "snapshots")["snapshots"]) == 2
    # And forward again, because the newer snapshot was current once.
    lake.post("orders", "rollback", snapshot_id=newest["snapshot_id"])
    assert len(lake.rows("orders")) == 3


def test_rollback_to_the_present_changes_nothing(lake: TableLake) -> None:
    lake.orders()
    head = lake.head()
    answer = lake.post("orders", "rollback", as_of=head)
    assert (answer["undone"], answer["number"], lake.head()) == ([], None, head)


def test_rollbacks_that_are_refused(lake: TableLake) -> None:
    table = lake.create("orders")
    created = lake.head()
    table.append(orders((1, "new")))
    snapshot_id = lake.table("orders").current_snapshot()
    assert snapshot_id is not None
    table.manage_snapshots().create_branch(snapshot_id.snapshot_id, "audit").commit()
    table.append(orders((2, "new")), branch="audit")
    audit = lake.table("orders").refs()["audit"].snapshot_id
    for body, code in [
        ({}, 400),
        ({"as_of": 1, "snapshot_id": 1}, 400),
        ({"snapshot_id": 12345}, 404),
        ({"as_of": created}, 409),
        ({"snapshot_id": audit}, 409),
        ({"as_of": created - 1}, 404),
    ]:
        assert lake.refused("POST", "orders", "rollback", json=body)["code"] == code, body
    assert lake.rows("orders") == [(1, "new")]


def test_tags_and_branches(lake: TableLake) -> None:
    first, _ = lake.orders()
    newest, oldest = lake.get("orders", "snapshots")["snapshots"]
    assert lake.post("orders", "tags", name="eod/1", as_of=first)["snapshot_id"] == oldest["snapshot_id"]
    made = lake.post("orders", "branches", name="audit", max_ref_age_ms=86_400_000)
    assert (made["snapshot_id"], made["max_ref_age_ms"]) == (newest["snapshot_id"], 86_400_000)
    assert [tag["name"] for tag in lake.get("orders", "tags")["tags"]] == ["eod/1"]
    assert [one["name"] for one in lake.get("orders", "branches")["branches"]] == ["audit", "main"]
    lake.table("orders").append(orders((9, "audited")), branch="audit")
    assert len(lake.rows("orders")) == 3
    assert lake.refused("POST", "orders", "tags", json={"name": "audit"})["code"] == 409
    assert lake.refused("DELETE", "orders", "tags", "audit")["code"] == 404
    assert lake.refused("DELETE", "orders", "branches", "main")["code"] == 400
    lake.ok("DELETE", "orders", "tags", "eod/1")
    lake.ok("DELETE", "orders", "branches", "audit")
    assert lake.get("orders", "tags")["tags"] == []
    assert list(lake.table("orders").refs()) == ["main"]


def test_a_table_without_snapshots(lake: TableLake) -> None:
    lake.create("empty")
    answer = lake.get("empty", "snapshots")
    assert (answer["snapshots"], answer["as_of"]["snapshot_id"]) == ([], None)
    assert lake.refused("POST", "empty", "tags", json={"name": "x"})["code"] == 409
