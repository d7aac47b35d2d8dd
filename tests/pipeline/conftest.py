"""A stack with a Spark worker, shared by the tests of one process."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.clients.duckdb_client import DuckLake
from tests.harness.stacks import SHARED, STACKS, Stack, StackName, Stacks
from tests.pipeline.producer import Producer
from tests.pipeline.worker import Worker


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A running server and its worker."""

    stack: Stack
    worker: Worker

    @property
    def url(self) -> str:
        return self.stack.url

    def rows(self, query: str, warehouse: str = "main") -> list[tuple[object, ...]]:
        """As DuckDB sees it; the warehouse is attached as `lake`."""
        with DuckLake(self.stack, warehouse) as lake:
            return lake.sql(query)


class Pipelines:
    """Stacks of their own: tests that use the shared ones lease jobs themselves."""

    def __init__(self, stacks: Stacks, folder: Path, running: contextlib.ExitStack) -> None:
        self._stacks = stacks
        self._folder = folder
        self._running = running
        self._shared: dict[StackName, Pipeline] = {}

    def shared(self, name: StackName) -> Pipeline:
        if name not in self._shared:
            started = self._stacks.started(name, self._folder / name, SHARED)
            stack = self._running.enter_context(started)
            worker = Worker(stack, stack.server.folder / "worker")
            self._running.callback(worker.stop)
            worker.start()
            self._shared[name] = Pipeline(stack, worker)
        return self._shared[name]


@pytest.fixture(scope="session")
def pipelines(stacks: Stacks, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipelines]:
    with contextlib.ExitStack() as running:
        yield Pipelines(stacks, tmp_path_factory.mktemp("pipelines"), running)


@pytest.fixture(params=STACKS)
def pipeline(request: pytest.FixtureRequest, pipelines: Pipelines) -> Pipeline:
    """A server with a worker, on each stack in turn, shared: use names of your own, leave it alive."""
    return pipelines.shared(request.param)


@pytest.fixture
def produced() -> Iterator[Callable[[Pipeline, str], Producer]]:
    """Makes producers, and closes them at the end of the test."""
    made: list[Producer] = []

    def make(pipeline: Pipeline, source: str) -> Producer:
        made.append(Producer(pipeline.url, source))
        return made[-1]

    yield make
    for producer in made:
        producer.client.close()
