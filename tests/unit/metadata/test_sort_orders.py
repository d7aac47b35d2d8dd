"""add-sort-order, set-default-sort-order."""

from __future__ import annotations

from typing import Any

import pytest

from catalog.errors import Invalid
from catalog.metadata.document import Metadata
from tests.harness.documents import NESTED, commit, sort_field, table


def add(*fields: dict[str, Any], order_id: Any = 1, **more: Any) -> dict[str, Any]:
    return {"action": "add-sort-order", "sort-order": {"order-id": order_id, "fields": list(fields), **more}}


def set_default(id_: int) -> dict[str, Any]:
    return {"action": "set-default-sort-order", "sort-order-id": id_}


def ids(metadata: Metadata) -> list[int]:
    return [order["order-id"] for order in metadata["sort-orders"]]


def test_the_first_real_order_is_1_whatever_the_client_says() -> None:
    made = commit(table(), add(sort_field(2), order_id=40, x=1), set_default(-1))
    assert made["sort-orders"][1] == {"order-id": 1, "fields": [sort_field(2)], "x": 1}
    assert made["default-sort-order-id"] == 1
    assert ids(commit(made, add(sort_field(3), order_id=1))) == [0, 1, 2]


def test_an_equal_order_is_used_again() -> None:
    made = commit(table(), add(sort_field(2)), set_default(-1))
    unsorted = commit(made, add(order_id=0), set_default(-1))
    assert unsorted["default-sort-order-id"] == 0
    again = commit(unsorted, add(sort_field(2), order_id=12), set_default(12))
    assert again["default-sort-order-id"] == 1
    assert ids(again) == [0, 1]


def test_unsorted_is_always_0() -> None:
    made = table(2, write_order={"order-id": 1, "fields": [sort_field(1)]})
    assert ids(made) == [1]
    after = commit(made, add(order_id=7), set_default(-1))
    assert ids(after) == [1, 0]
    assert after["default-sort-order-id"] == 0


def test_directions_are_stored_as_the_spec_spells_them() -> None:
    loud = sort_field(2) | {"direction": "DESC", "null-order": "NULLS-LAST", "x": 1}
    made = commit(table(), add(loud))
    assert made["sort-orders"][1]["fields"] == [loud | {"direction": "desc", "null-order": "nulls-last"}]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ([sort_field(99)], "Cannot find source column for sort field"),
        ([sort_field(1, "hour")], "Invalid source type int for transform: hour"),
        ([sort_field(2)], "Cannot sort by non-primitive source field: place"),
        ([sort_field(1) | {"direction": "up"}], "fields[0].direction must be one of asc, desc"),
        ([sort_field(1) | {"null-order": "first"}], "fields[0].null-order must be one of"),
        ([{"source-id": 1, "transform": "identity"}], "fields[0].direction is missing"),
        ([sort_field(1) | {"transform": 1}], "fields[0].transform must be a string"),
    ],
)
def test_a_wrong_order_is_refused_with_a_reason(fields: list[Any], message: str) -> None:
    with pytest.raises(Invalid) as refused:
        commit(table(2, NESTED), add(*fields))
    assert message in refused.value.message


def test_a_default_order_must_exist() -> None:
    with pytest.raises(Invalid, match="Cannot set last added sort order: no sort order has been added"):
        commit(table(), set_default(-1))
    with pytest.raises(Invalid, match="unknown sort order: 3"):
        commit(table(), set_default(3))
