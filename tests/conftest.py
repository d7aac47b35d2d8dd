"""Fixtures of all tests, and the order in which they run.

Quick tests run first, so that a simple mistake shows within seconds. With pytest-xdist each worker process
has its own components. Tests that share something expensive stay together on one worker: a Spark session, a
pipeline, or a fixture of their module. The largest groups begin when many single tests are still to come, so
that no worker is idle at the end.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from _pytest.nodeid import NodeId
from hypothesis import HealthCheck, settings

from calve.settings_sources import TOOLING, TOOLING_PREFIXES
from tests.harness import components
from tests.harness.postgres import PostgresServer
from tests.harness.s3 import S3Server
from tests.harness.stacks import STACKS, Stack, Stacks

# Directories in their order; one that is not named here runs after the pipeline.
ORDER = ("unit", "harness", "contract", "clients", "pipeline", "", "security", "concurrency", "faults")
# One JVM with one session is expensive, so everything that uses it goes to one worker.
GROUPS = {"spark": "spark", "pipeline": "pipeline"}

# Settings come from the tests alone: neither from the variables nor from the calve.toml of a developer.
for name in [name for name in os.environ if name.startswith("CALVE_") and name not in TOOLING]:
    if not name.startswith(TOOLING_PREFIXES):
        del os.environ[name]
os.environ["CALVE_CONFIG"] = os.devnull
# Spark sessions of the tests use the jars that `make components` fetched.
os.environ.setdefault("CALVE_JARS", str(components.JARS))

# How long an example takes depends on what else the machine does, and says nothing about the code.
settings.register_profile(
    "calve", parent=settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("calve")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items.sort(key=_rank)  # stable: within a rank the order of collection stays
    for item in items:
        group = _group(item)
        if group is not None:
            item.add_marker(pytest.mark.xdist_group(group))
        marked = item.get_closest_marker("xdist_group")
        if marked is not None and getattr(config.option, "loadgroup", False):
            # xdist 3.8 writes the group where pytest 9.2 no longer looks for it.
            item._id = NodeId.parse(f"{item.nodeid}@{marked.args[0]}")


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """No bytes in a test's name: packed ones hold the time, and the processes of a run must agree."""
    return argname if isinstance(val, bytes) else None


def _rank(item: pytest.Item) -> int:
    part = item.path.relative_to(components.ROOT / "tests").parts[0]
    return ORDER.index(part if part in ORDER else "")


def _group(item: pytest.Item) -> str | None:
    """The group of a test that names none itself. Without one it may run in any process."""
    fixtures = getattr(item, "fixturenames", ())
    for fixture, group in GROUPS.items():
        if fixture in fixtures and _rank(item) > 0:  # a unit test has a stub of that name
            return group
    if not isinstance(item, pytest.Function) or item.get_closest_marker("xdist_group") is not None:
        return None
    # A fixture of a module would be made in each process that runs tests of the module.
    definitions = item._fixtureinfo.name2fixturedefs
    shared = [name for name in fixtures if name in definitions and definitions[name][-1].scope == "module"]
    if not shared:
        return None
    indices = item.callspec.indices if hasattr(item, "callspec") else {}
    return "_".join([item.module.__name__, *(str(indices[name]) for name in shared if name in indices)])


@pytest.fixture(scope="session")
def stacks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stacks]:
    """Starts stacks with settings of their own: `with stacks.started("embedded", tmp_path, {…}) as stack`."""
    with contextlib.ExitStack() as running:
        yield Stacks(tmp_path_factory.mktemp("stacks"), running)


@pytest.fixture(scope="session")
def postgres(stacks: Stacks) -> PostgresServer:
    """A real PostgreSQL; `postgres.database()` gives an empty database."""
    return stacks.postgres


@pytest.fixture(scope="session")
def s3(stacks: Stacks) -> S3Server:
    """A real S3 server; `s3.bucket()` gives an empty bucket."""
    return stacks.s3


# The parameter is on a function fixture, and the servers live beyond it: a parametrised session fixture would
# be torn down at each change of the parameter.
@pytest.fixture(params=STACKS)
def stack(request: pytest.FixtureRequest, stacks: Stacks) -> Stack:
    """A running server on each stack in turn, shared by all tests: use names of your own, leave it alive."""
    return stacks.shared(request.param)


@pytest.fixture(params=STACKS)
def own_stack(request: pytest.FixtureRequest, stacks: Stacks, tmp_path: Path) -> Iterator[Stack]:
    """A fresh, empty stack for this test alone, on each stack in turn: may be killed, filled and broken."""
    with stacks.started(request.param, tmp_path / "own") as started:
        yield started
