"""The pipeline as a fixture, and how its tables are compared with the model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.clients.duckdb_client import DuckLake
from tests.clients.pipeline_events import Event, Row
from tests.clients.pipeline_lake import PipelineLake, PipelineSlot, PipelineTable
from tests.clients.pipeline_model import Model
from tests.harness.stacks import Stack


@pytest.fixture(scope="session")
def pipeline_slots(spark: SparkSession) -> Iterator[dict[str, PipelineSlot]]:
    """One slot for each stack: Spark builds its catalog once."""
    slots: dict[str, PipelineSlot] = {}
    yield slots
    for slot in slots.values():
        slot.close()


@pytest.fixture
def pipeline(spark: SparkSession, stack: Stack, pipeline_slots: dict[str, PipelineSlot]) -> PipelineLake:
    if stack.url not in pipeline_slots:
        pipeline_slots[stack.url] = PipelineSlot(spark, stack)
    return PipelineLake(pipeline_slots[stack.url])


class Checked:
    """A table beside its model: what lands in one lands in the other, and then they are the same."""

    def __init__(self, table: PipelineTable) -> None:
        self.table = table
        self.model = Model(tuple(table.columns), table.key)

    def land(self, *events: Event, late: bool = False) -> dict[str, Any]:
        facts = self.table.land(*events, late=late)
        self.model.land(list(events), late=late)
        self.check()
        return facts

    def check(self) -> None:
        if self.table.has_mirror:
            assert by_key(self.table.mirror(), self.table.key) == self.model.mirror
        if self.table.has_changes:
            assert told(self.table.changes(), self.table) == told_by(self.model)

    def check_by_duckdb(self, duck: DuckLake) -> None:
        """Another reader, which applies the deletes in its own way."""
        wanted = ", ".join(f'"{column}"' for column in self.table.columns)
        names, rows = duck.named(f"SELECT {wanted} FROM lake.{self.table.lake.namespace}.{self.table.name}")
        found = [dict(zip(names, row, strict=True)) for row in rows]
        assert by_key(found, self.table.key) == self.model.mirror


def by_key(rows: list[Row], key: tuple[str, ...]) -> dict[tuple[Any, ...], Row]:
    found = {tuple(row[column] for column in key): row for row in rows}
    assert len(found) == len(rows), "a key has more than one row"
    return found


def told(rows: list[Row], table: PipelineTable) -> dict[str, tuple[Any, ...]]:
    """The history by event: operation, position, and the row."""
    found = {
        row["_event_id"]: (row["_operation"], row["_position"], *(row[c] for c in table.columns))
        for row in rows
    }
    assert len(found) == len(rows), "an event is there more than once"
    return found


def told_by(model: Model) -> dict[str, tuple[Any, ...]]:
    return {event.id: (event.operation, event.position, *row.values()) for event, row in model.history}
