"""The command `calve`: a click group whose commands are one module each.

A module is imported only when its command runs, so that `calve --help` is quick. Modules import what is heavy
inside their functions. A failure is one sentence on stderr.
"""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Any

import click

from calve import __version__
from calve.startup import SettingsError, StartupError

FAILED, USAGE, INTERRUPTED = 1, 2, 130

# The module of a command has its name, with `_` for `-`, and an attribute `command`.
COMMANDS = {
    "serve": "Run the server.",
    "worker": "Run a Spark worker for a server.",
    "demo": "Send changes to a server and show how they become rows.",
    "query": "Run SQL on the tables of the lake, as of any moment.",
    "tables": "List the tables with their rows, size and last commit.",
    "describe": "Show the columns, partitioning and size of a table.",
    "snapshots": "List the snapshots of a table, the newest first.",
    "history": "Show every version of a row, oldest first.",
    "diff": "Show the rows that differ between two moments.",
    "rollback": "Set a table back to a moment or a snapshot.",
    "tail": "Print changes as they become visible.",
    "status": "Show what waits, and how far each table is.",
    "verify": "Compare tables with their changes, or with their source.",
    "maintenance": "Show the health of all tables, and what runs next and why.",
    "sources": "List sources, choose what is stored, pause and resume them.",
    "table": "Pause, resume, rebuild and resync a table; set its settings.",
    "load": "Load CSV, JSON and Parquet files into a table, also from S3.",
    "export": "Copy a table at one moment into a local file.",
    "flush": "Make everything that was acknowledged visible now.",
    "config": "Print every setting with its value and source.",
    "principal": "Create principals, grant and revoke their roles.",
    "warehouse": "Create, list and drop warehouses.",
    "dead-letters": "Show, fix, replay and drop events that could not land.",
    "journal": "Continue with another journal of acknowledged changes.",
    "check": "Compare the catalog's rows with their metadata files.",
    "migrate": "Bring the database to the schema of this version.",
    "openapi": "Write or check the descriptions of the API.",
}


class _LazyGroup(click.Group):
    """Lists commands by COMMANDS alone, and imports the module of the one that runs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)  # the most used first, not by the alphabet

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, found, rest = super().resolve_command(ctx, args)
        if found is not None and name is not None:
            try:
                found = importlib.import_module(f"{__name__}.{name.replace('-', '_')}").command
            except ModuleNotFoundError as missing:
                raise _without_server(missing) from missing
        return name, found, rest

    def invoke(self, ctx: click.Context) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            # The reader of the output has ended (`calve config | head`). Python would report it at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        return result


@click.group(
    cls=_LazyGroup,
    commands=[click.Command(name, help=words) for name, words in COMMANDS.items()],
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 success, 1 the command failed, 2 wrong usage or settings. "
    "`calve COMMAND --help` shows the options of a command.",
)
@click.version_option(__version__, message="calve %(version)s")
def calve() -> None:
    """An Iceberg lakehouse server: REST catalog, change data capture, Spark.

    \b
    Example:
      calve serve                      serve on http://127.0.0.1:8181
      calve demo                       send changes to it, in a second shell
      calve query "SELECT count(*) FROM shop.orders" --as-of "1 minute ago"
    """


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the result is the exit code of the process."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        result = calve.main(words, prog_name="calve", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.format_message(), file=sys.stderr)
        return USAGE
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx is not None else "calve"
        return _refuse(f"{error.format_message().rstrip('.')}. See {path} --help.", USAGE)
    except click.ClickException as error:
        return _refuse(error.format_message(), FAILED)
    except click.Abort:
        return INTERRUPTED
    except Exception as problem:  # noqa: BLE001 - a person gets a sentence, never a traceback
        return _failed(problem)
    return result if isinstance(result, int) else 0


def _sentences() -> tuple[type[Exception], ...]:
    """The classes whose message is for people. A class that is not loaded was not raised."""
    loaded = (("catalog.errors", "CatalogError"), ("calve.errors", "CalveError"))
    found = [getattr(sys.modules[module], name) for module, name in loaded if module in sys.modules]
    return (StartupError, *found)


def _refuse(sentence: str, code: int) -> int:
    print(f"calve: {sentence}", file=sys.stderr)
    return code


def _without_server(missing: ModuleNotFoundError) -> click.ClickException:
    """A command of the server where only the client is installed."""
    return click.ClickException(f"{missing.name} is not installed: pip install 'calve[server]'.")


def _failed(problem: Exception) -> int:
    if isinstance(problem, _sentences()):
        return _refuse(str(problem), USAGE if isinstance(problem, SettingsError) else FAILED)
    if isinstance(problem, ModuleNotFoundError):
        return _refuse(_without_server(problem).format_message(), FAILED)
    if isinstance(problem, OSError) and problem.strerror:
        where = f" ({problem.filename})" if problem.filename else ""
        return _refuse(f"{problem.strerror}{where}.", FAILED)
    if os.environ.get("CALVE_LOG_LEVEL") == "debug":
        traceback.print_exception(problem)
    return _refuse(
        f"unexpected {type(problem).__name__}: {problem} (CALVE_LOG_LEVEL=debug shows where).", FAILED
    )
