"""A time-compressed year through the whole pipeline: nothing grows, and every kept moment can be read.

The long form is sized by the environment where that is set: CALVE_PROOF_PUBLISHES, CALVE_PROOF_KILLS.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest

from tests.concurrency.seeds import seed
from tests.harness.stacks import STACKS, StackName, Stacks
from tests.pipeline.own import own_pipeline
from tests.pipeline.year import Year
from tests.pipeline.year_sizes import Sample, shown

__all__ = ["seed"]  # a fixture
pytestmark = pytest.mark.xdist_group("pipeline")

SHORT = 40
DOCUMENT_BYTES_MAX = 10**6
GROWTH_MAX = 1.3
FEW_FILES = 60  # ten tables between two compactions: less than this is no growth
SETTINGS = {
    "CALVE_FRESHNESS_TARGET_MS": "100",
    "CALVE_MAINTENANCE_INTERVAL_S": "0.5",
    "CALVE_READER_GRACE_S": "2",
    "CALVE_READER_PIN_S": "5",
    "CALVE_IDEMPOTENCY_LIFETIME_S": "20",
}


def settings(kept_moments: str) -> dict[str, str]:
    return {**SETTINGS, "CALVE_KEPT_MOMENTS": kept_moments}


@pytest.mark.timeout(600)
def test_nothing_grows_and_kept_moments_stay_readable(stacks: Stacks, tmp_path: Path, seed: int) -> None:
    with (
        own_pipeline(stacks, "embedded", tmp_path, settings("all:3s, 2s:10s, 5s:20s")) as pipeline,
        contextlib.closing(Year(pipeline, seed)) as year,
    ):
        samples = year.run(SHORT)
        kept = year.read_all_kept()
    print(shown(samples))
    assert kept > 3
    assert samples[-1].document_bytes < DOCUMENT_BYTES_MAX
    assert samples[-1].snapshots < SHORT, "no snapshot has expired"
    assert samples[-1].live_data_files < 10 * SHORT, "no file was joined"


@pytest.mark.proof
@pytest.mark.timeout(6 * 3600)
@pytest.mark.parametrize("name", STACKS)
def test_a_year_of_publishes_with_kills(stacks: Stacks, tmp_path: Path, seed: int, name: StackName) -> None:
    publishes = int(os.environ.get("CALVE_PROOF_PUBLISHES", "5000"))
    kills = int(os.environ.get("CALVE_PROOF_KILLS", str(max(2, publishes // 100))))
    # A fifth of the run fills all tiers: a publish takes about half a second.
    reach_s = max(20, publishes // 10)
    tiers = f"all:{reach_s // 10}s, {max(1, reach_s // 40)}s:{reach_s // 2}s, {reach_s // 8}s:{reach_s}s"
    with (
        own_pipeline(stacks, name, tmp_path, settings(tiers)) as pipeline,
        contextlib.closing(Year(pipeline, seed)) as year,
    ):
        samples = year.run(publishes, kills=kills, read_every=10)
        kept = year.read_all_kept()
    print(f"{publishes} publishes, {kills} kills, kept moments: {tiers}")
    print(f"{kept} kept moments read in full; the outside writer had {year.outside.conflicts} conflicts")
    print(shown(samples))
    require_flat(samples[1], samples[2])


def require_flat(half: Sample, end: Sample) -> None:
    """What is on disk and in SQL after the whole run, beside what was there after its half."""
    assert end.document_bytes <= DOCUMENT_BYTES_MAX
    for name in ("document_bytes", "snapshots", "database_bytes"):
        assert getattr(end, name) <= GROWTH_MAX * getattr(half, name), name
    for name in ("files", "live_data_files", "live_delete_files"):
        assert getattr(end, name) <= GROWTH_MAX * getattr(half, name) + FEW_FILES, name
