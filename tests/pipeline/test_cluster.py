"""The pipeline with a Spark standalone cluster, PostgreSQL and S3: the form of production."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.stacks import Stacks
from tests.pipeline.cluster import SparkCluster
from tests.pipeline.debezium import Sending
from tests.pipeline.debezium_proof import require_equal, running

pytestmark = [pytest.mark.proof, pytest.mark.timeout(1_800)]


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
