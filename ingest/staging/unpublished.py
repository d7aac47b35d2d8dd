"""Stage changes of one row in memory, with the same steps as for a batch, and without files."""

from __future__ import annotations

import time
from typing import Any

import pyarrow as pa

from ingest.change import TableName
from ingest.identity import ArrivedChange
from ingest.staging.context import BatchRange, StagedBatch, StagingContext
from ingest.staging.rejects import RejectedChange
from ingest.staging.table import TableStaging, prepared
from ingest.staging.targets import TableState


def stage_in_memory(
    context: StagingContext,
    state: TableState,
    warehouse: str,
    span: tuple[int, int],
    arrived: list[ArrivedChange],
) -> tuple[dict[str, Any], pa.Table | None]:
    """Return the description of the table as in a job, and its staged rows. CannotPrestage if the changes
    need more than rows: new columns, or a reject.
    """
    table = state.landed.table
    staging = _InMemory(context, BatchRange("", warehouse, {table: span}), 0, state, prestaging=True)
    staging.arrived = arrived
    batch = StagedBatch([], [], time.time_ns() // 1000, [])
    staging.stage(table, span, batch)
    return batch.tables[0], staging.staged


class _InMemory(TableStaging):
    arrived: list[ArrivedChange]
    staged: pa.Table | None = None

    def _read(
        self, table: TableName, span: tuple[int, int]
    ) -> tuple[list[ArrivedChange], list[RejectedChange]]:
        return prepared(self.arrived, self._state), []

    def _put(self, table: pa.Table, what: str, batch: StagedBatch) -> str:
        self.staged = table
        return what
