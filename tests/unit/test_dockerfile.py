"""The Dockerfile, as far as it can be judged without building it."""

from __future__ import annotations

import fnmatch
import json
import re
import shlex
import tomllib

from calve.settings import Settings
from calve.settings_sources import TOOLING, variable
from tests.harness.components import ROOT

PACKAGES = ("calve", "catalog", "ingest", "maintenance", "query", "spark_jobs")


def _instructions() -> list[tuple[str, str]]:
    """(INSTRUCTION, the rest), with continued lines joined and comments left out."""
    lines = [line for line in (ROOT / "Dockerfile").read_text().splitlines() if not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    pairs = [line.partition(" ") for line in joined.splitlines() if line.strip()]
    return [(word.upper(), rest.strip()) for word, _, rest in pairs]


def _last_stage() -> list[tuple[str, str]]:
    instructions = _instructions()
    last = max(index for index, (word, _) in enumerate(instructions) if word == "FROM")
    return instructions[last:]


def _copied_from_here() -> list[str]:
    copies = [shlex.split(rest) for word, rest in _instructions() if word == "COPY"]
    return [source for copy in copies if not copy[0].startswith("--from") for source in copy[:-1]]


def _only(word: str) -> str:
    found = [rest for instruction, rest in _last_stage() if instruction == word]
    assert len(found) == 1, f"{word}: {found}"
    return found[0]


def test_every_copied_path_exists() -> None:
    assert [source for source in _copied_from_here() if not (ROOT / source).exists()] == []


def test_every_copied_path_reaches_the_builder() -> None:
    """.dockerignore begins by leaving everything out."""
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    let_in = [line[1:] for line in lines if line.startswith("!")]
    assert "*" in lines
    assert [path for path in _copied_from_here() if not _is_below(path, let_in)] == []


def _is_below(path: str, patterns: list[str]) -> bool:
    return any(fnmatch.fnmatch(path.partition("/")[0], pattern) for pattern in patterns)


def test_every_part_is_copied() -> None:
    present = {part for part in PACKAGES if (ROOT / part / "__init__.py").exists()}
    assert present <= set(_copied_from_here())


def test_it_runs_without_privileges() -> None:
    assert int(_only("USER")) > 0


def test_the_health_check_asks_health_on_the_exposed_port() -> None:
    assert "/health" in _only("HEALTHCHECK")
    command = json.loads(_only("HEALTHCHECK").partition("CMD ")[2])
    compile(command[-1], "health check", "exec")
    environment = _environment()
    assert environment["CALVE_PORT"] == _only("EXPOSE")


def test_it_serves_for_callers_with_tokens() -> None:
    """`open` is refused on any address but loopback, and a container needs another one."""
    assert (_environment()["CALVE_HOST"], _environment()["CALVE_AUTH"]) == ("0.0.0.0", "tokens")
    assert json.loads(_only("ENTRYPOINT"))[-1] == "calve"
    assert json.loads(_only("CMD")) == ["serve"]


def test_java_and_jars_are_inside() -> None:
    assert "openjdk-17" in _only("RUN")
    assert _environment()["CALVE_JARS"].startswith("/opt/calve/")


def test_the_python_is_one_that_the_project_supports() -> None:
    version = re.match(r"python:3\.(\d+)-", _only("FROM"))
    assert version is not None
    floor = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    assert int(version[1]) >= int(floor.removeprefix(">=3."))


def test_the_image_sets_nothing_that_the_server_does_not_know() -> None:
    known = {variable(name) for name in Settings.model_fields} | TOOLING
    assert {name for name in _environment() if name.startswith("CALVE_")} <= known


def _environment() -> dict[str, str]:
    words = [
        word for instruction, rest in _last_stage() if instruction == "ENV" for word in shlex.split(rest)
    ]
    return dict(word.split("=", 1) for word in words)
