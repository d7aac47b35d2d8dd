"""ARCHITECTURE.md is short, and the modules that it lists for requests are current."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.harness.components import ROOT

PAGE = ROOT / "ARCHITECTURE.md"
WORDS_MAX = 1_500
TERMS_MAX = 40
LOAD_MODULES_MAX = 10  # of catalog/
COMMIT_MODULES_MAX = 16  # of catalog/
QUERY_MODULES_MAX = 12
CHANGE_MODULES_MAX = 32  # of ingest/, from the request to the publish
DEBEZIUM_MODULES_MAX = 34  # the same for a change that Debezium sends
WALK_TIMEOUT_S = 300


def test_the_page_is_short() -> None:
    """Without the lists of modules, which are for looking things up."""
    text = re.sub(r"```.*?```", "", PAGE.read_text(), flags=re.DOTALL)
    assert len(text.split()) <= WORDS_MAX


def test_the_glossary_is_short_and_sorted() -> None:
    glossary = PAGE.read_text().partition("## Glossary")[2]
    terms = re.findall(r"^\| ([^|]+?) +\|", glossary, re.MULTILINE)[1:]
    assert 0 < len(terms) <= TERMS_MAX
    assert terms == sorted(terms)


@pytest.mark.parametrize("request_name", ["load", "commit", "change", "query"])
def test_the_modules_of_a_request_are_current(request_name: str) -> None:
    assert sorted(_listed(request_name)) == sorted(_traced(request_name))


@pytest.mark.parametrize(
    ("request_name", "modules_max"), [("load", LOAD_MODULES_MAX), ("commit", COMMIT_MODULES_MAX)]
)
def test_loads_and_commits_pass_few_modules(request_name: str, modules_max: int) -> None:
    assert sum(module.startswith("catalog/") for module in _listed(request_name)) <= modules_max


def test_a_query_passes_few_modules() -> None:
    assert sum(module.startswith("query/") for module in _listed("query")) <= QUERY_MODULES_MAX


def test_a_change_passes_few_modules() -> None:
    assert len(_listed("change")) <= CHANGE_MODULES_MAX
    assert len(_traced("debezium")) <= DEBEZIUM_MODULES_MAX


def _traced(request_name: str) -> list[str]:
    """The modules that scripts/walk.py prints."""
    traced = subprocess.run(
        [sys.executable, "scripts/walk.py", request_name],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=WALK_TIMEOUT_S,
    )
    return re.findall(r"^ *\d+  (\S+)$", traced.stdout, re.MULTILINE)


def _listed(request_name: str) -> list[str]:
    found = re.search(rf"<!-- walk: {request_name} -->\n```\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    return found[1].split()
