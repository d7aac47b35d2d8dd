"""The style of the project as a test: names, sizes, and what may not stand in a tracked file."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

from tests.harness.components import ROOT

PACKAGES = ("calve", "catalog", "ingest", "query", "spark_jobs")
LINES_MAX = 400
# A module is named by what it holds; these names hold anything.
VAGUE_NAMES = {"utils", "util", "helpers", "helper", "manager", "managers", "common", "misc"}
# The words are cut in two here, so that this file passes its own test.
REGISTRIES = (
    "pypi" + ".org",
    "python" + "hosted.org",
    "repo" + ".maven.apache.org",
    "repo1" + ".maven.org",
    "proxy" + ".golang.org",
    "sum" + ".golang.org",
    "docker" + ".io",
    "docker" + ".com",
    "gh" + "cr.io",
    "quay" + ".io",
    "npmjs" + ".org",
    "npmjs" + ".com",
    "deb" + ".debian.org",
    "ana" + "conda.org",
)
MACHINE_PATHS = ("/wo" + "rk/", "/ro" + "ot/", "/ho" + "me/", "/Us" + "ers/", "../sha" + "red")
PATH_BEFORE = r"(?:^|[\s\"'`=(:,])(?:file:/{0,2})?"


@cache
def _tracked() -> tuple[Path, ...]:
    """Every file that is, or would be, under version control."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    names = listed.stdout.decode().split("\0")
    return tuple(ROOT / name for name in names if name and (ROOT / name).is_file())


def _modules(*folders: str) -> list[Path]:
    return [
        path for path in _tracked() if path.suffix == ".py" and path.relative_to(ROOT).parts[0] in folders
    ]


def _shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_the_listing_finds_the_project() -> None:
    assert ROOT / "pyproject.toml" in _tracked()
    assert Path(__file__) in _tracked()


def test_no_module_has_a_vague_name() -> None:
    names = {_shown(path) for path in _tracked() if VAGUE_NAMES & {path.stem, *path.relative_to(ROOT).parts}}
    assert not names


def test_every_test_directory_is_a_package() -> None:
    """Without it, tests/catalog would be imported in place of catalog."""
    folders = {path.parent for path in _modules("tests")}
    assert not {_shown(folder) for folder in folders if not (folder / "__init__.py").is_file()}


def test_modules_are_of_a_size_to_be_read() -> None:
    sizes = {_shown(path): len(path.read_text().splitlines()) for path in _modules(*PACKAGES)}
    assert not {name: size for name, size in sizes.items() if size > LINES_MAX}


@pytest.mark.parametrize("word", REGISTRIES)
def test_no_file_names_a_package_registry(word: str) -> None:
    assert not [_shown(path) for path in _tracked() if word.encode() in path.read_bytes()]


@pytest.mark.parametrize("word", MACHINE_PATHS)
def test_no_file_names_a_path_of_one_machine(word: str) -> None:
    found = re.compile((PATH_BEFORE + re.escape(word)).encode(), re.MULTILINE)
    assert not [_shown(path) for path in _tracked() if found.search(path.read_bytes())]


def test_no_test_is_skipped() -> None:
    """A component that is missing is a failure. `xfail` would hide one as well."""
    skips = re.compile(r"pytest\.(?:skip|importorskip|xfail)\b|mark\.(?:skip|skipif|xfail)\b|skipTest\(")
    here = Path(__file__)
    assert not [_shown(path) for path in _modules("tests") if path != here and skips.search(path.read_text())]
