"""Every process of a run must collect the same tests by the same names, or pytest-xdist runs none of them."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.harness import components


def test_names_of_tests_do_not_depend_on_the_moment_or_the_process(request: pytest.FixtureRequest) -> None:
    here = {_name(item.nodeid) for item in request.session.items}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "", "-p", "no:cacheprovider"],
        cwd=components.ROOT,
        check=False,
        env={**os.environ, "PYTHONHASHSEED": "4711", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert here - {_name(line) for line in done.stdout.splitlines()} == set()


def _name(nodeid: str) -> str:
    return nodeid.rpartition("@")[0] if nodeid.rpartition("@")[2].isidentifier() else nodeid
