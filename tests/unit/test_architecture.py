"""ARCHITECTURE.md is short, and the modules that it lists for a load and a commit are current."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.harness.components import ROOT

PAGE = ROOT / "ARCHITECTURE.md"
WORDS_MAX = 1_500
TERMS_MAX = 40
WALK_TIMEOUT_S = 300


def test_the_page_is_short() -> None:
    assert len(PAGE.read_text().split()) <= WORDS_MAX


def test_the_glossary_is_short_and_sorted() -> None:
    glossary = PAGE.read_text().partition("## Glossary")[2]
    terms = re.findall(r"^\| ([^|]+?) +\|", glossary, re.MULTILINE)[1:]
    assert 0 < len(terms) <= TERMS_MAX
    assert terms == sorted(terms)


@pytest.mark.parametrize("request_name", ["load", "commit"])
def test_the_modules_of_a_request_are_current(request_name: str) -> None:
    listed = re.search(rf"<!-- walk: {request_name} -->\n```\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert listed is not None
    traced = subprocess.run(
        [sys.executable, "scripts/walk.py", request_name],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=WALK_TIMEOUT_S,
    )
    modules = re.findall(r"^ *\d+  (\S+)$", traced.stdout, re.MULTILINE)
    assert sorted(listed[1].split()) == sorted(modules)
