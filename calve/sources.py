"""Where the values of settings come from: flags, then CALVE_* variables, then calve.toml, then the default.

`load` reads them all, refuses what it does not know (with the nearest known name), and answers the checked
settings together with the source of each value.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Any, get_args

from calve.settings import Row, Settings
from calve.startup import SettingsError

FILE_NAME = "calve.toml"
CONFIG_VARIABLE = "CALVE_CONFIG"
# Variables of the tools around the server, which share the prefix and are none of its settings.
TOOLING = frozenset({CONFIG_VARIABLE, "CALVE_FAULTS", "CALVE_JARS", "CALVE_MAVEN_REPOSITORY"})
TOOLING_PREFIXES = ("CALVE_TEST_", "CALVE_BENCH_")

_TRUE, _FALSE = frozenset({"true", "yes", "on", "1"}), frozenset({"false", "no", "off", "0"})


@dataclass(frozen=True, slots=True)
class Loaded:
    """Checked settings, and where the value of each comes from: a flag, a variable, a file, the default."""

    settings: Settings
    sources: Mapping[str, str]


def load(
    flags: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
    *,
    folder: Path | None = None,
    file: Path | None = None,
) -> Loaded:
    """Settings from all sources. `flags` maps names to texts; `file` stands for calve.toml in `folder`."""
    environment = environment or {}
    rows = {row.name: row for row in Settings.rows()}
    values: dict[str, Any] = {}
    sources = dict.fromkeys(rows, "default")
    named = file or (Path(environment[CONFIG_VARIABLE]) if environment.get(CONFIG_VARIABLE) else None)
    path, table = _file(named, folder or Path())
    for name, value in table.items():
        row = rows.get(name) or _unknown(name, rows, f"{path} has", "a setting")
        values[name], sources[name] = _from_toml(row, value, path), str(path)
    for name, row in _variables(environment, rows):
        values[name] = _from_text(row, environment[row.variable], row.variable)
        sources[name] = row.variable
    for name, value in (flags or {}).items():
        row = rows[name]
        values[name] = _from_text(row, value, row.flag) if isinstance(value, str) else value
        sources[name] = row.flag
    return Loaded(Settings(**values), sources)


def nearest(name: str, known: Iterable[str]) -> str:
    """`; did you mean X?`, or nothing if no known name is near."""
    found = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"; did you mean {found[0]}?" if found else "."


def _unknown(name: str, known: Iterable[str], where: str, what: str) -> Any:
    raise SettingsError(f"{where} {name}, which is not {what}{nearest(name, known)}")


def _file(named: Path | None, folder: Path) -> tuple[Path, dict[str, Any]]:
    path = named if named is not None else folder / FILE_NAME
    try:
        with path.open("rb") as opened:
            return path, tomllib.load(opened)
    except FileNotFoundError:
        if named is None:
            return path, {}  # the file is optional, unless somebody named it
        raise SettingsError(f"the configuration file {path} does not exist.") from None
    except OSError as problem:
        raise SettingsError(f"{path} cannot be read: {problem.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise SettingsError(f"{path} is not valid TOML: {problem}.") from None


def _variables(environment: Mapping[str, str], rows: Mapping[str, Row]) -> list[tuple[str, Row]]:
    """Settings that have a variable. An empty variable counts as unset, as `VAR= command` is meant."""
    known = {row.variable: (name, row) for name, row in rows.items()}
    found = []
    for variable, text in environment.items():
        if not variable.startswith("CALVE_") or variable in TOOLING or variable.startswith(TOOLING_PREFIXES):
            continue
        if variable not in known:
            _unknown(variable, known, "the environment has", "a setting of calve")
        if text:
            found.append(known[variable])
    return found


def _kind(row: Row) -> type:
    """The plain type of a setting: `str | None` and counted words are texts."""
    if row.choices:
        return str
    kinds = [kind for kind in get_args(row.type) if kind is not NoneType] or [row.type]
    return kinds[0]  # type: ignore[no-any-return]


def _from_toml(row: Row, value: Any, path: Path) -> Any:
    kind = _kind(row)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    wanted = str if kind is Path else kind
    if type(value) is not wanted:
        raise SettingsError(f"{row.name} in {path} must be {_named(kind)}, not {type(value).__name__}.")
    return _from_text(row, value, f"{row.name} in {path}") if isinstance(value, str) else value


def _from_text(row: Row, text: str, source: str) -> Any:
    kind = _kind(row)
    if row.choices:
        if text not in row.choices:
            raise SettingsError(f"{source} must be {' or '.join(row.choices)}, not {text}.")
        return text
    try:
        return _truth(text.lower()) if kind is bool else kind(text)
    except ValueError:
        shown = "that value" if row.secret else repr(text)
        raise SettingsError(f"{source} must be {_named(kind)}, not {shown}.") from None


def _truth(word: str) -> bool:
    if word not in _TRUE | _FALSE:
        raise ValueError(word)
    return word in _TRUE


def _named(kind: type) -> str:
    names = {bool: "true or false", int: "a whole number", float: "a number", Path: "a path"}
    return names.get(kind, "a text")
