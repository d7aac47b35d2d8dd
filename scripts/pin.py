"""Write requirements.txt and requirements-dev.txt from what this interpreter has installed.

    .venv/bin/python scripts/pin.py

requirements.txt holds what the server needs (the dependencies and the extra `server` of pyproject.toml, and
everything below them), requirements-dev.txt what tests and checks need on top. Names and versions only: no
address, no hash, so that any package index can serve them. tests/unit/test_requirements.py fails when the
files are out of date.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
RUN_TIME = ROOT / "requirements.txt"
DEVELOPMENT = ROOT / "requirements-dev.txt"
ON_TOP = ("dev", "pandas", "polars")  # extras that requirements.txt does not have


def direct(project: Path = ROOT / "pyproject.toml") -> tuple[list[str], list[str]]:
    """The requirements that pyproject.toml states: for the server, and for development."""
    stated = tomllib.loads(project.read_text())["project"]
    extras = stated["optional-dependencies"]
    return [*stated["dependencies"], *extras["server"]], [name for extra in ON_TOP for name in extras[extra]]


def closure(requirements: Iterable[str]) -> dict[str, str]:
    """Name and installed version of each requirement and of everything that these bring along."""
    found: dict[str, str] = {}
    seen: set[tuple[str, frozenset[str]]] = set()
    waiting = [Requirement(text) for text in requirements]
    while waiting:
        wanted = waiting.pop()
        name = canonicalize_name(wanted.name)
        if (name, frozenset(wanted.extras)) in seen:
            continue
        seen.add((name, frozenset(wanted.extras)))
        installed = distribution(name)
        found[name] = installed.version
        waiting += [below for below in map(Requirement, installed.requires or []) if _applies(below, wanted)]
    return found


def _applies(below: Requirement, wanted: Requirement) -> bool:
    if below.marker is None:
        return True
    return any(below.marker.evaluate({"extra": extra}) for extra in ("", *wanted.extras))


def render() -> tuple[str, str]:
    """The texts of the two files."""
    run_time, development = direct()
    needed = closure(run_time)
    added = {name: version for name, version in closure(development).items() if name not in needed}
    return (
        _text("What the server needs", [], needed),
        _text("What tests and checks need on top", [f"-r {RUN_TIME.name}"], added),
    )


def _text(title: str, lines: list[str], pins: dict[str, str]) -> str:
    pinned = [f"{name}=={version}" for name, version in sorted(pins.items())]
    return "\n".join([f"# {title}. Written by scripts/pin.py.", *lines, *pinned, ""])


if __name__ == "__main__":
    try:
        texts = render()
    except PackageNotFoundError as missing:
        raise SystemExit(f"{missing.name} is in pyproject.toml but not installed") from None
    for path, text in zip((RUN_TIME, DEVELOPMENT), texts, strict=True):
        path.write_text(text)
        print(f"{path.name}: {text.count('==')} pins")
