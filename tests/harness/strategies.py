"""Hypothesis strategies: types, schemas, specs and sort orders that are valid, and JSON that is anything but.

`broken(value)` takes a valid piece of JSON and spoils it in one place: what a fuzzer of a request wants.
"""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import strategies as st

JsonObject = dict[str, Any]

NAMES = st.text("abcdefghijklmnopqrstuvwxyzåß🧊 _-", min_size=1, max_size=8)
_PLAIN = (
    *("boolean", "int", "long", "float", "double", "date", "time", "timestamp", "timestamptz"),
    *("string", "uuid", "binary", "fixed[7]", "decimal(9,2)", "decimal(38, 0)"),
)
# Those that PyIceberg reads too; it knows neither variant nor a coordinate system.
_SINCE_V3 = ("timestamp_ns", "timestamptz_ns", "unknown")


def primitive_types(version: int) -> st.SearchStrategy[str]:
    return st.sampled_from(_PLAIN + (_SINCE_V3 if version >= 3 else ()))


def _named(type_: Any, name: str, required: bool, doc: str | None) -> JsonObject:
    made = {"id": 0, "name": name, "required": required and type_ != "unknown", "type": type_}
    return made if doc is None else made | {"doc": doc}


def _structs(types: st.SearchStrategy[Any], max_size: int) -> st.SearchStrategy[JsonObject]:
    fields = st.builds(_named, types, NAMES, st.booleans(), st.none() | st.text(max_size=5))
    return st.builds(
        lambda fields: {"type": "struct", "fields": fields},
        st.lists(fields, max_size=max_size, unique_by=lambda field: field["name"]),
    )


def _lists(types: st.SearchStrategy[Any]) -> st.SearchStrategy[JsonObject]:
    return st.builds(
        lambda element: {"type": "list", "element-id": 0, "element": element, "element-required": False},
        types,
    )


def _maps(types: st.SearchStrategy[Any]) -> st.SearchStrategy[JsonObject]:
    keys = {"type": "map", "key-id": 0, "value-id": 0, "value-required": False}
    return st.builds(lambda key, value: keys | {"key": key, "value": value}, st.just("string"), types)


def types(version: int) -> st.SearchStrategy[Any]:
    """Any type: a string, or an object for a nested one. Ids are all 0 until `numbered`."""
    return st.recursive(
        primitive_types(version),
        lambda inner: st.one_of(_structs(inner, 3), _lists(inner), _maps(inner)),
        max_leaves=6,
    )


def numbered(type_: Any, ids: Any) -> Any:
    """The type with ids drawn from the iterator, each once."""
    if isinstance(type_, str):
        return type_
    if type_["type"] == "struct":
        fields = [
            field | {"id": next(ids), "type": numbered(field["type"], ids)} for field in type_["fields"]
        ]
        return type_ | {"fields": fields}
    if type_["type"] == "list":
        return type_ | {"element-id": next(ids), "element": numbered(type_["element"], ids)}
    return type_ | {"key-id": next(ids), "value-id": next(ids), "value": numbered(type_["value"], ids)}


@st.composite
def schemas(draw: st.DrawFn, version: int = 2) -> JsonObject:
    """A valid schema with unique ids in no particular order."""
    made = draw(_structs(types(version), 6))
    ids: list[int] = draw(st.permutations(range(200)))
    schema: JsonObject = numbered(made, iter(ids))
    candidates = [
        field["id"]
        for field in schema["fields"]
        if field["required"] and isinstance(field["type"], str) and field["type"] not in ("float", "double")
    ]
    has_identifiers: bool = draw(st.booleans())
    if candidates and has_identifiers:
        schema["identifier-field-ids"] = draw(st.lists(st.sampled_from(candidates), unique=True))
    return schema


def _top_level(schema: JsonObject) -> list[JsonObject]:
    return [field for field in schema["fields"] if isinstance(field["type"], str)]


@st.composite
def specs(draw: st.DrawFn, schema: JsonObject) -> JsonObject:
    """A partition spec over the schema's top-level columns, without field ids."""
    columns = _top_level(schema)
    chosen = draw(st.lists(st.sampled_from(columns), max_size=3)) if columns else []
    transform = st.sampled_from(("identity", "void", "zorder[4]"))
    fields = [
        {"source-id": column["id"], "transform": draw(transform), "name": f"p{index}:{column['name']}"}
        for index, column in enumerate(chosen)
    ]
    return {"fields": fields}


@st.composite
def sort_orders(draw: st.DrawFn, schema: JsonObject) -> JsonObject:
    columns = _top_level(schema)
    chosen = draw(st.lists(st.sampled_from(columns), max_size=3)) if columns else []
    fields = [
        {
            "source-id": column["id"],
            "transform": "identity",
            "direction": draw(st.sampled_from(("asc", "desc"))),
            "null-order": draw(st.sampled_from(("nulls-first", "nulls-last"))),
        }
        for column in chosen
    ]
    return {"order-id": draw(st.integers(0, 9)), "fields": fields}


def _deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


WRONG_VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from((-1, 0, 1, 2**31, 2**63, 2**70, -(2**63), -(2**70), 1.5, float("inf"), float("nan"))),
    st.sampled_from(("", "x", "\x00", "main", "struct", "list", "decimal(99,1)", "unknown", "é" * 2_000)),
    st.sampled_from(([], {}, [None], [{}], {"": None}, [[]])),
    st.builds(_deep, st.sampled_from((3, 100, 900))),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
        max_leaves=5,
    ),
)


def json_paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path of every value inside a JSON value, including itself."""
    found = [path]
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            found += json_paths(inner, (*path, key))
    return found


@st.composite
def broken(draw: st.DrawFn, value: Any) -> Any:
    """The value with one part replaced by a wrong value, or removed."""
    path = draw(st.sampled_from(json_paths(value)))
    wrong = draw(WRONG_VALUES)
    if not path:
        return wrong
    spoiled = copy.deepcopy(value)
    inside = spoiled
    for key in path[:-1]:
        inside = inside[key]
    if draw(st.booleans()):
        del inside[path[-1]]
    else:
        inside[path[-1]] = wrong
    return spoiled
