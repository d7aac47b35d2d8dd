"""The pipeline with a Spark standalone cluster, PostgreSQL and S3: the form of production.

The master and the nodes are in network namespaces of their own, so these tests need root. The long form of
exactly once is sized by the environment where that is set: CALVE_PROOF_CHANGES, _TABLES, _KILLS.
"""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from tests.concurrency.seeds import seed
from tests.harness.stacks import Stacks
from tests.pipeline.cluster import NODES, SparkCluster, stack_with_cluster
from tests.pipeline.conftest import Pipeline
from tests.pipeline.debezium import Sending
from tests.pipeline.debezium_proof import require_equal, running
from tests.pipeline.exactly_once import Faults, Strike, long_size, prove
from tests.pipeline.model import Size
from tests.pipeline.worker import Worker

__all__ = ["seed"]  # a fixture
pytestmark = pytest.mark.xdist_group("pipeline")

SHORT = Size(changes=3_000, tables=2, kills=1)
MIDDLE = Size(changes=30_000, tables=4, kills=0)
# The driver takes an executor for dead after 10 seconds without a heartbeat, instead of after two minutes.
IMPATIENT = {
    "spark.executor.heartbeatInterval": "2s",
    "spark.network.timeout": "10s",
    "spark.network.timeoutInterval": "2s",
}
LONG_S = 25


@dataclass(frozen=True, slots=True)
class ClusterFaults:
    """One round is one of each, in random order; the nodes take turns."""

    faults: Faults
    cluster: SparkCluster

    def rounds(self, number: int) -> list[Strike]:
        nodes = itertools.cycle(NODES)
        return [
            strike
            for node, other in itertools.islice(itertools.pairwise(nodes), number)
            for strike in self._round(node, other)
        ]

    def _round(self, node: str, other: str) -> list[Strike]:
        def kill_executor() -> None:
            self.faults.wait_for_work()
            self.cluster.kill_executor(node)

        def disconnect() -> None:
            self.faults.wait_for_work()
            self.cluster.disconnect(other, lasts_s=self.faults.rng.uniform(2, 8))

        strikes = [self.faults.kill_server, kill_executor, self.faults.kill_worker, disconnect]
        self.faults.rng.shuffle(strikes)
        return strikes


@contextlib.contextmanager
def cluster_pipeline(
    stacks: Stacks, folder: Path, spark_settings: Mapping[str, str] | None = None
) -> Iterator[tuple[Pipeline, SparkCluster]]:
    with stack_with_cluster(stacks, folder) as (stack, cluster):
        worker = Worker(stack, folder / "worker", master=cluster.master, spark_settings=spark_settings)
        try:
            worker.start()
            yield Pipeline(stack, worker), cluster
        finally:
            worker.kill()


@pytest.mark.timeout(600)
def test_changes_land_once_while_everything_is_killed(stacks: Stacks, tmp_path: Path, seed: int) -> None:
    """Executors on two nodes. The server, an executor and the worker are killed, a node is disconnected."""
    with cluster_pipeline(stacks, tmp_path) as (pipeline, cluster):
        faults = ClusterFaults(Faults(pipeline, random.Random(seed), waits=False), cluster)
        prove(pipeline, SHORT, seed, faults.rounds(SHORT.kills))
        # Those of two workers, and the one that replaces the killed one.
        assert sum(cluster.executors.values()) > 2 * len(NODES)
        assert min(cluster.executors.values()) >= 2
        assert cluster.misplaced_files == []


@pytest.mark.proof
def test_many_changes_land_once_while_everything_is_killed(stacks: Stacks, tmp_path: Path, seed: int) -> None:
    size = long_size(kills=10)
    with cluster_pipeline(stacks, tmp_path) as (pipeline, cluster):
        faults = ClusterFaults(Faults(pipeline, random.Random(seed), waits=True), cluster)
        result = prove(pipeline, size, seed, faults.rounds(size.kills))
        started = cluster.executors
        assert sum(started.values()) > (size.kills + 1) * len(NODES)
        assert cluster.misplaced_files == []
    seen = ", ".join(f"{count} on {node}" for node, count in started.items())
    print(
        f"executors, worker and server killed {size.kills} times each, a node disconnected {size.kills} "
        f"times, executors started: {seen}: {result}"
    )


@pytest.mark.proof
def test_changes_land_once_while_executors_that_live_are_taken_for_dead(
    stacks: Stacks, tmp_path: Path, seed: int
) -> None:
    """Their tasks run on, and are run again by other executors."""
    with cluster_pipeline(stacks, tmp_path, IMPATIENT) as (pipeline, cluster):
        faults = Faults(pipeline, random.Random(seed), waits=True)

        def disconnect(node: str) -> None:
            faults.wait_for_work()
            cluster.disconnect(node, lasts_s=LONG_S)

        result = prove(pipeline, MIDDLE, seed, [partial(disconnect, node) for node in (*NODES, *NODES)])
        removed = pipeline.worker.log.read_text().count("with no recent heartbeats")
        assert removed >= 2 * len(NODES)
    print(f"{removed} executors were taken for dead: {result}")


@pytest.mark.proof
@pytest.mark.timeout(1_800)
def test_debezium_into_a_cluster(stacks: Stacks, tmp_path: Path) -> None:
    with (
        stack_with_cluster(stacks, tmp_path) as (stack, cluster),
        running(stack, tmp_path, sending=Sending(batches=True), rows=50, master=cluster.master) as run,
    ):
        run.worker.start(wait=False)
        run.debezium.start()
        run.wait_for_load()
        run.shop.corner_cases()
        for crash in (run.kill_debezium, run.kill_server, run.kill_worker):
            for _ in range(15):
                run.shop.step()
            run.wait_for_all()
            for _ in range(15):
                run.shop.step()
            crash()
        run.wait_for_all()
        require_equal(run)
        assert min(cluster.executors.values()) >= 2  # the first worker's and the second's
