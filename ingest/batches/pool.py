"""Staging in a process of its own, so that typing a large batch never delays an acknowledgement.

The child is started at the first batch and again if it dies; a batch whose child died is cut again.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

from catalog.errors import Unavailable
from ingest.batches.cut import Cut, Ground, StagedBatch

_ground: Ground | None = None


class StagingPool:
    """Callable like `stage` without its ground; `open_ground` runs in the child and must be importable."""

    def __init__(self, open_ground: Callable[[], Ground]) -> None:
        self._open_ground = open_ground
        self._pool: ProcessPoolExecutor | None = None
        self._lock = threading.Lock()

    def __call__(self, cut: Cut) -> StagedBatch:
        pool = self._started()
        try:
            return pool.submit(_stage, cut).result()
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
                    initargs=(self._open_ground,),
                )
            return self._pool

    def close(self) -> None:
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=False, cancel_futures=True)


def _begin(open_ground: Callable[[], Ground]) -> None:
    global _ground  # noqa: PLW0603 - the one thing this process has
    threading.Thread(target=_end_with_the_server, name="parent", daemon=True).start()
    _ground = open_ground()


def _end_with_the_server() -> None:
    """A server that is killed tells nobody; its child would wait for the next batch for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _stage(cut: Cut) -> StagedBatch:
    from ingest.batches.stage import stage  # heavy: only this process has it

    assert _ground is not None
    return stage(_ground, cut)
