"""add-schema, set-current-schema, remove-schemas."""

from __future__ import annotations

import pytest

from catalog.errors import CommitFailed, Invalid
from catalog.metadata.document import Metadata
from tests.harness.documents import (
    SCHEMA,
    add_column,
    add_snapshot,
    append,
    commit,
    field,
    partition_field,
    set_ref,
    snapshot,
    sort_field,
    struct,
    table,
)


def add(schema: object) -> dict[str, object]:
    return {"action": "add-schema", "schema": schema}


def set_current(id_: int) -> dict[str, object]:
    return {"action": "set-current-schema", "schema-id": id_}


def ids(metadata: Metadata) -> list[int]:
    return [schema["schema-id"] for schema in metadata["schemas"]]


WIDER = SCHEMA | {"fields": [*SCHEMA["fields"], field(4, "more", "int")]}


def test_a_new_schema_gets_the_next_id_whatever_the_client_says() -> None:
    made = commit(table(), add(WIDER | {"schema-id": 0}), set_current(-1))
    assert ids(made) == [0, 1]
    assert made["current-schema-id"] == 1
    assert made["last-column-id"] == 4
    assert made["schemas"][1] == WIDER | {"schema-id": 1}


def test_an_equal_schema_is_used_again_and_counts_as_added() -> None:
    made = add_column(table(), "more", "int")
    again = commit(made, add(SCHEMA | {"schema-id": 9}), set_current(-1))
    assert ids(again) == [0, 1]
    assert again["current-schema-id"] == 0


def test_repeating_the_creation_changes_nothing() -> None:
    base = table()
    assert commit(base, add(base["schemas"][0]), set_current(0)) is base


def test_a_client_that_numbers_its_own_schema_gets_that_one() -> None:
    made = commit(add_column(table(), "more"), set_current(0))
    other = SCHEMA | {"fields": [*SCHEMA["fields"], field(9, "y", "int")], "schema-id": 1}
    after = commit(made, add(other), set_current(1))
    assert ids(after) == [0, 1, 2]
    assert after["current-schema-id"] == 2


def test_the_snapshot_of_that_client_names_the_right_schema() -> None:
    made = commit(add_column(table(), "more"), set_current(0))
    other = SCHEMA | {"fields": [*SCHEMA["fields"], field(9, "y", "int")], "schema-id": 1}
    after = commit(made, add(other), set_current(1), add_snapshot(snapshot(made, 1, schema_id=1)), set_ref(1))
    assert after["snapshots"][0]["schema-id"] == 2


def test_a_snapshot_of_a_schema_that_is_gone_must_be_made_again() -> None:
    made = table()
    with pytest.raises(CommitFailed, match=r"Validation failed, please retry: .* unknown schema 7"):
        commit(made, add_snapshot(snapshot(made, 1, schema_id=7)))


def test_the_last_column_id_never_falls_and_the_clients_is_not_read() -> None:
    made = commit(table(), add(WIDER) | {"last-column-id": 900})
    assert made["last-column-id"] == 4
    less = struct(field(1, "id", "long", required=True))
    assert commit(made, add(less))["last-column-id"] == 4


def test_an_id_that_a_snapshot_names_is_not_given_again() -> None:
    made = append(add_column(table(), "more"), 1)
    made = commit(made, set_current(0), {"action": "remove-schemas", "schema-ids": [1]})
    assert ids(made) == [0]
    assert ids(commit(made, add(struct(field(1, "other", "int"))))) == [0, 2]


def test_v1_keeps_the_old_field_in_step() -> None:
    made = add_column(table(1), "more")
    assert made["schema"] == made["schemas"][1]
    back = commit(made, set_current(0))
    assert back["schema"] == back["schemas"][0]


@pytest.mark.parametrize(
    ("id_", "message"),
    [(-1, "Cannot set last added schema: no schema has been added"), (5, "unknown schema: 5")],
)
def test_a_current_schema_must_exist(id_: int, message: str) -> None:
    with pytest.raises(Invalid) as refused:
        commit(table(), set_current(id_))
    assert message in refused.value.message
    assert refused.value.message.startswith("Invalid update 0 (set-current-schema): ")


def test_a_new_schema_must_fit_the_default_spec_and_order() -> None:
    spec = {"fields": [partition_field(3, "day", "at_day")]}
    order = {"order-id": 1, "fields": [sort_field(2)]}
    made = table(2, partition_spec=spec, write_order=order)
    without = {key: [f for f in SCHEMA["fields"] if f["id"] != key] for key in (2, 3)}
    with pytest.raises(Invalid, match="Cannot find source column for partition field: at_day"):
        commit(made, add(SCHEMA | {"fields": without[3]}), set_current(-1))
    with pytest.raises(Invalid, match="Cannot find source column for sort field"):
        commit(made, add(SCHEMA | {"fields": without[2]}), set_current(-1))
    retyped = [f if f["id"] != 3 else f | {"type": "string"} for f in SCHEMA["fields"]]
    with pytest.raises(Invalid, match=r"Invalid source type string for transform: day"):
        commit(made, add(SCHEMA | {"fields": retyped}), set_current(-1))


def test_a_column_may_not_take_the_name_of_a_partition_field() -> None:
    made = table(2, partition_spec={"fields": [partition_field(3, "day", "at_day")]})
    with pytest.raises(Invalid, match="sourced from different field in schema: at_day"):
        add_column(made, "at_day")


def test_the_current_schema_cannot_be_removed_and_unknown_ones_are_ignored() -> None:
    made = add_column(table(), "more")
    with pytest.raises(Invalid, match="Cannot remove the current schema"):
        commit(made, {"action": "remove-schemas", "schema-ids": [0, 1]})
    assert commit(made, {"action": "remove-schemas", "schema-ids": [7]}) is made
    assert ids(commit(made, {"action": "remove-schemas", "schema-ids": [0]})) == [1]


def test_a_removed_schema_is_not_the_last_added() -> None:
    removal = {"action": "remove-schemas", "schema-ids": [1]}
    with pytest.raises(Invalid, match="no schema has been added"):
        commit(table(), add(WIDER), removal, set_current(-1))
