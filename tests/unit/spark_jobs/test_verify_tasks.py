"""What tasks find when they compare the rows of some keys: by rows as they pass from one task to the next."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from spark_jobs.tables.checksums import DIGEST_DIGITS
from spark_jobs.verification import verify_tasks
from spark_jobs.verification.verify_tasks import compared, folded_sums

NAMES = ["k", "o", "s", "p", "t", "c", "f", "n", "h", "d"]


def row(key: str, operation: str, value: str, *, batch: int = 1, row_number: int = 0) -> dict[str, Any]:
    """`value` has one letter for each of the two columns."""
    digests = "".join(letter * DIGEST_DIGITS for letter in value)
    fields = {"o": operation, "s": "s", "p": "", "t": None, "c": batch, "f": "f", "n": row_number}
    return {"k": key, **fields, "h": ord(value[0]) * 256 + ord(value[1]), "d": f'{digests} {{"id": "{key}"}}'}


def mirror(key: str, value: str) -> dict[str, Any]:
    return row(key, "mirror", value, batch=2**62)


def differences(*rows: dict[str, Any], has_key: bool = True) -> list[tuple[str, str, list[str]]]:
    batches = iter([pa.RecordBatch.from_pylist([given], _schema()) for given in rows])
    found = pa.Table.from_batches(compared((), ("x", "y"), has_key, batches)).to_pylist()
    return [(one["kind"], json.loads(one["key"])["id"], json.loads(one["columns"])) for one in found]


def _schema() -> pa.Schema:
    kinds = [*[pa.string()] * 5, pa.int64(), pa.string(), pa.int64(), pa.int64(), pa.string()]
    return pa.schema(list(zip(NAMES, kinds, strict=True)))


def test_every_kind_of_difference_is_named() -> None:
    found = differences(
        row("a", "insert", "xx"),
        mirror("a", "xx"),
        row("b", "insert", "xx"),
        mirror("b", "xz"),
        row("c", "insert", "xx"),
        mirror("d", "xx"),
        row("e", "insert", "xx"),
        row("e", "delete", "xx", row_number=1),
        mirror("e", "xx"),
        row("f", "insert", "xx"),
        mirror("f", "xx"),
        mirror("f", "xx"),
    )
    assert found == [
        ("changed", "b", ["y"]),
        ("missing", "c", []),
        ("unexpected", "d", []),
        ("unexpected", "e", []),
        ("repeated", "f", []),
    ]


def test_rows_of_a_table_without_a_key_are_counted() -> None:
    rows = [row("a", "insert", "xx"), row("a", "insert", "xx", row_number=1)]
    assert differences(*rows, mirror("a", "xx"), mirror("a", "xx"), has_key=False) == []
    assert differences(*rows, mirror("a", "xx"), has_key=False) == [("missing", "a", [])]
    assert differences(mirror("b", "xx"), has_key=False) == [("unexpected", "b", [])]


def test_many_differences_come_in_several_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify_tasks, "_DIFFERENCES_A_BATCH", 2)
    found = differences(*(mirror(f"{number:02}", "xx") for number in range(5)))
    assert [key for _, key, _ in found] == ["00", "01", "02", "03", "04"]


def test_a_row_that_was_deleted_is_in_no_sum() -> None:
    rows = [
        row("aa1", "insert", "xx"),
        row("aa2", "insert", "xx"),
        row("aa2", "delete", "xx", row_number=1),
        row("bb1", "insert", "xx"),
        row("bb1", "update", "yy", batch=2),
    ]
    batches = iter([pa.RecordBatch.from_pylist(rows, _schema())])
    found = pa.Table.from_batches(folded_sums((), None, batches)).to_pylist()
    assert found == [
        {"b": "aa", "n": 1, "h": str(rows[0]["h"])},
        {"b": "bb", "n": 1, "h": str(rows[4]["h"])},
    ]
