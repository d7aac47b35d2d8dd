"""The schema plan: creating, adding, widening, refusing; checked with the catalog's engine and PyIceberg."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.schema import Schema

from catalog.errors import Invalid
from catalog.metadata.commit import apply
from catalog.metadata.invariants import violations
from ingest.change import Change, Declared
from ingest.staging.targets import create_table_body, schema_updates
from ingest.types.schema_plan import ROW_ID, Policy, SchemaPlan, plan, policy_violations
from tests.unit.ingest.types.changes import (
    STAMP,
    created,
    declared,
    delete,
    highest_id,
    insert,
    planned,
    truncate,
    update,
)


def schema_of(metadata: dict[str, Any]) -> dict[str, Any]:
    current = metadata["current-schema-id"]
    found: dict[str, Any] = next(s for s in metadata["schemas"] if s["schema-id"] == current)
    return found


def table(**types: Any) -> dict[str, Any]:
    """The schema of a table with these columns and the added one."""
    return schema_of(created(planned([insert({}, declared=declared(types))])))


def types(found: SchemaPlan) -> dict[str, Any]:
    return {column.name: column.type for column in found.columns}


def committed(existing: dict[str, Any], found: SchemaPlan) -> dict[str, Any]:
    """The metadata after the plan's commit."""
    assert found.schema is not None
    body = schema_updates(existing, found.schema)
    changed = apply(existing, body["requirements"], body["updates"], now_ms=2)
    assert not violations(changed)
    return changed


def test_a_new_table_has_the_row_columns_then_the_added_ones() -> None:
    found = planned([insert({"name": "Ada", "id": 1, "score": 0.5, "at": None})])
    assert found.schema == {
        "type": "struct",
        "schema-id": 0,
        "fields": [
            {"id": 1, "name": "name", "required": False, "type": "string"},
            {"id": 2, "name": "id", "required": True, "type": "long"},
            {"id": 3, "name": "score", "required": False, "type": "double"},
            {"id": 4, "name": "_commit_timestamp", "required": False, "type": "timestamptz"},
        ],
        "identifier-field-ids": [2],
    }
    assert [(c.name, c.required) for c in found.columns] == [("name", False), ("id", True), ("score", False)]
    assert not found.refused  # "at" is made when a value comes


def test_the_catalog_keeps_the_ids_of_the_plan() -> None:
    shapes = {
        "id": "long",
        "point": {
            "type": "struct",
            "fields": [{"name": "x", "type": "double"}, {"name": "tags", "type": "string"}],
        },
        "tags": {"type": "list", "element": {"type": "map", "key": "string", "value": "date"}},
        "last": "int",
    }
    found = planned([insert({}, declared=declared(shapes))])
    assert schema_of(created(found)) == found.schema
    assert Schema.model_validate(found.schema).find_field("tags.element.value").field_id == highest_id(
        found.schema
    )


def test_the_producers_order_and_types_win() -> None:
    row = {"b": "MDk=", "a": 1, "id": 5, "more": "x"}
    found = planned(
        [
            insert(
                row, declared=declared({"id": "int", "a": "double", "b": "decimal(9,2)"}, b="decimal-base64")
            )
        ]
    )
    assert types(found) == {"id": "int", "a": "double", "b": "decimal(9,2)", "more": "string"}
    assert [column.encoding for column in found.columns] == [None, None, "decimal-base64:2", None]


def test_a_declared_column_is_made_without_a_value() -> None:
    found = planned([delete({"id": 1}, declared=declared({"id": "int", "note": "string"}))])
    assert types(found) == {"id": "int", "note": "string"}


def test_types_that_differ_within_a_batch_are_merged() -> None:
    changes = [insert({"id": 1}, declared=declared({"id": t})) for t in ("int", "long", "int")]
    assert types(planned(changes)) == {"id": "long"}
    changes = [insert({"id": 1}, declared=declared({"id": t})) for t in ("int", "string")]
    assert types(planned(changes)) == {"id": "int"}


def test_types_that_spark_does_not_read_are_not_made() -> None:
    found = planned([insert({}, declared=declared({"id": "int", "t": "time", "n": "timestamp_ns"}, t="us"))])
    assert types(found) == {"id": "int", "t": "string", "n": "timestamp"}
    assert found.columns[1].encoding == "time-us"


def test_a_type_that_is_none_is_refused() -> None:
    found = planned([insert({"id": 1, "x": 1}, declared=declared({"x": "integer"}))])
    assert types(found) == {"id": "long"}
    assert "integer" in found.refused["x"]


def test_unknown_counts_as_not_declared() -> None:
    found = planned([insert({"id": 1, "x": 1.5}, declared=declared({"id": "int", "x": "unknown"}))])
    assert types(found) == {"id": "int", "x": "double"}
    found = planned([insert({"id": 1}, declared=declared({"id": "int", "x": "unknown"}))])
    assert types(found) == {"id": "int"}


@pytest.mark.parametrize("type_", ["float", "double", {"type": "list", "element": "int"}])
def test_a_key_that_cannot_be_an_identifier(type_: Any) -> None:
    found = planned([insert({}, declared=declared({"a": "int", "b": type_}))], key=["a", "b"])
    assert found.schema is not None
    assert "identifier-field-ids" not in found.schema
    assert [column.required for column in found.columns] == [True, True]
    assert created(found)


def test_without_key_everything_is_optional() -> None:
    found = planned([insert({"id": 1})], key=[])
    assert found.schema is not None
    assert not any(field["required"] for field in found.schema["fields"])
    assert "identifier-field-ids" not in found.schema


def test_the_key_of_a_delete_alone_makes_its_column() -> None:
    found = planned([delete({"id": 7, "name": "gone"})])
    assert types(found) == {"id": "long"}


def test_the_key_of_a_partial_update_is_in_before() -> None:
    found = planned([update({"name": "x"}, before={"id": 7})])
    assert types(found) == {"name": "string", "id": "long"}


def test_a_truncate_shows_no_columns() -> None:
    assert types(planned([truncate()])) == {}


@pytest.mark.parametrize("key", [ROW_ID, "id"])
def test_rows_that_only_have_a_name(key: str) -> None:
    found = planned([insert({"v": 1}, row_id="r-1"), delete(None, row_id="r-2")], key=[key])
    assert types(found) == {"v": "long", key: "string"}
    assert found.schema is not None
    assert found.schema["identifier-field-ids"] == [2]


def test_new_columns_are_added_at_the_end() -> None:
    metadata = created(planned([insert({"id": 1})]))
    known = schema_of(metadata)
    row = {"new": "x", "id": 2, "deep": {}}
    deep = {"type": "struct", "fields": [{"name": "a", "type": "int"}]}
    found = planned([insert(row, declared=declared({"deep": deep}))], known, last_column_id=9)
    assert found.schema is not None
    assert found.schema["fields"][:2] == known["fields"]
    assert [(f["name"], f["id"]) for f in found.schema["fields"][2:]] == [("deep", 10), ("new", 11)]
    assert found.schema["fields"][2]["type"]["fields"][0]["id"] == 12
    assert [column.name for column in found.columns] == ["id", "deep", "new"]
    assert found.schema["identifier-field-ids"] == known["identifier-field-ids"]


def test_a_plan_that_changes_nothing_has_no_schema() -> None:
    assert planned([insert({"id": 1})], table(id="long", gone="string")).schema is None


def test_columns_that_the_source_lost_stay() -> None:
    found = planned([insert({"id": 1})], table(id="long", gone="string"))
    assert types(found) == {"id": "long", "gone": "string"}


@pytest.mark.parametrize(
    ("old", "new", "then"),
    [
        ("int", "long", "long"),
        ("float", "double", "double"),
        ("decimal(9,2)", "decimal(12,2)", "decimal(12,2)"),
        ("long", "int", "long"),
        ("long", "string", "long"),
        ("decimal(9,2)", "decimal(9,4)", "decimal(9,2)"),
        ("string", "timestamptz", "string"),
        ("long", "nonsense", "long"),
    ],
)
def test_declared_types_widen_as_the_spec_allows(old: str, new: str, then: str) -> None:
    changes = [insert({"id": 1}, declared=declared({"id": "long", "x": new}))]
    found = planned(changes, table(id="long", x=old))
    assert types(found)["x"] == then
    assert (found.schema is None) == (then == old)
    assert types(planned(changes, table(id="long", x=old), policy="freeze"))["x"] == old


def test_undeclared_values_widen_only_where_they_must() -> None:
    known = table(id="int", x="float")
    assert planned([insert({"id": 5, "x": 0.1})], known).schema is None
    assert types(planned([insert({"id": 2**31, "x": 1e39})], known)) == {"id": "long", "x": "double"}


def test_a_struct_grows_where_it_is_declared_to() -> None:
    def struct(**fields: Any) -> dict[str, Any]:
        return {"type": "struct", "fields": [{"name": n, "type": t} for n, t in fields.items()]}

    metadata = created(
        planned([insert({}, declared=declared({"id": "int", "s": struct(a="int", b=struct(c="int"))}))])
    )
    wanted = struct(b=struct(c="long", d="string"), e={"type": "list", "element": "int"})
    found = planned([insert({}, declared=declared({"s": wanted}))], schema_of(metadata))
    names = Schema.model_validate(schema_of(committed(metadata, found))).column_names
    assert set(names) >= {"s.a", "s.b.c", "s.b.d", "s.e", "s.e.element"}


def test_names_that_mean_two_things_are_refused() -> None:
    struct = {"type": "struct", "fields": [{"name": "b", "type": "int"}]}
    found = planned([insert({"id": 1, "a.b": 1}, declared=declared({"a": struct}))])
    assert set(types(found)) == {"id", "a"}
    assert "a.b" in found.refused
    known = schema_of(created(planned([insert({"id": 1, "a.b": 1})])))
    found = planned([insert({}, declared=declared({"a": struct}))], known)
    assert set(types(found)) == {"id", "a.b"}
    assert "a" in found.refused


@pytest.mark.parametrize(
    "name", ["", "_commit_timestamp", "_calve_seq", "_calve_anything", "_pos", "_file", "_row_id", "\ud800"]
)
def test_names_that_no_row_column_may_have(name: str) -> None:
    for existing in (None, table(id="long")):
        found = planned([insert({"id": 1, name: "mine"})], existing)
        assert types(found) == {"id": "long"}
        assert found.refused[name]
        assert STAMP[0] not in types(found)


def test_names_of_the_sister_table_can_be_kept_free() -> None:
    found = plan(
        None,
        [insert({"id": 1, "_before": 2})],
        policy="evolve",
        key=["id"],
        extra=[STAMP],
        last_column_id=0,
        reserved=["_before"],
    )
    assert types(found) == {"id": "long"}
    assert "_before" in found.refused


def test_an_added_column_that_is_missing_is_made_whatever_the_policy() -> None:
    known = schema_of(created(planned([insert({"id": 1})], extra=[])))
    policies: list[Policy] = ["evolve", "freeze", "reject"]
    for policy in policies:
        found = planned([insert({"id": 1})], known, policy=policy)
        assert found.schema is not None
        assert found.schema["fields"][-1]["name"] == STAMP[0]


def test_an_added_column_with_another_type_is_an_error() -> None:
    known = schema_of(created(planned([insert({"id": 1, STAMP[0]: "x"})], extra=[])))
    with pytest.raises(Invalid, match="_commit_timestamp"):
        planned([insert({"id": 1})], known)


def test_every_policy_takes_the_columns_of_a_new_table() -> None:
    policies: list[Policy] = ["evolve", "freeze", "reject"]
    for policy in policies:
        found = planned([insert({"id": 1, "x": 1})], policy=policy)
        assert set(types(found)) == {"id", "x"}
        assert policy_violations([insert({"id": 1, "x": 1})], found) == {}


def test_freeze_leaves_unknown_columns_out_and_names_them() -> None:
    changes = [insert({"id": 1, "new": 5})]
    found = planned(changes, table(id="long"), policy="freeze")
    assert found.schema is None
    assert types(found) == {"id": "long"}
    assert "freeze" in found.refused["new"]
    assert policy_violations(changes, found) == {}


def test_reject_names_each_change_that_does_not_agree() -> None:
    known = table(id="int", name="string")
    changes = [
        insert({"id": 1, "name": "a"}),
        insert({"id": 2, "extra": None}),
        insert({"id": 3}, declared=declared({"id": "int", "name": "string"})),
        insert({"id": 4}, declared=declared({"id": "long"})),
        insert({"id": 5}, declared=declared({"id": "string"})),
        insert({"id": 6}, declared=declared({"id": "nonsense"})),
        delete({"id": 7, "extra": 1}),
        truncate(),
    ]
    found = planned(changes, known, policy="reject")
    assert found.schema is None
    reasons = policy_violations(changes, found)
    assert sorted(reasons) == [1, 3, 4, 5]
    assert '"extra"' in reasons[1]
    assert "long" in reasons[3]


def test_reject_takes_what_is_narrower_than_the_table() -> None:
    known = table(id="long", x="decimal(12,4)", t="time", d="double")
    changes = [
        insert({"id": 1}, declared=declared({"id": "int", "x": "decimal(9,2)", "t": "time", "d": "float"}))
    ]
    assert policy_violations(changes, planned(changes, known, policy="reject")) == {}


def test_names_that_differ_in_case_only() -> None:
    metadata = created(planned([insert({"id": 1, "Name": "a", "name": 2})]))
    found = planned([insert({"id": 1, "NAME": True})], schema_of(metadata))
    assert types(found) == {"id": "long", "Name": "string", "name": "long", "NAME": "boolean"}
    assert not violations(committed(metadata, found))


def test_strange_names_and_many_columns() -> None:
    row: dict[str, Any] = {
        "id": 1,
        "a.b": 1,
        "with space": 1,
        "größe 🧊": 1,
        '"quoted"': 1,
        "semi;colon": 1,
        "1": 1,
    }
    row |= {f"c{n}": n for n in range(500)}
    found = planned([insert(row)])
    assert list(types(found)) == list(row)
    assert not violations(created(found))
    assert len(Schema.model_validate(found.schema).fields) == len(row) + 1


def test_a_column_that_cannot_be_staged_is_left_alone() -> None:
    known = table(id="long")
    known["fields"].append({"id": 9, "name": "v", "required": False, "type": "variant"})
    found = planned([insert({"id": 1, "v": {}})], known)
    assert types(found) == {"id": "long"}
    assert "variant" in found.refused["v"]
    assert found.schema is None


def test_an_update_of_the_schema_fails_if_it_changed_meanwhile() -> None:
    metadata = created(planned([insert({"id": 1})]))
    found = planned([insert({"id": 1, "b": 1})], schema_of(metadata))
    changed = committed(metadata, found)
    assert found.schema is not None
    body = schema_updates(metadata, found.schema)
    with pytest.raises(Exception, match="Requirement failed"):
        apply(changed, body["requirements"], body["updates"], now_ms=3)


def test_a_create_request() -> None:
    body = create_table_body("t", {"type": "struct", "fields": []}, {"fields": []}, {"a": "b"})
    assert body["name"] == "t"
    assert body["partition-spec"] == {"fields": []}
    assert body["properties"] == {"a": "b"}
    assert "partition-spec" not in create_table_body("t", {"type": "struct", "fields": []})


NAMES = st.sampled_from(["id", "a", "A", "a.b", "b", "b.element", "_pos", "", "x y", "_commit_timestamp"])
PRIMITIVES = st.sampled_from(
    [
        "int",
        "long",
        "float",
        "double",
        "decimal(9,2)",
        "decimal(12,2)",
        "string",
        "time",
        "date",
        "unknown",
        "bad",
    ]
)
NESTED = st.recursive(
    PRIMITIVES,
    lambda inner: (
        st.builds(lambda e: {"type": "list", "element": e}, inner)
        | st.builds(lambda v: {"type": "map", "key": "string", "value": v}, inner)
        | st.builds(
            lambda fields: {"type": "struct", "fields": [{"name": n, "type": t} for n, t in fields.items()]},
            st.dictionaries(st.sampled_from(["b", "c", "element"]), inner, max_size=3),
        )
    ),
    max_leaves=4,
)
VALUES = (
    st.none()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=3)
    | st.booleans()
    | st.just({"a": 1})
)
CHANGES = st.builds(
    lambda operation, row, types_: Change(
        0,
        ("t",),
        operation,
        before=row if operation == "delete" else None,
        after=None if operation == "delete" else row,
        declared=None if types_ is None else Declared(types_),
    ),
    st.sampled_from(["insert", "update", "delete", "read"]),
    st.dictionaries(NAMES, VALUES, max_size=4),
    st.none() | st.dictionaries(NAMES, NESTED, max_size=3),
)


@settings(deadline=None)
@given(
    st.lists(st.lists(CHANGES, max_size=3), min_size=1, max_size=4),
    st.sampled_from([["id"], ["id", "b"], []]),
)
def test_whatever_comes_the_catalog_takes_the_plan(batches: list[list[Change]], key: list[str]) -> None:
    metadata = created(planned(batches[0], key=key))
    for batch in batches[1:]:
        known = schema_of(metadata)
        found = planned(batch, known, key=key, last_column_id=metadata["last-column-id"])
        if found.schema is not None:
            metadata = committed(metadata, found)
        then = schema_of(metadata)
        assert [f["name"] for f in then["fields"]][: len(known["fields"])] == [
            f["name"] for f in known["fields"]
        ]
        Schema.model_validate(then)
        assert planned(batch, then, key=key).schema is None  # the second look finds nothing to do
