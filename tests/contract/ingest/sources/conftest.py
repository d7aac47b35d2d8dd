"""A lake on each database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract.ingest.sources.control_lake import ControlLake, controlled
from tests.harness.postgres import PostgresServer


@pytest.fixture(params=("embedded", "postgres"))
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ControlLake]:
    settings: dict[str, Any] = {}
    if request.param == "postgres":
        postgres: PostgresServer = request.getfixturevalue("postgres")
        settings["database"] = settings["journal"] = postgres.database()
    with controlled(tmp_path, **settings) as found:
        yield found
