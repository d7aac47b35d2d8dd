"""Steps of compaction: each makes progress, and none is larger than it should be."""

from __future__ import annotations

from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maintenance.jobs import STEP_BYTES_MAX, STEP_BYTES_MIN, STEP_MS, StepSize
from spark_jobs.maintenance.archive import FILE_COST_BYTES
from spark_jobs.maintenance.steps import Policy, rewrite_options, size_bound, warm_up

MIB = 2**20
POLICY = Policy.model_validate(
    {"small-files-min": 12, "delete-files-max": 32, "delete-ratio": 0.2, "target-bytes": 128 * MIB}
)
SIZES = st.lists(st.integers(1, 200 * MIB), min_size=12, max_size=60)


def groups(sizes: list[int], options: dict[str, int]) -> list[list[int]]:
    """The groups of files of a partition that Iceberg rewrites with these options."""
    packed: list[list[int]] = []
    for size in (one for one in sizes if one < options["min-file-size-bytes"]):
        if packed and sum(packed[-1]) + size <= options["max-file-group-size-bytes"]:
            packed[-1].append(size)
        else:
            packed.append([size])
    return [group for group in packed if len(group) > 1 and len(group) >= options["min-input-files"]]


@given(SIZES, st.sampled_from([STEP_BYTES_MIN, 4 * MIB, STEP_BYTES_MAX]))
def test_a_table_with_enough_small_files_has_a_group_to_rewrite(sizes: list[int], step_bytes: int) -> None:
    bound = size_bound({"p": sizes}, POLICY.small_files_min, POLICY.target_bytes)
    if bound is None:
        return
    options = rewrite_options({"p": sizes}, bound, POLICY, step_bytes)
    assert groups(sizes, options), options
    small = [size for size in sizes if size < bound]
    mean_bytes = max(FILE_COST_BYTES, sum(small) // len(small))
    assert options["max-files-to-rewrite"] * mean_bytes <= max(step_bytes, 2 * mean_bytes)


def test_a_slow_step_makes_the_next_ones_smaller_and_quick_ones_larger_again() -> None:
    step = StepSize()
    step.took(STEP_BYTES_MAX, 8_000)
    assert step.bytes_max == STEP_BYTES_MAX // 8
    step.took(100, 60_000)
    assert step.bytes_max == STEP_BYTES_MIN
    step.took(10, 100)  # it had little to do, which says nothing
    assert step.bytes_max == STEP_BYTES_MIN
    for _ in range(10):
        step.took(step.bytes_max, 500)
    assert step.bytes_max == STEP_BYTES_MAX


@given(st.integers(STEP_BYTES_MIN // STEP_MS + 1, 10**6), st.integers(STEP_BYTES_MIN, STEP_BYTES_MAX))
def test_steps_take_at_most_two_seconds_after_one_that_took_longer(bytes_per_ms: int, first: int) -> None:
    """Whatever the speed of the machine is. A batch waits for one step of its table, and for no more."""
    step = StepSize(first)
    step.took(first, first // bytes_per_ms)
    for _ in range(20):
        ms = step.bytes_max // bytes_per_ms
        assert ms <= 2 * STEP_MS
        step.took(step.bytes_max, ms)


@given(st.lists(st.tuples(st.integers(0, 2**30), st.integers(0, 10**6)), max_size=30))
def test_a_step_has_a_size_between_its_bounds(steps: list[tuple[int, int]]) -> None:
    step = StepSize()
    for rewritten_bytes, ms in steps:
        before = step.bytes_max
        step.took(rewritten_bytes, ms)
        assert STEP_BYTES_MIN <= step.bytes_max <= STEP_BYTES_MAX
        assert ms <= 2 * STEP_MS or step.bytes_max <= max(STEP_BYTES_MIN, before // 2)


class _Spark:
    """As much of a session as the warm-up uses."""

    def __init__(self, master: str) -> None:
        self.master = master
        self.statements: list[str] = []
        self.sparkContext = self
        self.conf = self

    def newSession(self) -> _Spark:  # noqa: N802
        return self

    def set(self, key: str, value: str) -> None:
        pass

    def sql(self, statement: str) -> _Spark:
        self.statements.append(statement)
        return self

    def collect(self) -> None:
        pass


@pytest.mark.parametrize(("master", "warms_up"), [("local[2]", True), ("spark://192.0.2.1:7077", False)])
def test_executors_on_other_machines_get_no_table_in_a_folder_of_the_driver(
    master: str, warms_up: bool
) -> None:
    spark = _Spark(master)
    warm_up(cast(Any, spark))
    assert bool(spark.statements) is warms_up
