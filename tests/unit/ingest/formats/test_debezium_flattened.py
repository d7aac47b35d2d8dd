"""Debezium's flattened rows."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from ingest.change import RequestContext, position_of
from ingest.formats import debezium_flattened, detect
from ingest.formats.debezium_position import NOT_DELETE
from tests.unit.ingest.formats.recorded import changed, parse, sample, without

INSERT, UPDATE, DELETE = sample("debezium_flattened", "rows")
(WITH_SCHEMA,) = sample("debezium_flattened", "with_schema")


def test_rows() -> None:
    insert, update, delete = parse(debezium_flattened, [INSERT, UPDATE, DELETE]).changes
    assert (insert.table, insert.operation) == (("inventory", "customers"), "insert")
    assert insert.after == {"id": 1004, "first_name": "Anne", "email": "annek@noanswer.org"}
    assert insert.position == position_of(34521104, 34521104, 0)
    assert insert.time_ms == 1763283601123
    assert (update.operation, update.after) == ("update", {"id": 1004, "first_name": "Anne"})
    assert update.unchanged == ("email",)  # a placeholder; any other column that the row lacks was dropped
    assert (delete.operation, delete.after) == ("delete", None)
    assert delete.before == {"id": 1004, "first_name": "Anne", "email": None}
    assert len({change.identity for change in (insert, update, delete)}) == 3


def test_a_repeat_is_known() -> None:
    first, again = parse(debezium_flattened, [INSERT, INSERT]).changes
    assert first.identity == again.identity


@pytest.mark.parametrize(
    ("deleted", "op", "operation"),
    [
        ("true", "d", "delete"),
        ("true", None, "delete"),
        (True, None, "delete"),
        ("false", None, "update"),
        (None, "r", "read"),
        (None, "t", "truncate"),
    ],
)
def test_operations(deleted: object, op: str | None, operation: str) -> None:
    event = {name: value for name, value in INSERT.items() if name not in ("__deleted", "__op")}
    event |= {} if deleted is None else {"__deleted": deleted}
    event |= {} if op is None else {"__op": op}
    assert parse(debezium_flattened, [event]).changes[0].operation == operation


def test_schema() -> None:
    (change,) = parse(debezium_flattened, [WITH_SCHEMA], RequestContext(source="s")).changes
    assert change.table == ("default", "products")
    assert (change.operation, change.after, change.source) == ("update", {"id": 1, "price": "MDk="}, "s")
    assert change.declared is not None
    assert change.declared.columns == {"id": "int", "price": "decimal(10,2)"}
    first, second = parse(debezium_flattened, [WITH_SCHEMA, WITH_SCHEMA]).changes
    assert first.declared is second.declared


def test_a_row_of_kafka_connect_without_any_of_it() -> None:
    event = {"schema": WITH_SCHEMA["schema"], "payload": {"id": 1}}
    parsed = detect.parse(orjson.dumps(event), RequestContext(table=("a", "b")))
    assert (parsed.format, parsed.changes[0].operation) == ("debezium-flattened", "insert")
    assert parsed.changes[0].identity == ""


def test_transactions_and_other_positions() -> None:
    event = {
        **INSERT,
        "__transaction_id": "771:34521104",
        "__transaction_total_order": 3,
        "__source_name": "shop",
        "__source_sequence": '["34520000","34521104"]',
    }
    (change,) = parse(debezium_flattened, [event]).changes
    assert (change.transaction, change.source) == ("771", "shop")
    assert change.position == position_of(34520000, 34521104, NOT_DELETE + 3)
    assert change.after == {"id": 1004, "first_name": "Anne", "email": "annek@noanswer.org"}


def test_columns_with_underscores_of_their_own_stay() -> None:
    (change,) = parse(debezium_flattened, [{**INSERT, "__mine": 1}]).changes
    assert change.after is not None
    assert change.after["__mine"] == 1


@pytest.mark.parametrize(
    ("event", "code"),
    [
        (without(INSERT, "__table"), "no-table"),
        (changed(INSERT, "__table", to=7), "bad-table"),
        (changed(INSERT, "__op", to="x"), "no-operation"),
        ({"__table": "t", "__op": "c"}, "no-row"),
        (7, "not-object"),
    ],
)
def test_rejects(event: Any, code: str) -> None:
    (reject,) = parse(debezium_flattened, [event]).rejects
    assert (reject.code, orjson.loads(reject.original)) == (code, event)
    if code == "no-table":
        assert "add.fields" in reject.reason
        assert "/cdc/{namespace}/{table}" in reject.reason


def test_tombstone() -> None:
    assert parse(debezium_flattened, [{"schema": {}, "payload": None}]).ignored == {0: "tombstone"}
