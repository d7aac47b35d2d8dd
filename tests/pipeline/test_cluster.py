"""The pipeline with a Spark standalone cluster, PostgreSQL and S3: the form of production."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.stacks import Stacks
from tests.pipeline.cluster import NODES, SparkCluster
from tests.pipeline.conftest import Pipeline
from tests.pipeline.debezium import Sending
from tests.pipeline.debezium_proof import require_equal, running
from tests.pipeline.producer import Producer, flush
from tests.pipeline.worker import Worker

pytestmark = [pytest.mark.proof, pytest.mark.timeout(1_800)]


KEYS = 500


def test_changes_land_once_while_everything_is_killed(stacks: Stacks, tmp_path: Path) -> None:
    """Executors on two nodes; an executor, the worker and the server are killed once each."""
    with (
        SparkCluster.started(tmp_path / "cluster") as cluster,
        stacks.started("postgres-s3", tmp_path / "stack") as stack,
    ):
        worker = Worker(stack, tmp_path / "worker", master=cluster.address)
        producer = Producer(stack.url, "cluster")
        pipeline, sent = Pipeline(stack, worker), 0
        try:
            worker.start()
            for number, kill in enumerate(
                (None, cluster.kill_executor, worker.kill, stack.server.kill, None)
            ):
                for table in ("a", "b"):
                    events = [
                        producer.event("UPDATE", f"cluster.{table}", {"id": id_}, {"id": id_, "n": number})
                        for id_ in range(number, KEYS + number)
                    ]
                    producer.insist(events)
                    sent += len(events)
                if kill is not None:
                    kill()
                    if kill == worker.kill:
                        worker.start(wait=False)
                    elif kill == stack.server.kill:
                        stack.server.start()
            flush(stack.url, timeout_s=600)
            for table in ("a", "b"):
                found = pipeline.rows(f"SELECT id, n FROM lake.cluster.{table} ORDER BY id")
                assert found == [(id_, min(id_, 4)) for id_ in range(KEYS + 4)]
                (changes,) = pipeline.rows(
                    f"SELECT count(*), count(DISTINCT (id, n)) FROM lake.cluster.{table}__changes"
                )
                assert changes == (sent // 2, sent // 2)
            assert cluster.executors >= 2 * NODES  # those of two workers
        finally:
            producer.client.close()
            worker.kill()


def test_debezium_into_a_cluster(stacks: Stacks, tmp_path: Path) -> None:
    with (
        SparkCluster.started(tmp_path / "cluster") as cluster,
        stacks.started("postgres-s3", tmp_path / "stack") as stack,
        running(stack, tmp_path, sending=Sending(batches=True), rows=50, master=cluster.address) as run,
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
        assert cluster.executors >= 2  # the first worker's and the second's
