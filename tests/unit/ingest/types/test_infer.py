"""The type of a column whose producer declares none."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.types.arrays import column_array
from ingest.types.numbers import infer_type


def list_of(element: str) -> dict[str, Any]:
    return {"type": "list", "element": element, "element-required": False}


@pytest.mark.parametrize(
    ("values", "type_"),
    [
        ([], None),
        ([None, None], None),
        ([True, None], "boolean"),
        ([1, None, -5], "long"),
        ([2**63 - 1, -(2**63)], "long"),
        ([1, 2**63], "decimal(38,0)"),
        ([10**38 - 1], "decimal(38,0)"),
        ([10**38], "string"),
        ([-(10**38)], "string"),
        ([1.5], "double"),
        ([1, 1.5], "double"),
        ([1.5, 2**70], "double"),
        ([Decimal("0.1234567890123456789")], "double"),
        (["a"], "string"),
        (["2024-02-29"], "string"),
        (["1"], "string"),
        ([{"a": 1}], "string"),
        ([[1, 2]], list_of("long")),
        ([["a"], None, [], ["b", None]], list_of("string")),
        ([[1], [1.5]], list_of("double")),
        ([[True, False]], list_of("boolean")),
        ([[2**64]], list_of("decimal(38,0)")),
        ([[1, "a"]], "string"),
        ([[1], ["a"]], "string"),
        ([[True, 1]], "string"),
        ([[[1]]], "string"),
        ([[{"a": 1}]], "string"),
        ([[]], "string"),
        ([[None]], "string"),
        ([[1], {"a": 1}], "string"),
        ([[1], "a"], "string"),
        ([{"a": 1}, "b"], "string"),
        ([None, 1, "a"], "long"),
        (["a", 1], "string"),
        ([True, 1], "boolean"),
        ([1, True], "long"),
        ([1, "x", 2.5], "double"),
    ],
)
def test_inference(values: list[Any], type_: Any) -> None:
    assert infer_type(values) == type_


def test_the_first_value_decides_and_the_others_are_refused() -> None:
    values = [None, 7, "eight", True, "9"]
    array, unfit = column_array(values, infer_type(values) or "", name="n")
    assert array.to_pylist() == [None, 7, None, None, 9]
    assert sorted(unfit) == [2, 3]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@settings(deadline=None)
@given(st.lists(JSON, max_size=6))
def test_values_of_one_kind_always_fit_what_is_inferred_of_them(values: list[Any]) -> None:
    type_ = infer_type(values)
    kinds = {type(value) for value in values if value is not None}
    if type_ is None:
        assert not kinds
        return
    array, unfit = column_array(values, type_)
    assert len(array) == len(values)
    if kinds <= {int, float} or type_ == "string" or kinds in ({bool}, {list}):
        assert not {row: reason for row, reason in unfit.items() if "out of range" not in reason}
