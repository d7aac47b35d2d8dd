"""Paused sources and tables: changes are acknowledged, wait, and land when they may."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.ingest.sources.control_lake import ControlLake, event
from tests.contract.ingest.staging_lake import WAREHOUSE

ORDERS = "namespaces/shop/tables/orders/ingest"


def leased(lake: ControlLake) -> dict[str, Any] | None:
    return lake.ingest.job_service.lease("w", [WAREHOUSE], {}, "anonymous")


def test_changes_of_a_paused_table_are_acknowledged_and_wait_with_a_reason(lake: ControlLake) -> None:
    lake.call("POST", f"{ORDERS}/pause", {"reason": "the schema is being changed"})
    lake.send(event(1, "shop.orders", id=1), event(2, "shop.customers", id=2))
    job = lake.land()
    assert [table["name"] for table in job["tables"]] == ["customers"]
    assert leased(lake) is None
    status = lake.client.get("/status").json()["landing"]
    assert status["tables"]["shop.orders"]["paused"]["reason"] == "the schema is being changed"
    assert status["tables"]["shop.orders"]["pending-events"] == 1
    assert status["paused"]["tables"].keys() == {"shop.orders"}
    shown = lake.call("POST", f"{ORDERS}/resume")
    assert (shown["table"], shown["state"]) == ("shop.orders", "running")
    assert [table["name"] for table in lake.land()["tables"]] == ["orders"]


def test_a_paused_source_acknowledges_and_waits(lake: ControlLake) -> None:
    shown = lake.call("POST", "sources/shop/pause", {"reason": "a migration"})
    assert (shown["state"], shown["reason"]) == ("paused", "a migration")
    lake.send(event(1, "shop.orders", id=1))
    lake.send(event(1, "crm.people", id=1), source="crm")
    assert [table["name"] for table in lake.land()["tables"]] == ["people"]
    assert leased(lake) is None
    assert lake.call("GET", "sources/shop")["pending-events"] == 1
    status = lake.client.get("/status").json()["landing"]
    assert status["paused"]["sources"]["shop"]["reason"] == "a migration"
    assert "paused" in status["tables"]["shop.orders"]["waits"]
    assert lake.call("POST", "sources/shop/resume")["state"] == "running"
    assert [table["name"] for table in lake.land()["tables"]] == ["orders"]
    assert lake.call("GET", "sources/shop")["pending-events"] == 0
    lake.call("POST", "sources/nobody/resume", status=404)


def test_skipped_changes_are_dead_letters_that_can_be_replayed(lake: ControlLake) -> None:
    assert "pause it first" in lake.call("POST", f"{ORDERS}/skip", status=409)["error"]["message"]
    lake.call("POST", f"{ORDERS}/pause")
    lake.send(event(1, "shop.orders", id=1))
    lake.send(event(2, "shop.orders", id=2))
    skipped = lake.call("POST", f"{ORDERS}/skip")
    assert skipped["skipped"] == 1
    assert lake.call("POST", f"{ORDERS}/skip", {"up-to": skipped["landed-id"]})["skipped"] == 0
    [letter] = lake.call("GET", "dead-letters")["dead-letters"]
    assert (letter["code"], letter["state"], letter["table"]) == ("skipped", "open", ["shop", "orders"])
    lake.call("POST", f"{ORDERS}/resume")
    assert [row["id"] for row in lake.land()["rows"]["orders"]] == [2]
    assert lake.call("POST", "dead-letters/replay", {})["replayed"] == 1
    assert [row["id"] for row in lake.land()["rows"]["orders"]] == [1]


def test_nothing_is_skipped_while_a_batch_is_landed(lake: ControlLake) -> None:
    lake.send(event(1, "shop.orders", id=1))
    job = lake.lease()
    lake.call("POST", f"{ORDERS}/pause")
    assert "being landed" in lake.call("POST", f"{ORDERS}/skip", status=409)["error"]["message"]
    assert lake.letters() == []
    lake.publish(job)
    assert lake.call("POST", f"{ORDERS}/skip")["skipped"] == 0


def change(sequence: int, operation: str, row: dict[str, Any]) -> dict[str, Any]:
    found = {**event(sequence, "shop.orders", **row), "operation": operation}
    if operation == "DELETE":
        found["before"] = found.pop("after")
    return found


def mirror(lake: ControlLake) -> list[dict[str, Any]]:
    return sorted(lake.mirrors["orders"].rows.values(), key=lambda row: int(row["id"]))


def test_a_soft_delete_keeps_the_row(lake: ControlLake) -> None:
    lake.call("PUT", ORDERS, {"deletes": "soft"})
    lake.send(change(1, "INSERT", {"id": 1, "item": "pen"}), change(2, "INSERT", {"id": 2, "item": "ink"}))
    lake.land()
    lake.send(change(3, "DELETE", {"id": 1}), change(4, "UPDATE", {"id": 2, "item": "nib"}))
    lake.land()
    assert mirror(lake) == [
        {"id": 1, "item": "pen", "_is_deleted": True},
        {"id": 2, "item": "nib", "_is_deleted": False},
    ]
    lake.send(change(5, "INSERT", {"id": 1, "item": "cap"}))
    lake.land()
    assert mirror(lake)[0] == {"id": 1, "item": "cap", "_is_deleted": False}


@pytest.mark.parametrize("policy", ["apply", "ignore", "hold"])
def test_a_truncate_is_applied_ignored_or_held(lake: ControlLake, policy: str) -> None:
    lake.call("PUT", ORDERS, {"truncate": policy})
    lake.send(change(1, "INSERT", {"id": 1}))
    lake.land()
    truncate = {"sequence": 2, "timestamp": 1, "operation": "TRUNCATE", "table": "shop.orders", "rowId": ""}
    lake.send(truncate, change(3, "INSERT", {"id": 2}))
    if policy == "hold":
        assert leased(lake) is None
        stalled = lake.client.get("/status").json()["landing"]["tables"]["shop.orders"]["stalled"]
        assert "set truncate to apply or ignore" in stalled
        lake.call("PUT", ORDERS, {"truncate": "ignore"})
    lake.land()
    assert [row["id"] for row in mirror(lake)] == ([2] if policy == "apply" else [1, 2])


def test_settings_that_exclude_each_other_are_refused(lake: ControlLake) -> None:
    answer = lake.call("PUT", ORDERS, {"deletes": "soft", "policy": "freeze"}, status=400)
    assert "set policy to evolve" in answer["error"]["message"]
    lake.call("PUT", ORDERS, {"truncate": "maybe"}, status=400)
