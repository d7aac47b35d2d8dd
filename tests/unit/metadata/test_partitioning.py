"""add-spec, set-default-spec, remove-partition-specs."""

from __future__ import annotations

from typing import Any

import pytest

from catalog.errors import Invalid
from catalog.metadata.document import Metadata
from catalog.metadata.validation import SPEC_FIELDS_MAX
from tests.harness.documents import NESTED, commit, field, partition_field, struct, table

BY_NAME = partition_field(2, "truncate[4]", "name_trunc")
BY_DAY = partition_field(3, "day", "at_day")


def add(*fields: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"action": "add-spec", "spec": {"fields": list(fields), **more}}


def set_default(id_: int) -> dict[str, Any]:
    return {"action": "set-default-spec", "spec-id": id_}


def field_ids(metadata: Metadata) -> list[list[int]]:
    return [[field["field-id"] for field in spec["fields"]] for spec in metadata["partition-specs"]]


def test_a_new_spec_gets_the_next_id_and_its_fields_too() -> None:
    made = commit(table(), add(BY_NAME, BY_DAY, **{"spec-id": 0}), set_default(-1))
    assert made["default-spec-id"] == 1
    assert field_ids(made) == [[], [1000, 1001]]
    assert made["last-partition-id"] == 1001


def test_fields_of_the_same_meaning_keep_their_id() -> None:
    made = commit(table(), add(BY_NAME, BY_DAY))
    made = commit(made, add(partition_field(1, "bucket[4]", "b"), BY_DAY | {"name": "renamed"}))
    assert field_ids(made)[2] == [1002, 1001]


def test_ids_of_the_client_are_kept_and_counted() -> None:
    made = commit(table(), add(BY_DAY | {"field-id": 1007}))
    assert field_ids(made)[1] == [1007]
    assert made["last-partition-id"] == 1007


def test_two_fields_of_one_spec_never_share_an_id() -> None:
    made = commit(table(), add(BY_DAY))
    made = commit(made, add(BY_DAY, BY_DAY | {"name": "again"}))
    assert field_ids(made)[2] == [1000, 1001]


def test_the_last_partition_id_never_falls() -> None:
    made = commit(table(), add(BY_NAME, BY_DAY))
    assert commit(made, add(BY_NAME))["last-partition-id"] == 1001


def test_a_compatible_spec_is_used_again() -> None:
    made = commit(table(), add(BY_DAY), set_default(-1))
    back = commit(made, add(), set_default(-1))
    assert back["default-spec-id"] == 0
    again = commit(back, add(BY_DAY | {"field-id": 4321}, **{"spec-id": 17}), set_default(17))
    assert again["default-spec-id"] == 1
    assert field_ids(again) == [[], [1000]]


def test_an_id_is_never_used_for_another_meaning() -> None:
    made = commit(table(), add(BY_DAY | {"field-id": 1000}))
    with pytest.raises(Invalid, match="partition field id 1000 for name_trunc: it is taken"):
        commit(made, add(BY_NAME | {"field-id": 1000}))
    with pytest.raises(Invalid, match="more than once"):
        commit(made, add(BY_NAME | {"field-id": 1001}, BY_DAY | {"field-id": 1001}))
    voided = commit(made, add(partition_field(3, "void", "at_day", field_id=1000)))
    assert field_ids(voided)[2] == [1000]


def test_v1_numbers_in_sequence_and_keeps_the_old_field_in_step() -> None:
    made = commit(table(1), add(BY_NAME, BY_DAY), set_default(-1))
    assert field_ids(made)[1] == [1000, 1001]
    assert made["partition-spec"] == made["partition-specs"][1]["fields"]
    with pytest.raises(Invalid, match="sequential IDs that are required in v1"):
        commit(made, add(BY_DAY | {"field-id": 1005}))


def test_unknown_fields_and_transforms_survive() -> None:
    unknown = partition_field(1, "ZOrder[4]", "z", x_field=[1])
    made = commit(table(), add(unknown, **{"x-spec": {"a": 1}}))
    assert made["partition-specs"][1] == {
        "spec-id": 1,
        "fields": [unknown | {"field-id": 1000}],
        "x-spec": {"a": 1},
    }


def test_several_sources_need_v3() -> None:
    several = {"source-ids": [1, 2], "transform": "bucketV2[4]", "name": "both"}
    made = commit(table(3), add(several))
    assert made["partition-specs"][1]["fields"] == [several | {"field-id": 1000}]
    with pytest.raises(Invalid, match="source-ids is not supported until v3"):
        commit(table(2), add(several))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            [partition_field(9, "identity", "x")],
            "Cannot find source column for partition field: x identity(9)",
        ),
        ([partition_field(2, "day", "x")], "Invalid source type string for transform: day"),
        ([partition_field(1, "identity", "name")], "sourced from different field in schema: name"),
        ([partition_field(1, "identity", "")], "spec.fields[0].name must not be empty"),
        ([BY_DAY, BY_DAY | {"transform": "hour"}], "Cannot use partition name more than once: at_day"),
        ([BY_DAY | {"field-id": 1000}, BY_NAME], "missing field IDs: 1 missing of 2 fields."),
        ([{"transform": "day", "name": "x"}], "spec.fields[0].source-id is missing"),
        ([BY_DAY | {"field-id": -1}], "spec.fields[0].field-id must be an integer"),
        ([partition_field(1, "bucket[0]", "x")], "the number must be from 1"),
        ([1], "spec.fields[0] must be an object"),
        ([partition_field(1, "void", f"p{i}") for i in range(SPEC_FIELDS_MAX + 1)], "more than"),
    ],
)
def test_a_wrong_spec_is_refused_with_a_reason(fields: list[Any], message: str) -> None:
    with pytest.raises(Invalid) as refused:
        commit(table(), add(*fields))
    assert message in refused.value.message
    assert refused.value.message.startswith("Invalid update 0 (add-spec): ")


def test_a_source_must_be_primitive_and_inside_structs_only() -> None:
    made = table(2, struct(*NESTED["fields"], field(30, "points", {**_LIST_OF_STRUCT})))
    for source, message in ((2, "non-primitive source field"), (8, "Invalid partition field parent: tags")):
        with pytest.raises(Invalid, match=message):
            commit(made, add(partition_field(source, "identity", "p")))
    assert field_ids(commit(made, add(partition_field(6, "identity", "p"))))[1] == [1000]


_LIST_OF_STRUCT = {
    "type": "list",
    "element-id": 31,
    "element": struct(field(32, "x", "int")),
    "element-required": True,
}


def test_a_void_field_needs_no_column() -> None:
    made = commit(table(1), add(partition_field(99, "void", "gone")), set_default(-1))
    assert made["default-spec-id"] == 1


def test_a_default_spec_must_exist() -> None:
    with pytest.raises(Invalid, match="Cannot set last added spec: no spec has been added"):
        commit(table(), set_default(-1))
    with pytest.raises(Invalid, match="unknown spec: 3"):
        commit(table(), set_default(3))


def test_an_old_spec_may_be_wrong_for_the_schema_but_not_become_the_default() -> None:
    made = commit(table(), add(BY_DAY))
    fields = [f for f in made["schemas"][0]["fields"] if f["id"] != 3]
    made = commit(
        made,
        {"action": "add-schema", "schema": made["schemas"][0] | {"fields": fields}},
        {"action": "set-current-schema", "schema-id": -1},
    )
    with pytest.raises(Invalid, match="Cannot find source column"):
        commit(made, set_default(1))


def test_the_default_spec_cannot_be_removed_and_unknown_ones_are_ignored() -> None:
    made = commit(table(), add(BY_DAY))
    with pytest.raises(Invalid, match="Cannot remove the default partition spec"):
        commit(made, {"action": "remove-partition-specs", "spec-ids": [0]})
    assert commit(made, {"action": "remove-partition-specs", "spec-ids": [9]}) is made
    assert field_ids(commit(made, {"action": "remove-partition-specs", "spec-ids": [1]})) == [[]]
