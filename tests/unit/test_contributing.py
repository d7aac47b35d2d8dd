"""CONTRIBUTING.md and ARCHITECTURE.md name files that exist, and all modules that decide a 403 or a 409."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi import APIRouter
from fastapi.routing import APIRoute

from catalog.api.lake import warehouses as routes
from catalog.services import warehouses as services
from tests.harness.components import ROOT

CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()
PARTS = ("calve", "catalog", "ingest", "maintenance", "query")
# Paths in ARCHITECTURE.md are relative to the part that a section describes.
FOLDERS = ("", "calve", "catalog", "catalog/api", "catalog/store", "ingest", "query")


def _paths(page: str) -> list[str]:
    return sorted(set(re.findall(r"`([\w./-]+(?:\.py|\.md|\.toml|\.txt|/))(?::\w+)?`", page)))


def _section(title: str) -> str:
    return CONTRIBUTING.partition(f"### {title}\n")[2].partition("\n#")[0]


def _modules(folders: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield str(path.relative_to(ROOT)), path.read_text()


def _raising(folders: tuple[str, ...], *errors: str) -> set[str]:
    statement = re.compile(rf"\b(?:raise|return) (?:{'|'.join(errors)})\(")
    return {name for name, text in _modules(folders) if statement.search(text)}


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_every_path_on_the_page_exists(page: str) -> None:
    paths = _paths((ROOT / page).read_text())
    missing = [path for path in paths if not any((ROOT / folder / path).exists() for folder in FOLDERS)]
    assert paths
    assert not missing


def test_the_page_names_every_module_that_refuses_with_403() -> None:
    named = {
        path for path in _paths(_section("Find why a request was refused with 403")) if Path(path).suffix
    }
    assert named == _raising(PARTS, "Forbidden") | {"calve/http/origin.py"}


def test_the_page_names_every_module_that_decides_a_conflict_of_a_commit() -> None:
    named = {
        path for path in _paths(_section("Find where a 409 on a commit is decided")) if Path(path).suffix
    }
    assert named == _raising(("catalog",), "CommitFailed", "RequirementFailed")


def test_the_example_of_a_route_works(monkeypatch: pytest.MonkeyPatch) -> None:
    section = _section("Add a route under /lake/v1")
    service, handler = (
        textwrap.dedent(block) for block in re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    )
    made = dict(vars(services))
    exec(service, made)
    monkeypatch.setattr(services, "newest_number", made["newest_number"], raising=False)
    router = APIRouter()
    exec(handler, dict(vars(routes)) | {"router": router})
    (route,) = router.routes
    assert isinstance(route, APIRoute)
    assert (route.operation_id, route.path) == ("loadNumber", "/warehouses/{warehouse}/number")
