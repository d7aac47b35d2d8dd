"""Staging: a cut of the journal becomes typed Parquet files, dead letters, and the description of a job.

The same cut gives the same files; a retry of the job reads the same bytes.
"""

from __future__ import annotations

import time

from catalog.errors import CatalogError, Unavailable
from ingest.change import TableName
from ingest.staging.context import (
    BatchRange,
    CannotStage,
    Expected,
    StagedBatch,
    StagingContext,
    TableState,
    digest,
    table_states,
)
from ingest.staging.table import CannotPrestage, TableStaging


def stage(context: StagingContext, batch_range: BatchRange) -> StagedBatch:
    """Write the files of a job and say what it consists of."""
    return _staged(context, batch_range, table_states(context, batch_range), prestaging=False)


def prestage(context: StagingContext, batch_range: BatchRange, expected: Expected) -> StagedBatch | None:
    """The same for a batch whose predecessor is still being landed; None if it has to wait for that."""
    try:
        return _staged(context, batch_range, table_states(context, batch_range, expected), prestaging=True)
    except CannotPrestage:
        return None


def is_current(context: StagingContext, batch_range: BatchRange, batch: StagedBatch) -> bool:
    """Whether a batch that was staged ahead is what `stage` would make of this cut now."""
    return digest(table_states(context, batch_range)) == batch.state_digest


def _staged(
    context: StagingContext, batch_range: BatchRange, found: dict[TableName, TableState], *, prestaging: bool
) -> StagedBatch:
    """If it fails, its files and dead letters are deleted: the next attempt has another id."""
    commit_us = max([time.time_ns() // 1000, *(one.landed.commit_us + 1 for one in found.values())])
    batch = StagedBatch([], [], commit_us, [], digest(found))
    try:
        for number, (table, span) in enumerate(sorted(batch_range.ranges.items())):
            _stage_one(
                TableStaging(context, batch_range, number, found[table], prestaging=prestaging),
                table,
                span,
                batch,
            )
    except BaseException:
        context.catalog.files.delete(batch.files)
        if not prestaging:
            context.journal.dead_letters.discard(batch_range.job_id)
        raise
    return batch


def _stage_one(one: TableStaging, table: TableName, span: tuple[int, int], batch: StagedBatch) -> None:
    try:
        one.stage(table, span, batch)
    except (Unavailable, CannotPrestage):
        raise  # the storage or a database: it is the same for every table
    except CatalogError as error:
        raise CannotStage(f"{'.'.join(table)}: {error.message}", table) from error
    except Exception as error:  # one table must not hold up those that it was cut with
        what = f"{type(error).__name__}: {error}"
        raise CannotStage(f"{'.'.join(table)}: unexpected {what[:300]}", table) from error
