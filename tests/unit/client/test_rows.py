"""Rows and changes as the bodies of requests."""

from __future__ import annotations

import json
import threading
import uuid
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calve.client.rows import Source, chunks, encoded, is_change

ROWS = st.lists(st.dictionaries(st.text(max_size=5), st.text(max_size=20) | st.integers() | st.none()))


@given(ROWS, st.integers(1, 200))
def test_chunks_hold_every_row_once_in_order(rows: list[dict[str, Any]], bytes_max: int) -> None:
    found = list(chunks(rows, bytes_max))
    assert [json.loads(line) for chunk in found for line in chunk.body.splitlines()] == rows
    assert sum(chunk.count for chunk in found) == len(rows)
    assert all(len(chunk.body) <= bytes_max or chunk.count == 1 for chunk in found)


def test_values_that_json_lacks() -> None:
    row = {
        "amount": Decimal("1.10"),
        "at": datetime(2026, 11, 15, tzinfo=UTC),
        "id": uuid.UUID(int=1),
        "raw": b"\x00\xff",
        "tags": ("a", "b"),
    }
    assert json.loads(encoded(row)) == {
        "amount": "1.10",
        "at": "2026-11-15T00:00:00+00:00",
        "id": "00000000-0000-0000-0000-000000000001",
        "raw": "AP8=",
        "tags": ["a", "b"],
    }


def test_rows_that_cannot_be_sent() -> None:
    with pytest.raises(ValueError, match="NaN"):
        encoded({"x": float("nan")})
    with pytest.raises(TypeError, match="object has no form in JSON"):
        encoded({"x": object()})
    with pytest.raises(TypeError, match="not list"):
        encoded([1])  # type: ignore[arg-type]


def test_a_change_and_a_row() -> None:
    assert is_change({"operation": "update", "after": {"id": 1}})
    assert is_change({"operation": "truncate"})
    assert not is_change({"operation": "appendectomy", "patient": 1})
    assert not is_change({"id": 1})


def test_changes_get_numbers_and_row_ids() -> None:
    source = Source()
    changes: list[dict[str, Any]] = [
        {"operation": "insert", "after": {"id": 7}},
        {"operation": "DELETE", "before": {"id": 7}},
        {"operation": "truncate"},
    ]
    first, second, third = source.events(changes, None)
    assert [event["sequence"] for event in (first, second, third)] == [1, 2, 3]
    assert (first["operation"], first["rowId"], first["after"]) == ("INSERT", "7", {"id": 7})
    assert (second["operation"], second["rowId"], second["before"]) == ("DELETE", "7", {"id": 7})
    assert third["rowId"] == ""
    [keyed] = source.events([{"operation": "update", "after": {"a": 1, "b": "x"}}], ["a", "b"])
    assert keyed["sequence"] == 4
    assert keyed["rowId"] == '[1, "x"]'
    assert keyed["metadata"] == {"primaryKey": ["a", "b"]}


def test_changes_that_cannot_be_sent() -> None:
    with pytest.raises(ValueError, match="operation must be one of"):
        Source().events([{"operation": "upsert", "after": {"id": 1}}], None)
    with pytest.raises(ValueError, match="no email"):
        Source().events([{"operation": "insert", "after": {"id": 1}}], ["email"])


def test_threads_share_the_count() -> None:
    source = Source()
    seen: list[int] = []

    def send() -> None:
        for _ in range(200):
            seen.extend(event["sequence"] for event in source.events([{"operation": "truncate"}] * 3, None))

    threads = [threading.Thread(target=send) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen) == list(range(1, 2401))
