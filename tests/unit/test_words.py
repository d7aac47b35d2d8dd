"""Plain words: invented names and riddles are refused in code and documentation."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.components import ROOT

# Parts of identifiers (`taken_places` has two), each with the word to use instead.
INVENTED = {
    "asked": "context, requested",
    "brought": "installed, packaged",
    "bury": "delete",
    "companions": "related",
    "decide": "make_plan",
    "door": "api",
    "essence": "canonical",
    "heard": "received",
    "judge": "check",
    "judged": "classified",
    "nobody": "unknown",
    "place": "location",
    "places": "locations",
    "plainly": "say what it does",
    "remember": "save",
    "room": "available",
    "said": "message, output",
    "settle": "sync",
    "spelled": "full_name, to_json",
    "squash": "collapse",
    "standing": "status",
    "stands": "current, entry",
    "taken": "overlapping, used",
    "telling": "distinguishes",
    "told": "logged, reported",
    "vanished": "missing",
    "verdict": "result, reason",
    "wants": "has, requires",
}
INVENTED_NAMES = {"be_worker": "run_worker", "holds_back": "is_transaction", "told_plainly": "rename_as_drop"}
RIDDLES = ("whoever", "whatever", "nobody", "somebody", "anybody", "who lost", "goes without", "is felt by")
CODE = ("calve", "catalog", "ingest", "maintenance", "query", "spark_jobs", "tests/harness")
PAGES = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")
_PART = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")
_RIDDLE = re.compile(rf"\b(?:{'|'.join(RIDDLES)})\b", re.IGNORECASE)


def _modules() -> list[Path]:
    return [path for folder in CODE for path in sorted((ROOT / folder).rglob("*.py"))]


def _pages() -> list[Path]:
    return [*(ROOT / name for name in PAGES), *sorted((ROOT / "docs").rglob("*.md"))]


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def invented(text: str) -> Iterator[str]:
    """The refused names in the source of a module, with the word to use."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type != tokenize.NAME:
            continue
        parts = {part.lower() for part in _PART.findall(token.string)}
        for word in sorted(parts & INVENTED.keys()):
            yield f"line {token.start[0]}: {token.string}: use {INVENTED[word]}"
        for name, better in INVENTED_NAMES.items():
            if name in token.string:
                yield f"line {token.start[0]}: {token.string}: use {better}"


def prose(text: str) -> Iterator[tuple[int, str]]:
    """The comments and docstrings of a module, with their lines."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield node.lineno, str(node.value.value)


def riddles(lines: Iterator[tuple[int, str]]) -> list[str]:
    return [f"line {number}: {found[0]}" for number, text in lines for found in _RIDDLE.finditer(text)]


@pytest.mark.parametrize("path", _modules(), ids=_name)
def test_names_are_conventional(path: Path) -> None:
    assert not list(invented(path.read_text()))


@pytest.mark.parametrize("path", _modules(), ids=_name)
def test_comments_and_docstrings_have_no_riddles(path: Path) -> None:
    assert not riddles(prose(path.read_text()))


@pytest.mark.parametrize("path", _pages(), ids=_name)
def test_pages_have_no_riddles(path: Path) -> None:
    assert not riddles(iter(enumerate(path.read_text().splitlines(), 1)))


def test_the_checks_find_what_they_refuse() -> None:
    source = 'def has_vanished(asked):\n    """Whoever asks."""\n    return takenPlaces  # nobody\n'
    assert [line.partition(": use")[0] for line in invented(source)] == [
        "line 1: has_vanished",
        "line 1: asked",
        "line 3: takenPlaces",
        "line 3: takenPlaces",
    ]
    assert riddles(prose(source)) == ["line 3: nobody", "line 2: Whoever"]
