"""The seed of a proof: new for each run, printed, and given back by CALVE_TEST_SEED to repeat a run."""

from __future__ import annotations

import os
import random
import subprocess

import pytest

from tests.harness.components import ROOT

VARIABLE = "CALVE_TEST_SEED"


@pytest.fixture
def seed() -> int:
    given = os.environ.get(VARIABLE)
    chosen = int(given) if given else random.SystemRandom().randrange(2**32)
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    print(f"\n{VARIABLE}={chosen} at {commit.stdout.strip() or 'no commit'}")
    return chosen
