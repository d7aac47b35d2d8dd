"""Child processes of a measurement that answer by a pipe; none outlives its block."""

from __future__ import annotations

import contextlib
import multiprocessing
from collections.abc import Iterator
from typing import Any

END_S = 5.0


@contextlib.contextmanager
def ended(*children: multiprocessing.context.SpawnProcess) -> Iterator[None]:
    try:
        yield
    finally:
        for child in children:
            if child.pid is not None:
                child.join(END_S)
                if child.is_alive():
                    child.kill()


def heard(pipe: Any, child: multiprocessing.context.SpawnProcess) -> Any:
    while not pipe.poll(0.5):
        if not child.is_alive() and not pipe.poll(0):
            raise RuntimeError(f"{child.name} ended with {child.exitcode}; its reason is above")
    return pipe.recv()
