"""The command line: commands drop in, flags are settings, and whatever goes wrong is one sentence."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import pytest

from calve import __version__, cli
from calve.cli._flags import add_settings, flags_given
from calve.settings import MASK, Settings
from catalog.errors import Unavailable


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No calve.toml and no variables of whoever runs the tests."""
    monkeypatch.chdir(tmp_path)
    for row in Settings.rows():
        monkeypatch.delenv(row.variable, raising=False)


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The sentence of a command that must end with exit code 2."""
    assert cli.main(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("calve: ")
    assert err.count("\n") == 1
    return err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["version"]) == 0
    assert capsys.readouterr().out == f"calve {__version__}\n"


def test_version_needs_no_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "calve.toml").write_text("nonsense")
    assert cli.main(["version"]) == 0
    capsys.readouterr()
    assert "not valid TOML" in refused(capsys, "config")


def test_config_prints_each_setting_with_its_source(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "calve.toml").write_text('s3_access_key_id = "id"\ns3_secret_access_key = "canary"\n')
    monkeypatch.setenv("CALVE_HOST", "localhost")
    assert cli.main(["config", "--port", "9", "--no-s3-path-style"]) == 0
    out = capsys.readouterr().out
    shown = {line.split()[0]: line.split()[1:] for line in out.splitlines()}
    assert list(shown) == [row.name for row in Settings.rows()]
    assert shown["port"] == ["9", "--port"]
    assert shown["host"] == ["localhost", "CALVE_HOST"]
    assert shown["s3_secret_access_key"] == [MASK, "calve.toml"]
    assert shown["s3_path_style"] == ["false", "--s3-path-style"]
    assert shown["base_url"] == ["-", "default"]
    assert shown["workers"] == ["1", "default"]
    assert "canary" not in out


def test_what_is_wrong_is_said_in_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert "calve has no command serv; did you mean serve?" in refused(capsys, "serv")
    assert "does not know --prot; did you mean --port?" in refused(capsys, "config", "--prot", "1")
    assert "--port must be a whole number, not 'x'." in refused(capsys, "config", "--port", "x")
    assert "expected one argument" in refused(capsys, "config", "--port")
    assert "COMMAND" in refused(capsys)
    assert "auth=open" in refused(capsys, "serve", "--host", "0.0.0.0")
    assert "no.toml does not exist" in refused(capsys, "config", "--config", "no.toml")


@pytest.mark.parametrize(
    ("problem", "sentence"),
    [
        (Unavailable("the database is away"), "calve: the database is away\n"),
        (PermissionError(13, "Permission denied", "/x"), "calve: Permission denied (/x).\n"),
        (KeyError("x"), "calve: unexpected KeyError: 'x' (--log-level debug shows where).\n"),
    ],
)
def test_failures_of_a_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, problem: Exception, sentence: str
) -> None:
    from calve.cli import version

    def fail(*_: object) -> int:
        raise problem

    monkeypatch.setattr(version, "run", fail)
    assert cli.main(["version"]) == 2
    assert capsys.readouterr().err == sentence


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["--help"])
    assert ended.value.code == 0
    out = capsys.readouterr().out
    for name in ("serve", "config", "version"):
        assert f"\n    {name} " in out


def test_help_of_a_command_lists_every_setting(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["serve", "--help"])
    out = capsys.readouterr().out
    for row in Settings.rows():
        assert f"{row.flag} " in out or f"{row.flag}," in out


def test_a_flag_may_stand_before_or_behind_a_subcommand() -> None:
    parser = argparse.ArgumentParser()
    parser.add_subparsers(dest="action").add_parser("create").add_argument("name")
    add_settings(parser)
    for words in (["--port", "5", "create", "main"], ["create", "main", "--port", "5"]):
        assert flags_given(parser.parse_args(words)) == {"port": "5"}
    assert flags_given(parser.parse_args(["create", "main"])) == {}


def test_a_reader_that_goes_away_is_no_failure() -> None:
    command = f"{sys.executable} -m calve config | head -n 1"
    ended = subprocess.run(["/bin/bash", "-o", "pipefail", "-c", command], capture_output=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, b"")


def test_help_imports_nothing_heavy() -> None:
    heavy = "{'fastapi', 'sqlalchemy', 'uvicorn', 'pyspark', 'pyarrow', 'asyncio'}"
    code = "import sys; from calve.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass\n"
    code += f"found = {heavy} & set(sys.modules); assert not found, found"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
