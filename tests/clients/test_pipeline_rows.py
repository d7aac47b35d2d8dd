"""Batches of changes become rows: every way in which events of one row can follow each other."""

from __future__ import annotations

import tempfile
from typing import Any

import pytest

from spark_jobs.messages import KeyFileSettings, TableState
from spark_jobs.tables.table_state import NotServed, TableStates
from tests.clients.duckdb_client import DuckLake
from tests.clients.pipeline_events import delete, insert, moved, truncate, update
from tests.clients.pipeline_fixtures import Checked, pipeline, pipeline_slots
from tests.clients.pipeline_lake import PipelineLake
from tests.clients.pipeline_random import COLUMNS, RandomChanges

__all__ = ["pipeline", "pipeline_slots"]
# PySpark leaves the socket that rows came through to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


# Each way on one stack and the first on both; `make proof` has the rest.
each_way = pytest.mark.parametrize(
    ("stack", "way"),
    [
        ("embedded", "tasks"),
        ("embedded", "merge"),
        ("postgres-s3", "tasks"),
        ("postgres-s3", "tasks-without-key-files"),
        pytest.param("embedded", "tasks-without-key-files", marks=pytest.mark.proof),
        pytest.param("postgres-s3", "merge", marks=pytest.mark.proof),
    ],
    indirect=True,
)


@pytest.fixture(params=["tasks", "tasks-without-key-files", "merge"])
def way(request: pytest.FixtureRequest, pipeline: PipelineLake, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways into a mirror, and tasks that find none of the key files that others made."""
    name: str = request.param
    if name == "merge":
        monkeypatch.setattr(TableStates, "mirror", _refuse)
        return name
    if name == "tasks-without-key-files":
        none = KeyFileSettings(folder=f"{tempfile.gettempdir()}/calve-test-no-keys", bytes_max=0)
        monkeypatch.setattr(pipeline.slot.landing, "key_files", none)
    return "tasks"


def _refuse(*_: Any) -> TableState:
    raise NotServed("a test wants MERGE")


@each_way
def test_inserts_updates_deletes(pipeline: PipelineLake, duck: DuckLake, way: str) -> None:
    table = Checked(pipeline.table(COLUMNS))
    facts = table.land(
        insert(id=1, name="a", big="A", n=1.5),
        insert(id=2, name="b", big=None, n=None),
        insert(id=3, name="c"),
        insert(id=3, name="c again"),
        update(id=3, name="c at last", big="C"),
        insert(id=4, name="gone within the batch"),
        delete(id=4),
        delete(id=99),
    )
    assert facts["by"] == way
    facts = table.land(
        update(id=1, name="a2", big="A2", n=2.5),
        delete(id=2),
        insert(id=2, name="b anew"),
        delete(id=3),
        insert(id=5, name="e"),
        delete(id=5),
        delete(id=98),
        update(id=6, name="never seen before"),
        insert(id=7, name="g"),
        update(id=7, name="g2"),
    )
    assert facts["by"] == way
    if way == "tasks":
        assert (facts["rows"], facts["deleted"]) == (7, 3)
    table.check_by_duckdb(duck)


@each_way
def test_missing_values_and_key_changes(pipeline: PipelineLake, way: str) -> None:
    table = Checked(pipeline.table(COLUMNS))
    table.land(*(insert(id=n, name=f"name {n}", big=f"big {n}", n=n / 2) for n in range(1, 9)))
    table.land(
        # a chain over several events; a value that is set on the way; null is a value
        update("big", id=1, name="1a", n=1.0),
        update("big", "n", id=1, name="1b"),
        update("name", id=1, big=None, n=3.0),
        update("big", id=1, name="1c", n=4.0),
        # the value is only in the row just deleted
        delete(id=2),
        moved({"id": 2}, "big", id=20, name="moved", n=2.0),
        update("big", id=20, name="moved and changed", n=2.5),
        # all values are there
        delete(id=3),
        moved({"id": 3}, id=30, name="whole", big="whole", n=0.0),
        # over three keys, and back to the first
        delete(id=4),
        moved({"id": 4}, "big", "n", id=40, name="4a"),
        delete(id=40),
        moved({"id": 40}, "big", "n", id=41, name="4b"),
        update("name", "n", id=41, big="set on the way"),
        delete(id=41),
        moved({"id": 41}, "big", "n", id=4, name="4c"),
        # the new row of an old key has nothing of the old row
        delete(id=5),
        update("big", id=5, name="anew", n=5.0),
        # a row that nobody knows
        update("big", id=70, name="unknown", n=7.0),
        # everything moves up by one
        delete(id=8),
        moved({"id": 8}, "big", id=9, name="was 8", n=8.0),
        delete(id=7),
        moved({"id": 7}, "big", id=8, name="was 7", n=7.0),
    )


def test_truncate_in_the_middle(pipeline: PipelineLake) -> None:
    table = Checked(pipeline.table(COLUMNS))
    table.land(*(insert(id=n, name=f"name {n}", big=f"big {n}") for n in range(1, 5)))
    table.land(
        update("big", id=1, name="still filled"),
        insert(id=10, name="goes with the rest"),
        truncate(),
        insert(id=2, name="after"),
        truncate(),
        insert(id=3, name="after that"),
        update("big", id=4, name="nothing left to fill from"),
        delete(id=3),
        insert(id=3, name="last", big="B"),
    )
    table.land(truncate())
    assert table.table.mirror() == []
    table.land(insert(id=1, name="starts again"))


@each_way
def test_random_batches(pipeline: PipelineLake, way: str) -> None:
    _random(pipeline, 1, [30, 60])


@pytest.mark.proof
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(100, 110))
def test_many_random_batches(pipeline: PipelineLake, way: str, seed: int) -> None:
    _random(pipeline, seed, [1, 300, 20, 5, 1000, 50, 100, 200, 10, 400])


def _random(pipeline: PipelineLake, seed: int, sizes: list[int]) -> None:
    changes = RandomChanges(seed, keys=12)
    table = Checked(pipeline.table(COLUMNS))
    for size in sizes:
        table.land(*changes.batch(size))
