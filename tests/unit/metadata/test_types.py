"""Type strings, nested types and default values."""

from __future__ import annotations

from typing import Any

import pytest

from catalog.errors import Invalid
from catalog.metadata import types
from catalog.metadata.schemas import index_schema, same_schema
from catalog.metadata.types import primitive
from catalog.metadata.validation import FIELD_ID_MAX, SCHEMA_DEPTH_MAX, SCHEMA_FIELDS_MAX
from tests.harness.documents import DEFAULTS, NESTED, TYPES, field, struct


@pytest.mark.parametrize("text", [*TYPES[1], *TYPES[3], "decimal( 9 , 2 )", "fixed[ 3 ]", "geometry()"])
def test_a_type_of_the_spec(text: str) -> None:
    assert primitive(text).version_since == (1 if text in TYPES[1] or text[0] in "df" else 3)


@pytest.mark.parametrize(
    "text",
    [
        *("", "INT", "integer", "decimal", "decimal(39,2)", "decimal(2,3)", "decimal(0,0)", "decimal(a,b)"),
        *("fixed", "fixed[]", "fixed[-1]", "fixed[9999999999]", "struct", "list", "map", "varchar(3)"),
        *("geography(srid:4326, flat)", "geometry(a)(b)", "x" * 5_000),
    ],
)
def test_not_a_type_of_the_spec(text: str) -> None:
    with pytest.raises(Invalid):
        primitive(text)


@pytest.mark.parametrize("type_", TYPES[3])
def test_a_type_of_v3_is_refused_before(type_: str) -> None:
    schema = struct(field(1, "a", struct(field(2, "b", type_))))
    with pytest.raises(Invalid) as refused:
        index_schema(schema, 2)
    assert refused.value.message == (
        f"Invalid schema for v2:\n- Invalid type for a.b: {type_} is not supported until v3"
    )
    index_schema(schema, 3)


def test_an_initial_default_needs_v3_and_a_write_default_does_not() -> None:
    index_schema(struct(field(1, "a", "int", **{"write-default": 1})), 2)
    with pytest.raises(Invalid, match="Invalid initial default for a: non-null default"):
        index_schema(struct(field(1, "a", "int", **{"initial-default": 1})), 2)


@pytest.mark.parametrize(("type_", "value"), DEFAULTS.items())
def test_a_default_of_each_type(type_: str, value: Any) -> None:
    types.check_default(type_, value, "at")
    types.check_default(type_, None, "at")


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        *(("boolean", 1), ("int", True), ("int", 2**31), ("int", 1.0), ("long", 2**63), ("long", "1")),
        *(("float", 1), ("float", 1e39), ("double", 1), ("double", float("inf")), ("double", float("nan"))),
        *(("decimal(9,2)", 1.25), ("decimal(9,2)", "1.2"), ("decimal(3,2)", "12.34"), ("decimal(9,2)", "x")),
        *(("decimal(9,2)", "NaN"), ("decimal(9,2)", "1_0.00"), ("decimal(9,2)", "1E999999999"), ("date", 1)),
        *(("date", "2007-02-30"), ("date", "07-02-03"), ("time", "25:00:00"), ("time", "10:00:00+00:00")),
        *(("timestamp", "2007-12-03T10:15:30+00:00"), ("timestamp", "2007-12-03 10:15:30")),
        *(("timestamptz", "2007-12-03T10:15:30"), ("timestamptz", "2007-12-03T10:15:30+01:00")),
        *(
            ("timestamp_ns", 5),
            ("timestamptz_ns", "2007-12-03T10:15:30"),
            ("string", 1),
            ("uuid", "f79c3e09"),
        ),
        *(("fixed[4]", "0001"), ("fixed[1]", "zz"), ("binary", "0"), ("binary", b"00")),
        *(("unknown", 1), ("variant", {}), ("geometry", "POINT (1 1)"), ("geography(srid:1)", "POINT (1 1)")),
    ],
)
def test_not_a_default_of_the_type(type_: str, value: Any) -> None:
    with pytest.raises(Invalid, match="at"):
        types.check_default(type_, value, "at")


def test_the_default_of_a_struct_is_empty() -> None:
    type_ = struct(field(1, "x", "int"))
    types.check_default(type_, {}, "at")
    wrong: list[Any] = [{"1": 1}, [], 0, False]
    for value in wrong:
        with pytest.raises(Invalid, match="must be null or"):
            types.check_default(type_, value, "at")


def test_defaults_of_lists_and_maps_are_checked_inside() -> None:
    list_type = {"type": "list", "element-id": 1, "element": "int", "element-required": False}
    map_type = {
        "type": "map",
        "key-id": 1,
        "key": "string",
        "value-id": 2,
        "value": list_type,
        "value-required": True,
    }
    types.check_default(map_type, {"keys": ["a"], "values": [[1, None]]}, "at")
    for value in ([1], {"keys": ["a"]}, {"keys": ["a"], "values": []}, {"keys": [1], "values": [[]]}):
        with pytest.raises(Invalid):
            types.check_default(map_type, value, "at")
    with pytest.raises(Invalid):
        types.check_default(list_type, ["x"], "at")


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (struct(field(1, "a", "int"), field(1, "b", "int")), "id 1 is used by both"),
        (struct(field(1, "a", "int"), field(2, "a", "int")), "multiple fields for name a: 1 and 2"),
        (
            struct(field(1, "a", struct(field(2, "b", "int"))), field(3, "a.b", "int")),
            "multiple fields for name a.b",
        ),
        (struct(field(1, "", "int")), "fields[0].name must not be empty"),
        (struct(field(-1, "a", "int")), "fields[0].id must be an integer"),
        (struct(field(FIELD_ID_MAX + 1, "a", "int")), "fields[0].id must be an integer"),
        (struct({"id": 1, "name": "a", "type": "int"}), "fields[0].required is missing"),
        (struct(field(1, "a", "int", doc=5)), "fields[0].doc must be a string"),
        (struct(field(1, "a", {"type": "set"})), "fields[0].type: cannot parse type from json"),
        (struct(field(1, "a", {"type": "list", "element": "int"})), "element-id is missing"),
        (struct(field(1, "a", "unknown", required=True)), "required field with unknown type: a"),
        (struct(field(1, "a", "int"), **{"identifier-field-ids": [2]}), "field does not exist"),
        (struct(field(1, "a", "int"), **{"identifier-field-ids": [1]}), "not a required field"),
        (struct(field(1, "a", "double", required=True), **{"identifier-field-ids": [1]}), "float or double"),
        (struct(field(1, "a", struct(), required=True), **{"identifier-field-ids": [1]}), "not a primitive"),
        (
            struct(
                field(1, "a", struct(field(2, "b", "int", required=True))), **{"identifier-field-ids": [2]}
            ),
            "nested in an optional field a",
        ),
        (struct(field(1, "a", "int"), **{"identifier-field-ids": ["1"]}), "identifier-field-ids[0] must be"),
    ],
)
def test_a_wrong_schema_is_refused_with_a_reason(schema: dict[str, Any], message: str) -> None:
    with pytest.raises(Invalid) as refused:
        index_schema(schema, 3)
    assert message in refused.value.message


def test_depth_and_width_are_bounded() -> None:
    type_: Any = "int"
    for id_ in range(SCHEMA_DEPTH_MAX + 2):
        type_ = struct(field(id_, "a", type_))
    with pytest.raises(Invalid, match="levels deep"):
        index_schema(type_)
    with pytest.raises(Invalid, match="more than"):
        index_schema(struct(*(field(id_, f"c{id_}", "int") for id_ in range(SCHEMA_FIELDS_MAX + 1))))


def test_schemas_are_equal_whatever_the_spelling_and_the_id() -> None:
    one = NESTED | {"schema-id": 3, "identifier-field-ids": []}
    assert same_schema(one, NESTED)
    assert same_schema(
        struct(field(1, "a", "decimal(9,2)", doc=None)), struct(field(1, "a", "decimal( 9, 2 )"))
    )
    for other in (
        struct(field(2, "a", "int")),
        struct(field(1, "b", "int")),
        struct(field(1, "a", "long")),
        struct(field(1, "a", "int", required=True)),
        struct(field(1, "a", "int", doc="x")),
        struct(field(1, "a", "int", **{"x-unknown": 1})),
        struct(),
    ):
        assert not same_schema(struct(field(1, "a", "int")), other)


@pytest.mark.parametrize(
    ("transform", "kind", "accepted"),
    [
        *(("identity", "int", True), ("identity", "variant", False), ("identity", "geometry", False)),
        *(("bucket[4]", "uuid", True), ("bucket[4]", "double", False), ("BUCKET[4]", "boolean", False)),
        *(("truncate[4]", "string", True), ("truncate[4]", "date", False), ("hour", "date", False)),
        *(
            ("hour", "timestamp_ns", True),
            ("year", "date", True),
            ("day", "string", False),
            ("void", "int", True),
        ),
        *(("zorder[4]", "double", True), ("anything", "boolean", True)),
    ],
)
def test_what_a_transform_takes(transform: str, kind: str, accepted: bool) -> None:
    assert types.transform_accepts(transform, kind) is accepted


def test_known_transforms_have_one_spelling() -> None:
    assert types.canonical_transform("IDENTITY") == "identity"
    assert types.canonical_transform("Bucket[016]") == "bucket[16]"
    assert types.canonical_transform("ZOrder[4]") == "ZOrder[4]"
    with pytest.raises(Invalid):
        types.canonical_transform("bucket[0]")
