"""Metrics reports as rows: of each table the newest are kept, and none for longer than their time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from catalog.store.database import Database
from catalog.store.migrations import migrate
from catalog.store.records import RecordStore
from tests.harness.stacks import STACKS, Stacks


@pytest.fixture(params=STACKS)
def database(request: pytest.FixtureRequest, stacks: Stacks, tmp_path: Path) -> Iterator[Database]:
    in_file = f"sqlite:///{tmp_path}/catalog.db"
    made = Database(in_file if request.param == "embedded" else stacks.postgres.database())
    migrate(made)
    yield made
    made.close()


@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], database=None
)
@given(
    sent=st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 20)), max_size=12),
    rows_max=st.integers(1, 4),
    retention_ms=st.integers(0, 10),
)
def test_the_newest_reports_of_each_table_are_kept(
    database: Database, sent: list[tuple[str, int]], rows_max: int, retention_ms: int
) -> None:
    records = RecordStore(database)
    with database.engine.begin() as connection:
        connection.exec_driver_sql("DELETE FROM reports")
    model: list[tuple[str, int]] = []
    for name, received_ms in sent:
        records.add_report(_values(name, received_ms), received_ms - retention_ms, rows_max)
        model = [kept for kept in [*model, (name, received_ms)] if kept[1] >= received_ms - retention_ms]
        of_table = [kept for kept in model if kept[0] == name]
        for too_many in of_table[:-rows_max]:
            model.remove(too_many)
    for name in "ab":
        found = records.reports("main", "ns", name, 2**62, 100)
        assert [row[1] for row in found] == [time_ms for kept, time_ms in reversed(model) if kept == name]


def _values(name: str, received_ms: int) -> dict[str, object]:
    return {
        "warehouse": "main",
        "namespace": "ns",
        "name": name,
        "uuid": "u",
        "received_ms": received_ms,
        "principal": "p",
        "report": "{}",
    }
