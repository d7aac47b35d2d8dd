"""Servers that several security tests share: one with recorded storage, one that asks for tokens on each stack."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.harness.s3 import S3Server
from tests.harness.stacks import STACKS, Stack, StackName, Stacks
from tests.security.entry_points import Lake
from tests.security.guarded import Guarded
from tests.security.recorded_server import RecordedServer


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with RecordedServer.started(tmp_path_factory.mktemp("recorded"), "file:///lake/wh") as server:
        yield Lake(server)


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


@pytest.fixture(scope="session")
def guarded_stacks(stacks: Stacks, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[StackName, Guarded]]:
    """Those that were started so far, by name; all end with the session."""
    with contextlib.ExitStack() as running:
        started: dict[StackName, Guarded] = {}

        class Starting(dict[StackName, Guarded]):
            def __missing__(self, name: StackName) -> Guarded:
                folder = tmp_path_factory.mktemp(f"guarded-{name}")
                stack = running.enter_context(stacks.started(name, folder, {"CALVE_AUTH": "tokens"}))
                self[name] = running.enter_context(contextlib.closing(Guarded(stack)))
                return self[name]

        yield Starting(started)


@pytest.fixture(params=STACKS)
def guarded(request: pytest.FixtureRequest, guarded_stacks: dict[StackName, Guarded]) -> Guarded:
    """A server that asks for tokens, with tenants, on each stack in turn."""
    return guarded_stacks[request.param]
