"""What pydantic-settings lacks: refusal of unknown names, strict types in the file, and errors that name the
setting as its source spells it, in one sentence.
"""

from __future__ import annotations

import difflib
import ipaddress
import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, get_args
from urllib.parse import unquote

from pydantic import SecretStr, ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, EnvSettingsSource, TomlConfigSettingsSource

from calve.startup import SettingsError

PREFIX = "CALVE_"
FILE_NAME = "calve.toml"
MASK = "****"
# Variables of the tools around the server: they have the prefix and are not settings.
TOOLING = frozenset({"CALVE_FAULTS", "CALVE_JARS", "CALVE_MAVEN_REPOSITORY", "CALVE_TOKEN", "CALVE_URI"})
TOOLING_PREFIXES = ("CALVE_TEST_", "CALVE_BENCH_", "CALVE_PROOF_")
_KINDS = {bool: "true or false", int: "a whole number", float: "a number", Path: "a path", str: "a text"}
_PASSWORD_IN_URL = re.compile(r"(?<=://)([^:/@\s]*):[^@/\s]*@|(?<=[?&]password=)[^&\s]+")


class Environment(EnvSettingsSource):
    """CALVE_* variables. An unknown one is refused: a misspelt name would have no effect."""

    def __call__(self) -> dict[str, Any]:
        known = [*(variable(name) for name in self.settings_cls.model_fields), *TOOLING]
        for name in os.environ:
            if name.startswith(PREFIX) and not name.startswith(TOOLING_PREFIXES):
                _require_known(name, known, "the environment has", "a setting of calve")
        return super().__call__()


class TomlFile(TomlConfigSettingsSource):
    """The TOML file that `config` names, or calve.toml. Each value must have the type of its setting."""

    def __init__(self, settings_cls: type[BaseSettings]) -> None:
        super().__init__(settings_cls, None)  # the path is known only after the sources before this one

    def __call__(self) -> dict[str, Any]:
        path, table = _read(self.current_state.get("config"))
        fields = {name: field for name, field in self.settings_cls.model_fields.items() if name != "config"}
        for name, value in table.items():
            _require_known(name, fields, f"{path} has", "a setting")
            kind = kind_of(fields[name])
            if type(value) not in {float: (float, int), Path: (str,)}.get(kind, (kind,)):
                raise SettingsError(f"{name} in {path} must be {_KINDS[kind]}, not {type(value).__name__}.")
        return table


def _read(named: str | Path | None) -> tuple[Path, dict[str, Any]]:
    path = Path(named or FILE_NAME)
    try:
        with path.open("rb") as opened:
            return path, tomllib.load(opened)
    except FileNotFoundError:
        if not named:
            return path, {}
        raise SettingsError(f"the configuration file {path} does not exist.") from None
    except OSError as problem:
        raise SettingsError(f"{path} cannot be read: {problem.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise SettingsError(f"{path} is not valid TOML: {problem}.") from None


def origin(name: str, given: Mapping[str, Any]) -> str:
    """The source of a setting's value: a flag (those in `given`), a variable, the file, or `default`."""
    if name in given:
        return flag(name)
    if os.environ.get(variable(name)):
        return variable(name)
    path, table = _read(given.get("config") or os.environ.get(variable("config")))
    return str(path) if name in table else "default"


# -- what is declared about a setting ------------------------------------------------------------------------


def flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def variable(name: str) -> str:
    return PREFIX + name.upper()


def kind_of(field: FieldInfo) -> type:
    """The plain type of a setting: bool, int, float, Path or str."""
    kinds = {field.annotation, *get_args(field.annotation)} & {bool, int, float, Path}
    return kinds.pop() if kinds else str


def choices(field: FieldInfo) -> tuple[str, ...]:
    """The allowed words of a setting that has a list of them, else nothing."""
    return tuple(word for word in get_args(field.annotation) if isinstance(word, str))


def bounds(field: FieldInfo) -> tuple[float | None, float | None]:
    """The least and the greatest value that are allowed."""
    least = next((rule.ge for rule in field.metadata if hasattr(rule, "ge")), None)
    most = next((rule.le for rule in field.metadata if hasattr(rule, "le")), None)
    return least, most


def default_text(field: FieldInfo) -> str:
    """The default, in words if it depends on other settings; empty if there is none."""
    if isinstance(field.json_schema_extra, dict):
        return str(field.json_schema_extra["shown"])
    return "" if field.default is None else as_text(field.default)


def as_text(value: Any) -> str:
    """A value as a person would write it, without secrets."""
    if isinstance(value, SecretStr):
        return MASK
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:g}"
    return _PASSWORD_IN_URL.sub(
        lambda found: f"{found[1]}:{MASK}@" if found[1] is not None else MASK, str(value)
    )


# -- errors --------------------------------------------------------------------------------------------------


def sentence(error: ValidationError, fields: Mapping[str, FieldInfo], given: Mapping[str, Any]) -> str:
    """The first error in one sentence, which begins with the setting's name as its source spells it."""
    problem: Any = error.errors()[0]
    name = str(problem["loc"][0])
    if problem["type"] == "extra_forbidden":
        return f"{name} is not a setting{_nearest(name, fields)}"
    source = origin(name, given)
    known_as = {flag(name): name, variable(name): variable(name)}.get(source, f"{name} in {source}")
    return f"{known_as} {_requirement(fields[name], problem)}."


def _requirement(field: FieldInfo, problem: Any) -> str:
    value = problem["input"]
    match problem["type"]:
        case "value_error":
            return str(problem["ctx"]["error"])
        case "literal_error":
            return f"must be {' or '.join(choices(field))}, not {value}"
        case "greater_than_equal" | "less_than_equal":
            least, most = bounds(field)
            span = f"at least {least}" if most is None else f"between {least} and {most}"
            return f"must be {span}, not {as_text(value)}"
        case "finite_number":
            return f"must be a number, not {value}"
    return f"must be {_KINDS[kind_of(field)]}, not {value!r}"


def _require_known(name: str, known: Iterable[str], where: str, what: str) -> None:
    names = list(known)
    if name not in names:
        raise SettingsError(f"{where} {name}, which is not {what}{_nearest(name, names)}")


def _nearest(name: str, known: Iterable[str]) -> str:
    """`; did you mean X?`, or a full stop if no known name is similar."""
    by_end = {other.removeprefix(PREFIX): other for other in known}  # the prefix makes all names similar
    found = difflib.get_close_matches(name.removeprefix(PREFIX), by_end, n=1)
    return f"; did you mean {by_end[found[0]]}?" if found else "."


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False  # a name can be any address


def passwords(address: str) -> set[str]:
    """The password in the address of a database, as it is written and as it is meant."""
    found = re.findall(r"://[^:/@\s]*:([^@/\s]+)@|[?&]password=([^&\s]+)", address)
    texts = {"".join(groups) for groups in found}
    return texts | {unquote(text) for text in texts}
