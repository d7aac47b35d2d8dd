"""The view `<table>__history`: created with the setting, changed with the columns, dropped with the table."""

from __future__ import annotations

from typing import Any

from tests.contract.ingest.sources.control_lake import ControlLake, event

ORDERS = "namespaces/shop/tables/orders/ingest"
VIEW = "/v1/main/namespaces/shop/views/orders__history"


def load(lake: ControlLake) -> dict[str, Any] | None:
    answer = lake.client.get(VIEW)
    assert answer.status_code in (200, 404), answer.text
    found: dict[str, Any] = answer.json()
    return found["metadata"] if answer.status_code == 200 else None


def columns(view: dict[str, Any]) -> list[str]:
    [version] = [v for v in view["versions"] if v["version-id"] == view["current-version-id"]]
    [schema] = [s for s in view["schemas"] if s["schema-id"] == version["schema-id"]]
    return [field["name"] for field in schema["fields"]]


def test_the_view_follows_its_table(lake: ControlLake) -> None:
    lake.call("PUT", ORDERS, {"history-view": True})
    assert load(lake) is None  # there is no changes table yet
    lake.send(event(1, "shop.orders", id=1, item="pen"))
    lake.land()
    lake.ingest.housekeeping.once()
    view = load(lake)
    assert view is not None
    about = ["_operation", "_source", "_position", "_commit_timestamp", "_valid_from", "_valid_to"]
    assert columns(view) == ["id", "item", *about]
    [version] = view["versions"]
    assert {one["dialect"] for one in version["representations"]} == {"spark", "trino"}
    lake.ingest.housekeeping.once()
    assert load(lake) == view
    lake.send(event(2, "shop.orders", id=2, item="ink", note="new"))
    lake.land()
    lake.ingest.housekeeping.once()
    changed = load(lake)
    assert changed is not None
    assert columns(changed) == ["id", "item", "note", *about]
    assert changed["view-uuid"] == view["view-uuid"]
    lake.call("PUT", ORDERS, {"history-view": False})
    assert load(lake) is None
    lake.call("PUT", ORDERS, {"history-view": True})
    assert load(lake) is not None
    for table in ("orders", "orders__changes"):
        lake.client.delete(f"/v1/main/namespaces/shop/tables/{table}").raise_for_status()
    lake.ingest.housekeeping.once()
    assert load(lake) is None


def test_a_table_of_that_name_stays(lake: ControlLake) -> None:
    lake.send(event(1, "shop.orders", id=1), event(2, "shop.orders__history", id=1))
    lake.land()
    answer = lake.call("PUT", ORDERS, {"history-view": True}, status=409)
    assert "rename or drop it" in answer["error"]["message"]
    lake.ingest.housekeeping.once()
    assert lake.client.get("/v1/main/namespaces/shop/tables/orders__history").status_code == 200
