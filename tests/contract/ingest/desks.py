"""Servers without a worker, one on each stack, for a module of tests: a worker by hand takes its place."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path

from tests.harness.stacks import Stack, StackName, Stacks


class Desks:
    """Started when they are first asked for. On a shared server a real worker may be quicker."""

    def __init__(
        self, stacks: Stacks, folder: Path, running: contextlib.ExitStack, settings: Mapping[str, str]
    ) -> None:
        self._stacks, self._folder, self._running, self._settings = stacks, folder, running, settings
        self._started: dict[StackName, Stack] = {}

    def on(self, name: StackName) -> Stack:
        if name not in self._started:
            started = self._stacks.started(name, self._folder / name, self._settings)
            self._started[name] = self._running.enter_context(started)
        return self._started[name]
