"""A usable Java is found, or brought, or its absence is told."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from spark_jobs import java


def pretend(home: Path, version: str) -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/bash\necho 'openjdk version \"{version}\"' >&2\nprintf '%s\\n' \"$@\"\n")
    program.chmod(0o755)
    return home


def test_the_first_that_spark_runs_on(tmp_path: Path) -> None:
    old, new, good = (pretend(tmp_path / name, name) for name in ("11.0.2", "25", "17.0.15"))
    assert java.first_usable([tmp_path / "nothing", old, new, good]) == good
    assert java.first_usable([old, new]) is None


def test_java_home_is_asked_first_then_the_path(tmp_path: Path) -> None:
    chosen, on_path = pretend(tmp_path / "chosen", "21.0.8"), pretend(tmp_path / "path", "17.0.1")
    environment = {"JAVA_HOME": str(chosen), "PATH": str(on_path / "bin")}
    assert java.home(environment) == chosen
    assert next(java.candidates({"PATH": str(on_path / "bin")})) == on_path


def test_the_brought_one_is_not_asked_for_what_it_lacks(tmp_path: Path) -> None:
    home = java.wrapped(pretend(tmp_path / "jdk", "21.0.8"), tmp_path / "cache" / "java")
    words = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "-Xmx1g", "Main"]
    ended = subprocess.run([home / "bin" / "java", *words], capture_output=True, text=True, check=True)
    assert ended.stdout.splitlines() == ["-cp", "a b", "-Xmx1g", "Main"]
    assert java.wrapped(tmp_path / "jdk", home) == home


def test_without_any_the_sentence_says_how(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "candidates", lambda _environment: iter(()))
    monkeypatch.setattr(java, "_packaged", lambda: None)
    with pytest.raises(java.NoJava, match=r"^Java 17 or 21 missing, run `make setup`, or install one"):
        java.home({"PATH": str(tmp_path)})
