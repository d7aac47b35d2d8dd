"""docs/production/compose.yaml, as far as it can be judged without Docker."""

from __future__ import annotations

import re
import shlex
from typing import Any

import click
import pytest
import yaml

from calve import cli
from calve.settings import Settings
from calve.settings_sources import TOOLING, variable
from tests.harness.components import ROOT

FILE = ROOT / "docs" / "production" / "compose.yaml"
COMPOSE: dict[str, Any] = yaml.safe_load(FILE.read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = {name: service for name, service in SERVICES.items() if service["image"] == "calve"}


def _commands(service: dict[str, Any]) -> list[list[str]]:
    """The `calve` commands that a service runs, without the program's name."""
    if "entrypoint" not in service:  # that of the image, which is calve
        return [service["command"]]
    if "spark-class" in service["entrypoint"]:
        return []
    (script,) = service["command"]
    found = re.findall(r"(?:^|\s)calve ([^>\n]*)", script)
    return [shlex.split(command) for command in found]


def test_every_service_of_ours_is_built_from_the_dockerfile() -> None:
    assert {(FILE.parent / service["build"]).resolve() for service in OURS.values()} == {ROOT}


def test_everything_that_is_waited_for_is_a_service() -> None:
    awaited = {name for service in SERVICES.values() for name in service.get("depends_on", ())}
    assert awaited <= set(SERVICES)


def test_every_volume_is_declared() -> None:
    mounted = {mount.partition(":")[0] for service in SERVICES.values() for mount in service["volumes"]}
    assert mounted == set(COMPOSE["volumes"])


@pytest.mark.parametrize("name", OURS)
def test_a_service_sets_nothing_that_the_server_does_not_know(name: str) -> None:
    known = {variable(setting) for setting in Settings.model_fields} | TOOLING
    assert set(OURS[name]["environment"]) <= known


@pytest.mark.parametrize("name", OURS)
def test_the_commands_exist_with_their_options(name: str) -> None:
    for words in _commands(OURS[name]):
        command: click.Command | None = cli.calve
        rest = words
        while isinstance(command, click.Group):
            _, command, rest = command.resolve_command(click.Context(command), rest)
        assert command is not None
        command.make_parser(click.Context(command)).parse_args(rest)


def test_all_commands_were_seen() -> None:
    seen = [" ".join(words[:2]) for service in OURS.values() for words in _commands(service)]
    assert seen == ["migrate", "principal create", "principal create", "serve --no-worker", "worker --uri"]


def test_the_driver_is_found_by_its_name() -> None:
    lander = SERVICES["lander"]
    assert f"spark.driver.host={lander['hostname']} " in lander["command"][0]
