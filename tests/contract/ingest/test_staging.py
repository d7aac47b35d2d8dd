"""What staging makes of acknowledged changes, from the bytes of a request to the staged rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract.ingest.staging_lake import WAREHOUSE, StagingLake, opened, staged_rows
from tests.harness.postgres import PostgresServer


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[StagingLake]:
    with opened(tmp_path) as found:
        yield found


@pytest.fixture(params=("sqlite", "postgres"))
def any_lake(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StagingLake]:
    settings: dict[str, Any] = {}
    if request.param == "postgres":
        postgres: PostgresServer = request.getfixturevalue("postgres")
        settings["database"] = settings["journal"] = postgres.database()
    with opened(tmp_path, **settings) as found:
        yield found


def debezium(operation: str, after: dict[str, Any] | None, **more: Any) -> dict[str, Any]:
    source = {"name": "pg", "db": "d", "schema": "shop", "table": "t", **more.pop("source", {})}
    return {"op": operation, "before": None, "after": after, "source": source, "ts_ms": 1, **more}


def test_a_source_and_a_position_with_nul_land_in_either_database(any_lake: StagingLake) -> None:
    log = {"name": "my\0sql", "connector": "mysql", "file": "bin\0log", "pos": 4, "row": 0}
    any_lake.post(debezium("c", {"id": 1}, source=log), key=("id",))
    any_lake.post(debezium("r", {"id": 2}, source=log | {"table": "u"}), key=("id",))
    any_lake.land()
    [mark, *_] = any_lake.ingest.tables.watermarks(WAREHOUSE)
    assert mark.position.startswith("bin\N{SYMBOL FOR NULL}log/")
    any_lake.post(debezium("u", {"id": 1, "x": "new"}, source=log | {"pos": 5}), key=("id",))
    any_lake.post(debezium("u", {"id": 1, "x": "old"}, source=log | {"pos": 3}), key=("id",))
    batch = any_lake.land()
    assert [row["x"] for row in staged_rows(batch, "t")] == ["old", "new"]
    assert batch.tables[0]["late"] is True
