"""Runs Maven on the pom beside this file: quiet, offline when the local cache can serve it, else online once.

`run(goal, work, properties)` leaves all it makes under `work`, and raises MavenFailed with what Maven said.
`class_path(work)` compiles our Java classes and gives the class path of them and of all jars of the pom.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

POM = Path(__file__).parent / "pom.xml"
TIMEOUT_S = 900

# Programs that end within seconds: the second compiler and threads for the garbage would only take time.
QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

# What Maven says when the cache lacks something that it may not fetch: the only failure worth a second try.
_NOT_CACHED = ("offline", "has not been downloaded")


class MavenFailed(Exception):
    """Maven ended with an error that is not the outcome of a test."""


def run(goal: str, work: Path, properties: Mapping[str, str]) -> None:
    work.mkdir(parents=True, exist_ok=True)
    settings = [f"-D{name}={value}" for name, value in {"rck.work": str(work), **properties}.items()]
    command = ["mvn", "-B", "-ntp", "-q", "-f", str(POM), f"-DargLine={QUICK_START}", goal, *settings]
    ended = _end(work, [*command, "-o"])
    if ended.returncode != 0 and any(words in ended.stdout for words in _NOT_CACHED):
        ended = _end(work, command)
    if ended.returncode != 0:
        raise MavenFailed(f"mvn {goal} failed:\n{_last_lines(ended.stdout)}")


def class_path(work: Path) -> str:
    run("test-compile", work, {})
    jars = (work / "classpath.txt").read_text().strip()
    return os.pathsep.join([str(work / "classes"), jars])


def _end(work: Path, command: list[str]) -> subprocess.CompletedProcess[str]:
    # A foreign CATALOG_* would reach the kit's client as a catalog property.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CATALOG_")}
    environment["MAVEN_OPTS"] = f"{environment.get('MAVEN_OPTS', '')} {QUICK_START}".strip()
    ended = subprocess.run(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    (work / "maven.log").write_text(ended.stdout)
    return ended


def _last_lines(text: str, count: int = 40) -> str:
    return "\n".join(text.splitlines()[-count:])
