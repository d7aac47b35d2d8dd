"""Each mistake of tests/faults/ingest_mistakes.py is found by the suite that is there to find it."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.ingest_mistakes import MISTAKES, Mistake
from tests.faults.mistaken_import import VARIABLE

ROOT = Path(__file__).parents[2]
PASSED, FAILED = 0, 1  # exit codes of pytest
IN_EVERY_RUN = MISTAKES[::8]
NAMES = [one.name for one in MISTAKES]


def run(suite: str, mistake: Mistake | None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-n0"]
    command += ["-p", "tests.faults.mistaken_import", "-k", "not postgres", suite]
    outer = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    chosen = {} if mistake is None else {VARIABLE: mistake.name}
    return subprocess.run(command, cwd=ROOT, env=outer | chosen, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("mistake", MISTAKES, ids=NAMES)
def test_the_module_has_the_right_text_once(mistake: Mistake) -> None:
    spec = importlib.util.find_spec(mistake.module)
    assert spec is not None
    assert spec.origin is not None
    text = Path(spec.origin).read_text()
    assert text.count(mistake.right) == 1
    assert mistake.right != mistake.wrong


def is_found(mistake: Mistake) -> None:
    done = run(mistake.suite, mistake)
    assert done.returncode == FAILED, f"{mistake.suite} ended with {done.returncode}:\n{done.stdout[-2000:]}"


@pytest.mark.parametrize("mistake", IN_EVERY_RUN, ids=[one.name for one in IN_EVERY_RUN])
def test_some_mistakes_are_found(mistake: Mistake) -> None:
    is_found(mistake)


@pytest.mark.proof
@pytest.mark.parametrize("mistake", MISTAKES, ids=NAMES)
def test_each_mistake_is_found(mistake: Mistake) -> None:
    is_found(mistake)


@pytest.mark.proof
@pytest.mark.parametrize("suite", sorted({one.suite for one in MISTAKES}))
def test_without_a_mistake_the_suite_passes(suite: str) -> None:
    done = run(suite, None)
    assert done.returncode == PASSED, done.stdout[-2000:]
