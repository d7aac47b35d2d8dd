"""Exactly once: whatever is sent twice, overtaken or killed, the tables equal a plain model, row for row."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.concurrency.seeds import seed
from tests.harness.stacks import STACKS, StackName, Stacks
from tests.pipeline.exactly_once import Faults, long_size, prove
from tests.pipeline.model import Size
from tests.pipeline.own import own_pipeline

__all__ = ["seed"]  # a fixture
pytestmark = pytest.mark.xdist_group("pipeline")

SHORT = Size(changes=6_000, tables=4, kills=1)


@pytest.mark.timeout(600)
def test_the_tables_equal_the_model_after_kills(stacks: Stacks, tmp_path: Path, seed: int) -> None:
    with own_pipeline(stacks, "embedded", tmp_path, only="landing") as pipeline:
        faults = Faults(pipeline, random.Random(seed), waits=False)
        prove(pipeline, SHORT, seed, [faults.kill_server_and_worker] * SHORT.kills)


@pytest.mark.proof
@pytest.mark.parametrize("name", STACKS)
def test_the_tables_equal_the_model_after_many_kills(
    stacks: Stacks, tmp_path: Path, seed: int, name: StackName
) -> None:
    size = long_size(kills=20)
    with own_pipeline(stacks, name, tmp_path) as pipeline:
        faults = Faults(pipeline, random.Random(seed), waits=True)
        result = prove(pipeline, size, seed, [faults.kill_server_and_worker] * size.kills)
    print(f"server and worker killed {size.kills} times each: {result}")
