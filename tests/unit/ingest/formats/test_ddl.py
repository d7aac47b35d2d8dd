"""Renamed columns in statements of the source."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from ingest.change import ParsedRequest, RequestContext
from ingest.formats.ddl import renames_of
from ingest.formats.detect import parse


@pytest.mark.parametrize(
    ("statement", "renames"),
    [
        ("ALTER TABLE t RENAME COLUMN a TO b", [("a", "b")]),
        ("alter table `t` rename column `a``x` to `b y`, rename column c to d", [("a`x", "b y"), ("c", "d")]),
        ("ALTER TABLE t CHANGE COLUMN a b INT NOT NULL", [("a", "b")]),
        ("ALTER TABLE t CHANGE a a BIGINT", []),
        ("ALTER TABLE t RENAME TO u", []),
        ("ALTER TABLE t ADD COLUMN exchange_rate INT", []),
        (None, []),
    ],
)
def test_renames_of(statement: object, renames: list[tuple[str, str]]) -> None:
    assert renames_of(statement) == renames


def record(columns: list[str], **fields: Any) -> ParsedRequest:
    about = {"columns": [{"name": name} for name in columns]}
    payload: dict[str, Any] = {
        "source": {"name": "shop", "db": "d", "table": "t", "file": "f.1", "pos": 9, "connector": "mysql"},
        "databaseName": "d",
        "ddl": "ALTER TABLE t RENAME COLUMN a TO b",
        "tableChanges": [{"type": "ALTER", "id": '"d"."t"', "table": about}],
    }
    return parse(orjson.dumps([payload | fields]), RequestContext())


def test_a_schema_change_with_a_renamed_column_is_a_change_of_its_table() -> None:
    [change] = record(["id", "b"]).changes
    assert (change.table, change.operation) == (("d", "t"), "rename")
    assert (change.before, change.after) == ({"a": None}, {"b": None})


@pytest.mark.parametrize(
    "fields",
    [{"ddl": "ALTER TABLE t ADD c INT"}, {"tableChanges": None}, {"tableChanges": [1, {"type": "ALTER"}]}],
)
def test_every_other_schema_change_is_ignored(fields: dict[str, Any]) -> None:
    parsed = record(["id", "b"], **fields)
    assert (parsed.changes, parsed.rejects, len(parsed.ignored)) == ([], [], 1)


def test_a_statement_that_the_columns_contradict_is_ignored() -> None:
    assert record(["id", "a", "b"]).changes == []
