"""The health of a table, from the summary of its current snapshot, and what is due."""

from __future__ import annotations

from typing import Any

import pytest

from maintenance.health import health, quiet_ms, reasons
from maintenance.policies import TablePolicy
from maintenance.store import TableRecord


def document(version: int, **totals: int) -> dict[str, Any]:
    summary = {f"total-{name.replace('_', '-')}": str(total) for name, total in totals.items()}
    return {
        "format-version": version,
        "current-snapshot-id": 1,
        "snapshots": [{"snapshot-id": 1, "timestamp-ms": 7, "summary": summary}],
    }


@pytest.mark.parametrize(("version", "why"), [(2, ["40 delete files"]), (3, [])])
def test_deletion_vectors_are_no_delete_files(version: int, why: list[str]) -> None:
    """A compaction finds nothing to rewrite in them: the table would be due for ever."""
    given = document(version, data_files=40, delete_files=40, records=100_000, position_deletes=40)
    assert reasons(health(given), TableRecord("u", files_after=40), TablePolicy()) == why


def test_position_deletes_of_a_table_that_got_vectors_later_are_delete_files() -> None:
    given = document(3, data_files=2, delete_files=40)
    assert reasons(health(given), TableRecord("u"), TablePolicy()) == ["38 delete files"]


def test_a_compaction_is_no_sign_of_a_writer() -> None:
    given = document(2)
    given["snapshots"].append({"snapshot-id": 2, "timestamp-ms": 9, "summary": {"operation": "replace"}})
    assert health(given).written_ms == 7
    assert quiet_ms(health(given), TablePolicy(quiet_minutes=1)) == 60_007
