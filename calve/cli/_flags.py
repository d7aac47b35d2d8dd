"""Every setting as a flag: `--body-bytes-max 1048576`, `--s3-path-style`, `--no-s3-path-style`.

Flags hold texts; calve/sources.py turns them into values, so that a flag, a variable and the file are read by
the same rules. A flag that is not given leaves no trace in the namespace.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from calve.settings import Row, Settings

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001 - argparse has no public name


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Add all flags to the parser and to the parsers of its own subcommands, wherever a person puts them."""
    nested = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]  # noqa: SLF001
    for action in nested:
        for child in action.choices.values():
            add_settings(child)
    group = parser.add_argument_group("settings (each also as a CALVE_* variable or in calve.toml)")
    group.add_argument(
        "--config", metavar="FILE", default=argparse.SUPPRESS, help="configuration file [calve.toml]"
    )
    for row in Settings.rows():
        _add(group, row)


def flags_given(args: argparse.Namespace) -> dict[str, object]:
    """The settings that stand on the command line."""
    given = vars(args)
    return {row.name: given[row.name] for row in Settings.rows() if row.name in given}


def _add(group: argparse._ArgumentGroup, row: Row) -> None:
    default = f" [{row.default_text}]" if row.default_text else ""
    words = (row.doc.rstrip(".") + default).replace("%", "%%")
    if row.type is bool:
        group.add_argument(
            row.flag, action=argparse.BooleanOptionalAction, default=argparse.SUPPRESS, help=words
        )
        return
    metavar = "|".join(row.choices) or row.name.rsplit("_", 1)[-1].upper()
    group.add_argument(row.flag, metavar=metavar, default=argparse.SUPPRESS, help=words)
