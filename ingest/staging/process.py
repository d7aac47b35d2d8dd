"""Staging in a process of its own, so that typing a large batch never delays an acknowledgement.

The child is started at the first batch and again if it dies; a batch whose child died is cut again.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

from catalog.errors import Unavailable
from ingest.staging.context import BatchRange, Expected, StagedBatch, StagingContext

T = TypeVar("T")

_context: StagingContext | None = None


class StagingProcess:
    """`open_context` runs in the child and must be importable."""

    def __init__(self, open_context: Callable[[], StagingContext]) -> None:
        self._open_context_with = open_context
        self._pool: ProcessPoolExecutor | None = None
        self._lock = threading.Lock()

    def stage(self, batch_range: BatchRange) -> StagedBatch:
        return self._done(_stage, batch_range)

    def prestage(self, batch_range: BatchRange, expected: Expected) -> StagedBatch | None:
        """None if the batch must wait: its table would change, or a change would become a dead letter."""
        return self._done(_prestage, batch_range, expected)

    def is_current(self, batch_range: BatchRange, batch: StagedBatch) -> bool:
        """Whether a prestaged batch equals what `stage` would write now."""
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
    # A batch is hundreds of thousands of objects, none of them in a cycle: looking for one takes longer than
    # half of the typing.
    gc.freeze()
    gc.set_threshold(1_000_000, 10, 10)


def _end_with_the_server() -> None:
    """A killed server cannot stop its child, which would wait for the next batch for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


# What does the work is heavy to import: only this process has it.


def _stage(batch_range: BatchRange) -> StagedBatch:
    from ingest.staging.stage import stage

    return stage(_open_context(), batch_range)


def _prestage(batch_range: BatchRange, expected: Expected) -> StagedBatch | None:
    from ingest.staging.stage import prestage

    return prestage(_open_context(), batch_range, expected)


def _is_current(batch_range: BatchRange, batch: StagedBatch) -> bool:
    from ingest.staging.stage import is_current

    return is_current(_open_context(), batch_range, batch)


def _open_context() -> StagingContext:
    assert _context is not None
    return _context
