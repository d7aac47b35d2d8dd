"""Every process of a run must collect the same tests by the same names, or pytest-xdist runs none of them.

`make test` has two processes with different hash seeds, and pytest-xdist compares what they collect before it
runs a test. `make proof` has one process, so the comparison is made here.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.harness import components


@pytest.mark.proof
def test_names_of_tests_do_not_depend_on_the_moment_or_the_process() -> None:
    first, second = _collected("1"), _collected("4711")
    assert f"{__name__.replace('.', '/')}.py" in {name.partition("::")[0] for name in first}
    assert first == second


def _collected(hash_seed: str) -> list[str]:
    """The names of all tests, in their order, as another process collects them."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "", "-p", "no:cacheprovider"],
        cwd=components.ROOT,
        check=False,
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return [line for line in done.stdout.splitlines() if "::" in line]
