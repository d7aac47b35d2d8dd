"""The command line: each command has its own options, and a failure is one sentence with an exit code."""

from __future__ import annotations

import importlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from calve import __version__, cli
from calve.settings import Settings
from calve.settings_sources import MASK, flag
from calve.startup import StartupError
from catalog.errors import Unavailable
from tests.harness.components import ROOT


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working directory whose calve.toml is read, if a test writes one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CALVE_CONFIG", raising=False)


def module_of(name: str) -> click.Command:
    command: click.Command = importlib.import_module(f"calve.cli.{name.replace('-', '_')}").command
    return command


def all_commands() -> Iterator[tuple[str, click.Command]]:
    """Every command and subcommand with its words."""
    for name in cli.COMMANDS:
        command = module_of(name)
        yield name, command
        if isinstance(command, click.Group):
            yield from ((f"{name} {word}", child) for word, child in command.commands.items())


ALL = list(all_commands())


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The sentence of a command with wrong usage."""
    assert cli.main(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("calve: ")
    assert err.count("\n") == 1
    return err


def shown_help(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert cli.main([*words, "--help"]) == 0
    return capsys.readouterr().out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"calve {__version__}\n"


def test_config_prints_each_setting_with_its_source(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "calve.toml").write_text('s3_access_key_id = "id"\ns3_secret_access_key = "canary"\n')
    monkeypatch.setenv("CALVE_HOST", "localhost")
    words = ["config", "--port", "9", "--no-s3-path-style"]
    assert cli.main(words) == 0
    out = capsys.readouterr().out
    shown = {line.split("\t")[0]: line.split("\t")[1:] for line in out.splitlines()}
    assert list(shown) == list(Settings.model_fields)
    assert shown["port"] == ["9", "--port"]
    assert shown["host"] == ["localhost", "CALVE_HOST"]
    assert shown["s3_secret_access_key"] == [MASK, "calve.toml"]
    assert shown["s3_path_style"] == ["false", "--s3-path-style"]
    assert shown["base_url"] == ["-", "default"]
    assert shown["workers"] == ["1", "default"]
    assert "canary" not in out
    assert cli.main([*words, "--format", "json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert {row["setting"]: [row["value"], row["source"]] for row in listed} == shown
    assert cli.main([*words, "--format", "table"]) == 0
    assert "canary" not in capsys.readouterr().out


def test_wrong_usage_is_one_sentence(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "No such command 'serv'. Did you mean 'serve'?" in refused(capsys, "serv")
    assert "No such option '--prot'" in refused(capsys, "config", "--prot", "1")
    assert "'--port'" in refused(capsys, "config", "--prot", "1")
    assert "Invalid value for '--port': 'x' is not a valid integer." in refused(
        capsys, "config", "--port", "x"
    )
    assert "'--auth'" in refused(capsys, "config", "--auth", "basic")
    assert "port must be between 0 and 65535, not -1." in refused(capsys, "config", "--port", "-1")
    assert "unexpected extra argument (b). See calve tables --help." in refused(capsys, "tables", "a", "b")
    assert "requires an argument" in refused(capsys, "config", "--port")
    assert "auth=open" in refused(capsys, "serve", "--host", "0.0.0.0")
    assert "no.toml does not exist" in refused(capsys, "config", "--config", "no.toml")
    (tmp_path / "calve.toml").write_text("nonsense")
    assert "not valid TOML" in refused(capsys, "config")


def test_without_a_command_the_overview_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 2
    assert "Usage: calve [OPTIONS] COMMAND" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("problem", "sentence"),
    [
        (StartupError("port 1 is in use."), "calve: port 1 is in use.\n"),
        (Unavailable("the database is away"), "calve: the database is away\n"),
        (PermissionError(13, "Permission denied", "/x"), "calve: Permission denied (/x).\n"),
        (KeyError("x"), "calve: unexpected KeyError: 'x' (CALVE_LOG_LEVEL=debug shows where).\n"),
    ],
)
def test_a_command_that_fails(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, problem: Exception, sentence: str
) -> None:
    def fail(**_: object) -> int:
        raise problem

    monkeypatch.setattr(module_of("openapi"), "callback", fail)
    assert cli.main(["openapi"]) == 1
    assert capsys.readouterr().err == sentence


def test_debug_shows_where_an_unexpected_error_was_raised(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(**_: object) -> int:
        raise KeyError("x")

    monkeypatch.setenv("CALVE_LOG_LEVEL", "debug")
    monkeypatch.setattr(module_of("openapi"), "callback", fail)
    assert cli.main(["openapi"]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_the_api_description_depends_on_no_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = shutil.copytree(ROOT / "openapi", tmp_path / "openapi")
    assert cli.main(["openapi", "--directory", str(directory)]) == 0
    for name, value in {"CALVE_DATABASE": "postgresql://127.0.0.1:1/none", "CALVE_PROT": "1"}.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "calve.toml").write_text('namespace_separator = "%2E"\n')
    assert cli.main(["openapi", "--directory", str(directory), "--check"]) == 0


@pytest.mark.parametrize(
    "words", [["check"], ["journal", "adopt"], ["warehouse", "list"], ["warehouse", "drop", "sales"]]
)
def test_a_mistyped_folder_is_no_empty_catalog(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*words, "--home", "mistyped"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"calve: there is no catalog at {tmp_path}/mistyped/catalog.db")
    assert not (tmp_path / "mistyped").exists()


def test_an_interrupted_command(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(**_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(module_of("openapi"), "callback", interrupt)
    assert cli.main(["openapi"]) == 130


def test_help_lists_every_command_and_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    out = shown_help(capsys)
    for name, words in cli.COMMANDS.items():
        assert f"\n  {name} " in out
        assert words in out
    assert "0 success, 1 the command failed, 2 wrong usage" in out


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_the_overview_says_what_the_command_says(name: str) -> None:
    assert (module_of(name).help or "").partition("\n")[0] == cli.COMMANDS[name]


def test_the_page_of_commands_lists_them_all_in_the_same_words() -> None:
    page = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `calve ([a-z-]+)` \| (.+) \|$", page, re.MULTILINE)
    assert listed == list(cli.COMMANDS.items())


@pytest.mark.parametrize(("words", "command"), ALL, ids=[words for words, _ in ALL])
def test_each_help_has_examples_that_parse(words: str, command: click.Command, tmp_path: Path) -> None:
    (tmp_path / "event.json").write_text("{}")
    text = re.sub(r"\\\n *", "", command.help or "").partition("Example")[2]
    examples = re.findall(r"^ *(?:CALVE_\w+=\w+ )?calve (.+?)(?: > .*|  .*)?$", text, re.MULTILINE)
    assert examples
    for example in examples:
        name, found, rest = cli.calve.resolve_command(click.Context(cli.calve), shlex.split(example))
        if isinstance(found, click.Group) and rest:
            name, found, rest = found.resolve_command(click.Context(found), rest)
        assert found is not None, example
        found.make_context(name, rest).close()


def test_help_shows_the_options_of_the_command_alone(capsys: pytest.CaptureFixture[str]) -> None:
    out = shown_help(capsys, "serve")
    for name in Settings.model_fields:
        assert f"{flag(name)} " in out
    others = shown_help(capsys, "migrate")
    assert "--database " in others
    assert "--s3-endpoint" not in others
    assert "--port" not in others


def test_a_worker_gets_its_credential_from_the_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "calve.toml").write_text('worker_credential = "lander:canary"\ns3_path_style = true\n')
    started = []
    monkeypatch.setattr(os, "execve", lambda *call: started.append(call))
    words = ["worker", "--uri", "http://lake.example", "--master", "spark://h:1", "--conf", "a=b"]
    assert cli.main(words) == 0
    [(program, command, environment)] = started
    assert (program, command[0]) == (sys.executable, sys.executable)
    expected = {"--uri": "http://lake.example", "--master": "spark://h:1", "--conf": "a=b", "--slots": "2"}
    assert {name: command[command.index(name) + 1] for name in expected} == expected
    assert "canary" not in " ".join(command)
    assert environment["CALVE_WORKER_CREDENTIAL"] == "lander:canary"
    assert environment["CALVE_S3_PATH_STYLE"].lower() == "true"


def test_a_reader_that_ends_early_is_no_failure() -> None:
    command = f"{sys.executable} -m calve config | head -n 1"
    ended = subprocess.run(["/bin/bash", "-o", "pipefail", "-c", command], capture_output=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, b"")


def test_shell_completion_knows_commands_options_and_choices() -> None:
    from click.shell_completion import BashComplete

    completion = BashComplete(cli.calve, {}, "calve", "_CALVE_COMPLETE")

    def found(args: list[str], incomplete: str) -> list[str]:
        return [item.value for item in completion.get_completions(args, incomplete)]

    assert found([], "wa") == ["warehouse"]
    assert found(["serve"], "--database-p") == ["--database-pool-size"]
    assert found(["serve", "--auth"], "") == ["open", "tokens"]
    assert found(["principal", "create", "ci", "--role"], "w") == ["writer"]


def test_help_imports_nothing_heavy() -> None:
    heavy = "{'fastapi', 'pydantic', 'rich', 'sqlalchemy', 'uvicorn', 'pyspark', 'pyarrow', 'asyncio'}"
    code = "import sys; from calve.cli import main; assert main(['--help']) == 0\n"
    code += f"found = {heavy} & set(sys.modules); assert not found, found"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
