"""Run staging in a separate process, so that typing a large batch never delays an acknowledgement.

The child process is started at the first batch and again if it dies; a batch whose child died is cut again. A
batch range becomes typed Parquet files, dead letters, and the description of a job. The same range gives the
same files; a retry of the job reads the same bytes.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import TYPE_CHECKING, TypeVar

from catalog.errors import CatalogError, Unavailable
from ingest.change import TableName
from ingest.staging.context import (
    BatchRange,
    CannotPrestage,
    CannotStage,
    Expected,
    NeedsConversion,
    StagedBatch,
    StagingContext,
)

if TYPE_CHECKING:
    from ingest.staging.table import TableStaging
    from ingest.staging.targets import TableState

T = TypeVar("T")

_context: StagingContext | None = None


class StagingProcess:
    """Runs staging in a child process. `open_context` runs in the child and must be importable."""

    def __init__(self, open_context: Callable[[], StagingContext]) -> None:
        self._open_context_with = open_context
        self._pool: ProcessPoolExecutor | None = None
        self._lock = threading.Lock()

    def stage(self, batch_range: BatchRange) -> StagedBatch:
        return self._done(_stage, batch_range)

    def prestage(self, batch_range: BatchRange, expected: Expected) -> StagedBatch | None:
        """Stage a batch in advance. None if it must wait: its table would change, or a change would become a
        dead letter.
        """
        return self._done(_prestage, batch_range, expected)

    def is_current(self, batch_range: BatchRange, batch: StagedBatch) -> bool:
        """Return whether a prestaged batch equals what `stage` would write now."""
        return self._done(_is_current, batch_range, batch)

    def _done(self, work: Callable[..., T], *given: object) -> T:
        pool = self._started()
        try:
            return pool.submit(work, *given).result()
        except BrokenProcessPool as error:
            self.close()
            raise Unavailable("the staging process died; the batch will be cut again") from error

    def _started(self) -> ProcessPoolExecutor:
        with self._lock:
            if self._pool is None:
                self._pool = ProcessPoolExecutor(
                    1,
                    mp_context=multiprocessing.get_context("spawn"),
                    initializer=_begin,
                    initargs=(self._open_context_with,),
                )
            return self._pool

    def close(self) -> None:
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=False, cancel_futures=True)


def _begin(open_context: Callable[[], StagingContext]) -> None:
    global _context  # noqa: PLW0603 - the one thing this process has
    threading.Thread(target=_end_with_the_server, name="parent", daemon=True).start()
    _context = open_context()
    # A batch has hundreds of thousands of objects without cycles: garbage collection takes longer than half
    # of the typing.
    gc.freeze()
    gc.set_threshold(1_000_000, 10, 10)


def _end_with_the_server() -> None:
    """End with the server: a killed server cannot stop its child, which would wait for the next batch for
    ever.
    """
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _stage(batch_range: BatchRange) -> StagedBatch:
    return stage(_open_context(), batch_range)


def _prestage(batch_range: BatchRange, expected: Expected) -> StagedBatch | None:
    return prestage(_open_context(), batch_range, expected)


def _is_current(batch_range: BatchRange, batch: StagedBatch) -> bool:
    return is_current(_open_context(), batch_range, batch)


def _open_context() -> StagingContext:
    assert _context is not None
    return _context


# These modules are heavy to import, so only this process imports them.


def stage(context: StagingContext, batch_range: BatchRange) -> StagedBatch:
    """Write the files of a job and return its description."""
    from ingest.staging.targets import table_states

    return _staged(context, batch_range, table_states(context, batch_range), prestaging=False)


def prestage(context: StagingContext, batch_range: BatchRange, expected: Expected) -> StagedBatch | None:
    """The same for a batch whose predecessor is still being landed; None if it must wait."""
    from ingest.staging.targets import table_states

    try:
        return _staged(context, batch_range, table_states(context, batch_range, expected), prestaging=True)
    except CannotPrestage:
        return None


def is_current(context: StagingContext, batch_range: BatchRange, batch: StagedBatch) -> bool:
    """Return whether a prestaged batch equals what `stage` would produce for this range now."""
    from ingest.staging.targets import digest, table_states

    return digest(table_states(context, batch_range)) == batch.state_digest


def _staged(
    context: StagingContext, batch_range: BatchRange, found: dict[TableName, TableState], *, prestaging: bool
) -> StagedBatch:
    """Stage the tables. On failure, files and dead letters are deleted: the next attempt has another id."""
    from ingest.staging.table import TableStaging
    from ingest.staging.targets import digest

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
    except (Unavailable, CannotPrestage, NeedsConversion):
        raise  # a storage or database error affects every table; NeedsConversion starts the table's own job
    except CatalogError as error:
        raise CannotStage(f"{'.'.join(table)}: {error.message}", table) from error
    except Exception as error:  # one table must not delay the tables that it was cut with
        what = f"{type(error).__name__}: {error}"
        raise CannotStage(f"{'.'.join(table)}: unexpected {what[:300]}", table) from error
