"""Import direction: the contracts of pyproject.toml, and what the linter cannot say."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.components import ROOT

PARTS = ("calve", "catalog", "ingest", "maintenance", "query", "spark_jobs")
# The pure core: everything may use it, it uses nobody, and orjson is its only guest.
CORE = ("metadata", "models.py", "names.py", "locations.py", "moments.py", "errors.py")
CORE_MODULES = {f"catalog.{part.removesuffix('.py')}" for part in CORE}
ALLOWED_GUESTS = {"orjson"}


def _core_files() -> Iterator[Path]:
    for part in CORE:
        path = ROOT / "catalog" / part
        yield from path.rglob("*.py") if path.is_dir() else [path]


def _imported(path: Path) -> Iterator[str]:
    """The modules that a file names in its imports, wherever they stand in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            # `from catalog import errors` means catalog.errors
            yield from (
                [f"{node.module}.{alias.name}" for alias in node.names]
                if node.module == "catalog"
                else [node.module]
            )


def test_the_contracts_hold() -> None:
    ended = subprocess.run(
        [Path(sys.executable).parent / "lint-imports", "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_the_contracts_see_every_part() -> None:
    """A new top-level package is invisible to the linter until it is named among its roots."""
    linter = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    present = {part for part in PARTS if (ROOT / part / "__init__.py").exists()}
    assert present == set(linter["root_packages"])


@pytest.mark.parametrize("path", sorted(_core_files()), ids=lambda path: str(path.relative_to(ROOT)))
def test_the_core_imports_only_itself_the_standard_library_and_orjson(path: Path) -> None:
    for module in _imported(path):
        top = module.partition(".")[0]
        inside = any(module == core or module.startswith(f"{core}.") for core in CORE_MODULES)
        assert inside or top in ALLOWED_GUESTS or top in sys.stdlib_module_names, (
            f"{path.name} imports {module}"
        )
