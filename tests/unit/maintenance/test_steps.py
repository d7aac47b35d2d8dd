"""Steps of compaction: each makes progress, and none is larger than it should be."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from maintenance.jobs import STEP_BYTES_MAX, STEP_BYTES_MIN, StepSize
from spark_jobs.maintenance import FILE_COST_BYTES, Policy, rewrite_options, size_bound

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
