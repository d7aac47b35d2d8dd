"""Reserved locations: all that overlap a location are found, at any depth."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from catalog.locations import LOCATION_BYTES_MAX, Location
from catalog.store.database import Database
from catalog.store.migrations import migrate
from catalog.store.records import RecordStore
from catalog.store.schema import locations
from tests.harness.stacks import STACKS, Stacks

ROOT = "s3://lake/w"
DEPTH_MAX = (LOCATION_BYTES_MAX - len(ROOT)) // 2


@pytest.fixture(params=STACKS)
def database(request: pytest.FixtureRequest, stacks: Stacks, tmp_path: Path) -> Iterator[Database]:
    in_file = f"sqlite:///{tmp_path}/catalog.db"
    made = Database(in_file if request.param == "embedded" else stacks.postgres.database())
    migrate(made)
    yield made
    made.close()


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], database=None
)
@given(depths=st.tuples(st.integers(0, DEPTH_MAX), st.integers(0, DEPTH_MAX)), forks=st.booleans())
@example(depths=(1, 61), forks=False)
@example(depths=(1, 201), forks=False)
@example(depths=(0, DEPTH_MAX), forks=False)
def test_every_location_above_and_below_is_found(
    database: Database, depths: tuple[int, int], forks: bool
) -> None:
    reserved, requested = (Location.parse(ROOT + "/x" * depth) for depth in depths)
    if forks and requested.segments:
        requested = Location.parse(requested.text[:-1] + "y")
    with database.engine.begin() as connection:
        connection.execute(sa.delete(locations))
        connection.execute(
            sa.insert(locations).values(warehouse="main", location=reserved.canonical, uuid="owner")
        )
    found = RecordStore(database).overlapping("main", requested.canonical)
    assert set(found) == ({(reserved.canonical, "owner")} if requested.overlaps(reserved) else set())
