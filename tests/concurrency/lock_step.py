"""Writers in lock-step: each stops at every gate until the test lets it go on, in the order of the test.

A gate is a failpoint of catalog/faults.py. `Steps` puts itself in the place of `faults.reach`; a thread that
it does not know passes. An order is a list of writers: each entry lets that writer go on to its next gate. A
writer that waits for a lock of the other cannot get there, so no gate is waited for longer than `BLOCKED_S`
while another writer stands inside its SQL transaction.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from catalog import faults
from catalog.errors import CatalogError
from catalog.models import IdempotencyKeyConflict
from catalog.services.catalog import Catalog
from tests.concurrency.catalog_address import CatalogAddress

BLOCKED_S = 0.015
PATIENCE_S = 60.0
STEPS = 5
# Five steps from the start to the end of a write.
GATES = frozenset({"write.decided", "write.file-written", "swap.row-set", "swap.before-commit"})
PUBLISH_GATES = frozenset({"publish.locked", "swap.row-set", "publish.before-close", "swap.before-commit"})
INSIDE = frozenset(
    {"swap.begun", "swap.row-set", "swap.before-commit", "publish.locked", "publish.before-close"}
)

Work = Callable[[], Any]


@dataclass(slots=True)
class Outcome:
    """How a writer ended, and between which places of the order."""

    answer: Any = None
    error: BaseException | None = None
    began_at: int = 0
    ended_at: int = 0


class Lane:
    """A catalog with one thread of its own, which is kept: a thread holds a connection for its reads."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self._thread = ThreadPoolExecutor(1)

    def submit(self, work: Work) -> Future[Any]:
        return self._thread.submit(work)

    def close(self) -> None:
        self._thread.submit(self.catalog.database.close).result()
        self._thread.shutdown()


@contextmanager
def lanes(address: CatalogAddress, count: int = 2) -> Iterator[list[Lane]]:
    """Catalogs that share nothing but the database and the files, like those of several server processes."""
    with ExitStack() as stack:
        opened = [Lane(stack.enter_context(address.opened())) for _ in range(count)]
        for lane in opened:
            stack.callback(lane.close)
        yield opened


class Writer:
    """A write that stops at gates."""

    def __init__(self, work: Work, gates: frozenset[str], passed: threading.Condition) -> None:
        self.outcome = Outcome()
        self.at: str | None = None  # the gate it stands at; None while it runs
        self.ended = False
        self.free = False  # no gate holds it any more
        self.thread: threading.Thread | None = None
        self._work = work
        self._gates = gates
        self._passed = passed
        self._may_go = False

    def run(self) -> None:
        self.thread = threading.current_thread()
        self._hold("start")
        try:
            self.outcome.answer = self._work()
        except (CatalogError, IdempotencyKeyConflict) as error:
            self.outcome.error = error
        finally:
            with self._passed:
                self.ended, self.at = True, None
                self._passed.notify_all()

    def reach(self, name: str) -> None:
        if name in self._gates:
            self._hold(name)

    def _hold(self, name: str) -> None:
        with self._passed:
            if self.free:
                return
            self.at = name
            self._passed.notify_all()
            assert self._passed.wait_for(lambda: self._may_go or self.free, PATIENCE_S)
            self._may_go, self.at = False, None

    def let_go(self) -> None:
        """Call with the condition held."""
        self._may_go = True
        self.at = None
        self._passed.notify_all()

    @property
    def stands(self) -> bool:
        return self.ended or self.at is not None


class Steps:
    """Runs writers, each on a lane of its own, in a given order of steps."""

    def __init__(self, lanes_: Sequence[Lane], works: Sequence[tuple[Work, frozenset[str]]]) -> None:
        self._passed = threading.Condition()
        self._lanes = lanes_
        self._writers = [Writer(work, gates, self._passed) for work, gates in works]

    def run(self, order: Iterable[int], patch: pytest.MonkeyPatch) -> list[Outcome]:
        patch.setattr(faults, "reach", self._reach)
        ends = [lane.submit(writer.run) for lane, writer in zip(self._lanes, self._writers, strict=True)]
        at = 0
        try:
            for at, index in enumerate(order):
                self._step(at, self._writers[index])
        finally:
            self._release()
        for end in ends:
            end.result(PATIENCE_S)
        self._note_ends(at + 1)
        return [writer.outcome for writer in self._writers]

    def _reach(self, name: str) -> None:
        for writer in self._writers:
            if writer.thread is threading.current_thread():
                writer.reach(name)

    def _step(self, at: int, writer: Writer) -> None:
        with self._passed:
            if not self._settled(writer):
                return  # still blocked from its last step
            if writer.ended:
                return
            if writer.at == "start":
                writer.outcome.began_at = at
            writer.let_go()
            self._settled(writer)
            self._note_ends(at)

    def _settled(self, writer: Writer) -> bool:
        """Wait until the writer stands at a gate or has ended; False if it waits for a lock meanwhile.

        On a busy machine a writer may only seem to wait, and take the lock later: the others are looked at
        again and again.
        """
        for _ in range(int(PATIENCE_S / BLOCKED_S)):
            if self._passed.wait_for(lambda: writer.stands, BLOCKED_S):
                return True
            if any(other is not writer and other.at in INSIDE for other in self._writers):
                return False
        raise AssertionError("a writer hangs")

    def _note_ends(self, at: int) -> None:
        for writer in self._writers:
            if writer.ended and not writer.outcome.ended_at:
                writer.outcome.ended_at = at + 1

    def _release(self) -> None:
        with self._passed:
            for writer in self._writers:
                writer.free = True
            self._passed.notify_all()


def all_orders(writers: int = 2, steps: int = STEPS) -> list[tuple[int, ...]]:
    """Every way to interleave the steps: 252 for 2 writers of 5 steps."""
    assert writers == 2, "more writers have too many orders to list"
    total = range(writers * steps)
    firsts = itertools.combinations(total, steps)
    return [tuple(0 if place in first else 1 for place in total) for first in firsts]
