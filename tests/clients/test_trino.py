"""Trino with tables in local files, and with tables in S3 and tokens. The steps are in trino_steps.py.

make proof ARGS='tests/clients/test_trino.py -s'      prints the number of steps
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.clients.trino_server import Trino, TrinoRefused, properties
from tests.clients.trino_steps import ROLE_STEPS, STEPS, Step
from tests.harness.stacks import STACKS, Stack, Stacks

pytestmark = [pytest.mark.proof, pytest.mark.timeout(3600)]
PURGE_S = 120


@pytest.fixture(scope="module")
def lakes(stacks: Stacks, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Stack]]:
    """A server on each stack: the embedded one is open, the other one asks for tokens."""
    folder = tmp_path_factory.mktemp("lakes")
    with (
        stacks.started("embedded", folder / "embedded") as files,
        stacks.started("postgres-s3", folder / "s3", {"CALVE_AUTH": "tokens"}) as s3,
    ):
        yield {"embedded": files, "postgres-s3": s3}


@pytest.fixture(scope="module")
def trino(lakes: dict[str, Stack], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trino]:
    """One Trino that looks at both: a start costs more than all steps."""
    files, s3 = lakes["embedded"], lakes["postgres-s3"]
    writer, reader = (f"{role}:{_secret(s3, role)}" for role in ("writer", "reader"))
    server = Trino(
        tmp_path_factory.mktemp("trino"),
        {
            "embedded": properties(files),
            "embedded_now": properties(files, "main@now"),
            "s3": properties(s3, credential=writer),
            "s3_now": properties(s3, "main@now", credential=writer),
            "s3_reader": properties(s3, credential=reader),
        },
    )
    server.start()
    try:
        yield server
    finally:
        server.stop()


@pytest.mark.parametrize("stack_name", STACKS)
def test_trino_works_unchanged(
    stack_name: str, lakes: dict[str, Stack], trino: Trino, stacks: Stacks
) -> None:
    catalog = "embedded" if stack_name == "embedded" else "s3"
    kept = _run(trino, catalog, STEPS)
    # Trino's DROP TABLE requests a purge, which the server carries out later.
    location = kept["dropped_file"]
    file = stacks.s3.path(location) if catalog == "s3" else Path(urlsplit(location).path)
    until_s = time.monotonic() + PURGE_S
    while file.exists():
        assert time.monotonic() < until_s, f"{file} is still there {PURGE_S} s after DROP TABLE"
        time.sleep(0.2)


def test_trino_shows_tokens_and_feels_roles(trino: Trino) -> None:
    _run(trino, "s3", ROLE_STEPS)


def _secret(stack: Stack, role: str) -> str:
    ended = stack.server.command("principal", "create", role, "--role", role)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.strip()


def _run(trino: Trino, catalog: str, steps: Sequence[Step]) -> dict[str, str]:
    """Run all steps, also after one that was wrong; what they kept under a name."""
    kept: dict[str, str] = {}
    wrong = []
    for step in steps:
        statement = step.sql.format(c=catalog, **kept)
        if found := _fault(trino, step, statement, kept):
            wrong.append(f"{statement}\n    {found}")
    print(f"\nTrino, {catalog}: {len(steps) - len(wrong)} of {len(steps)} steps")
    assert not wrong, "\n".join(wrong)
    return kept


def _fault(trino: Trino, step: Step, statement: str, kept: dict[str, str]) -> str | None:
    """What was wrong with a step, or None."""
    try:
        rows = trino.sql(statement)
    except TrinoRefused as refused:
        expected = step.fails is not None and step.fails in str(refused)
        return None if expected else f"failed: {refused}"
    if step.fails is not None:
        return f"should have failed with: {step.fails}"
    if step.name is not None:
        kept[step.name] = str(rows[0][0])
    if step.rows is not None and rows != step.rows:
        return f"answered {rows} instead of {step.rows}"
    return None
