"""The pinned requirements: complete, exact, without addresses, and what is really installed."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from scripts import pin

PARTS = ("calve", "catalog", "ingest", "maintenance", "query", "spark_jobs")
OURS = {*PARTS, "tests", "bench", "scripts"}
PIN = re.compile(r"[a-z0-9][a-z0-9-]*==[0-9][0-9a-z.]*")


@pytest.mark.parametrize("path", [pin.RUN_TIME, pin.DEVELOPMENT], ids=lambda path: path.name)
def test_every_line_is_an_exact_pin(path: Path) -> None:
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    assert lines
    assert not [line for line in lines if line != "-r requirements.txt" and not PIN.fullmatch(line)]


def test_the_files_are_what_pyproject_asks_for_and_what_is_installed() -> None:
    run_time, development = pin.render()
    assert pin.RUN_TIME.read_text() == run_time, "run `make pins`"
    assert pin.DEVELOPMENT.read_text() == development, "run `make pins`"


def _guests(*folders: str) -> Iterator[str]:
    """The third-party packages that these folders import."""
    for path in (path for folder in folders for path in (pin.ROOT / folder).rglob("*.py")):
        for node in _statements(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module]
            yield from (name.partition(".")[0] for name in names)


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """All statements below a node. `ast.walk` looks into every expression too, which takes seconds."""
    for below in ast.iter_child_nodes(node):
        if not isinstance(below, ast.expr):
            yield below
            yield from _statements(below)


def test_whatever_is_imported_is_asked_for_by_name() -> None:
    """What another package happens to bring along may be gone with its next version."""
    run_time, development = (
        {canonicalize_name(Requirement(text).name) for text in texts} for texts in pin.direct()
    )
    providers = packages_distributions()
    frames = {"pandas", "polars", "pymysql"}  # the client uses them where they are installed
    around = ("tests", "bench", "scripts")
    for folders, stated in ((PARTS, run_time | frames), (around, run_time | development)):
        imported = {name for name in _guests(*folders) if name not in OURS | sys.stdlib_module_names}
        unstated = {
            name
            for name in imported
            if not stated & {canonicalize_name(provider) for provider in providers.get(name, [])}
        }
        assert not unstated, f"{folders} import {unstated}"
