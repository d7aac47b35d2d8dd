"""Servers that several security tests share: with recorded storage, with tokens, of many processes."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import pytest

from tests.harness.s3 import S3Server
from tests.harness.stacks import STACKS, Stack, StackName, Stacks
from tests.security.entry_points import Lake
from tests.security.guarded import Guarded
from tests.security.recorded_server import RecordedServer

T = TypeVar("T")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    folder = tmp_path_factory.mktemp("recorded")
    with (
        RecordedServer.started(folder, "file:///lake/wh") as server,
        contextlib.closing(Lake(server)) as lake,
    ):
        yield lake


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A place outside the warehouse that a stack could really write to."""

    location: str
    folder: Path

    def files(self) -> list[Path]:
        return [path for path in self.folder.rglob("*") if path.is_file()] if self.folder.exists() else []


@pytest.fixture
def elsewhere(stack: Stack, request: pytest.FixtureRequest) -> Elsewhere:
    """Beside the root of `main`, with the root's own text in front: what a careless comparison lets in."""
    location = f"{stack.warehouse_root}-evil-{uuid.uuid4().hex[:8]}"
    if stack.s3 is None:
        return Elsewhere(location, Path(location.removeprefix("file://")))
    server: S3Server = request.getfixturevalue("s3")
    return Elsewhere(location, server.path(location))


class StartedOnce(Generic[T]):
    """Something on each stack, made when it is first asked for and ended with the session."""

    def __init__(self, start: Callable[[StackName], T]) -> None:
        self._start = start
        self._started: dict[StackName, T] = {}

    def on(self, name: StackName) -> T:
        if name not in self._started:
            self._started[name] = self._start(name)
        return self._started[name]


@pytest.fixture(scope="session")
def guarded_stacks(
    stacks: Stacks, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StartedOnce[Guarded]]:
    with contextlib.ExitStack() as running:

        def start(name: StackName) -> Guarded:
            folder = tmp_path_factory.mktemp(f"guarded-{name}")
            settings = {"CALVE_AUTH": "tokens", "CALVE_FRESHNESS_TARGET_MS": "0"}  # batches are due at once
            stack = running.enter_context(stacks.started(name, folder, settings))
            return running.enter_context(contextlib.closing(Guarded(stack)))

        yield StartedOnce(start)


@pytest.fixture(params=STACKS)
def guarded(request: pytest.FixtureRequest, guarded_stacks: StartedOnce[Guarded]) -> Guarded:
    """A server that asks for tokens, with tenants, on each stack in turn."""
    return guarded_stacks.on(request.param)


@pytest.fixture(scope="session")
def crowded_stacks(stacks: Stacks, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartedOnce[Stack]]:
    with contextlib.ExitStack() as running:

        def start(name: StackName) -> Stack:
            folder = tmp_path_factory.mktemp(f"crowded-{name}")
            return running.enter_context(stacks.started(name, folder, {"CALVE_WORKERS": "3"}))

        yield StartedOnce(start)


@pytest.fixture(params=STACKS)
def crowded(request: pytest.FixtureRequest, crowded_stacks: StartedOnce[Stack]) -> Stack:
    """Three server processes on one database: what keeps callers apart cannot be a lock in one of them."""
    return crowded_stacks.on(request.param)
