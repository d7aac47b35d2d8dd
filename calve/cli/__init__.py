"""The command `calve`.

Each module of this package whose name has no underscore in front is a command of that name:

    add(subparsers)            adds its parser, with a `help` line
    run(args, settings) -> int does the work; the result is the exit code
    READS_SETTINGS = False     (optional) the command has no use for settings

Modules import what is heavy inside `run`, so that `calve --help` is quick. Every setting is a flag of every
command that reads settings. Whatever goes wrong is one sentence on stderr and exit code 2.
"""

from __future__ import annotations

import argparse
import importlib
import os
import pkgutil
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import NoReturn

from calve.cli._flags import add_settings, flags_given
from calve.settings import Settings
from calve.sources import load, nearest
from calve.startup import StartupError

EXIT_USAGE = 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the result is the exit code of the process."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        args, module = _parse(words)
        settings = _settings(args, module)
        code = module.run(args, settings)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of our output went away (`calve config | head`). Python would complain at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as problem:  # noqa: BLE001 - the last place: a person gets a sentence, never a traceback
        return _refuse(problem, words)
    return int(code)


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, without the usage above it."""

    def error(self, message: str) -> NoReturn:
        raise StartupError(f"{message}; see {self.prog} --help.")


def _parse(words: list[str]) -> tuple[argparse.Namespace, ModuleType]:
    parser = _Parser(prog="calve", description="An Iceberg lakehouse server.", allow_abbrev=False)
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=_Parser)
    names = _commands()
    if words and not words[0].startswith("-") and words[0] not in names:
        raise StartupError(f"calve has no command {words[0]}{nearest(words[0], names)}")
    # One command needs one module; only the overview needs them all.
    wanted = [words[0]] if words and words[0] in names else names
    modules = {name: importlib.import_module(f"{__name__}.{name.replace('-', '_')}") for name in wanted}
    for name, module in modules.items():
        module.add(subparsers)
        if _reads_settings(module):
            add_settings(subparsers.choices[name])
    args, unknown = parser.parse_known_args(words)
    if unknown:
        known = [row.flag for row in Settings.rows()]
        raise StartupError(f"calve {args.command} does not know {unknown[0]}{nearest(unknown[0], known)}")
    return args, modules[args.command]


def _commands() -> list[str]:
    names = [found.name for found in pkgutil.iter_modules(__path__) if not found.name.startswith("_")]
    return sorted(name.replace("_", "-") for name in names)


def _reads_settings(module: ModuleType) -> bool:
    return bool(getattr(module, "READS_SETTINGS", True))


def _settings(args: argparse.Namespace, module: ModuleType) -> Settings:
    if not _reads_settings(module):
        return Settings()
    file = getattr(args, "config", None)
    loaded = load(flags_given(args), os.environ, file=None if file is None else Path(file))
    args.sources = loaded.sources
    return loaded.settings


def _refuse(problem: Exception, words: Sequence[str]) -> int:
    from catalog.errors import CatalogError

    print(f"calve: {_sentence(problem)}", file=sys.stderr)
    wants_more = "debug" in words or os.environ.get("CALVE_LOG_LEVEL") == "debug"
    if wants_more and not isinstance(problem, StartupError | CatalogError):
        traceback.print_exception(problem)
    return EXIT_USAGE


def _sentence(problem: Exception) -> str:
    """What a person needs to know. Only errors made for people speak for themselves."""
    from catalog.errors import CatalogError

    if isinstance(problem, StartupError | CatalogError):
        return str(problem)
    if isinstance(problem, OSError) and problem.strerror:
        where = f" ({problem.filename})" if problem.filename else ""
        return f"{problem.strerror}{where}."
    return f"unexpected {type(problem).__name__}: {problem} (--log-level debug shows where)."
