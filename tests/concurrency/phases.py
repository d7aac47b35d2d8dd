"""Writers in lock-step: each stops at every gate until the test lets it go on, in an order that the test gives.

A gate is a failpoint of catalog/faults.py. `Steps` puts itself in the place of `faults.reach`; a thread that
it does not know passes. An order is a list of writers: each entry lets that writer go on to its next gate. A
writer that waits for a lock of the other cannot get there, so no gate is waited for longer than `BLOCKED_S`
while another writer stands inside its SQL transaction.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from catalog import faults
from catalog.changes import KeyTaken
from catalog.errors import CatalogError

BLOCKED_S = 0.015
PATIENCE_S = 60.0
STEPS = 5
# Five steps from the start to the end of a write.
GATES = frozenset({"write.decided", "write.file-written", "swap.row-set", "swap.before-commit"})
PUBLISH_GATES = frozenset({"publish.locked", "swap.row-set", "publish.before-close", "swap.before-commit"})
INSIDE = frozenset({"swap.row-set", "swap.before-commit", "publish.locked", "publish.before-close"})

Work = Callable[[], Any]


@dataclass(slots=True)
class Outcome:
    """How a writer ended, and between which places of the order."""

    answer: Any = None
    error: BaseException | None = None
    began_at: int = 0
    ended_at: int = 0


class Writer:
    """A thread that stops at gates."""

    def __init__(self, work: Work, gates: frozenset[str], passed: threading.Condition) -> None:
        self.outcome = Outcome()
        self.at: str | None = "start"  # the gate it stands at; None while it runs
        self.ended = False
        self.free = False  # no gate holds it any more
        self._work = work
        self._gates = gates
        self._passed = passed
        self._may_go = False
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        self._hold("start")
        try:
            self.outcome.answer = self._work()
        except (CatalogError, KeyTaken, AssertionError) as error:
            self.outcome.error = error
        except BaseException as error:
            self.outcome.error = error
            raise
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
    """Runs writers in a given order of steps."""

    def __init__(self, works: Sequence[tuple[Work, frozenset[str]]]) -> None:
        self._passed = threading.Condition()
        self._writers = [Writer(work, gates, self._passed) for work, gates in works]

    def run(self, order: Iterable[int], patch: pytest.MonkeyPatch) -> list[Outcome]:
        patch.setattr(faults, "reach", self._reach)
        for writer in self._writers:
            writer.thread.start()
        try:
            at = 0
            for at, index in enumerate(order):
                self._step(at, self._writers[index])
            self._finish(at + 1)
        finally:
            self._release()
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
        """Wait until the writer stands at a gate or has ended; False if it waits for a lock meanwhile."""
        others_inside = any(other is not writer and other.at in INSIDE for other in self._writers)
        wait_s = BLOCKED_S if others_inside else PATIENCE_S
        stands = self._passed.wait_for(lambda: writer.stands, wait_s)
        assert stands or others_inside, f"a writer hangs at {writer.at}"
        return stands

    def _note_ends(self, at: int) -> None:
        for writer in self._writers:
            if writer.ended and not writer.outcome.ended_at:
                writer.outcome.ended_at = at + 1

    def _finish(self, at: int) -> None:
        self._release()
        for writer in self._writers:
            writer.thread.join(PATIENCE_S)
            assert not writer.thread.is_alive(), "a writer does not end"
        self._note_ends(at)

    def _release(self) -> None:
        with self._passed:
            for writer in self._writers:
                writer.free = True
            self._passed.notify_all()


def all_orders(writers: int = 2, steps: int = STEPS) -> list[tuple[int, ...]]:
    """Every way to interleave the steps: 252 for 2 writers of 5 steps."""
    assert writers == 2, "more writers have too many orders to list"
    total = writers * steps
    orders = []
    for places in itertools.combinations(range(total), steps):
        orders.append(tuple(0 if place in places else 1 for place in range(total)))
    return orders
