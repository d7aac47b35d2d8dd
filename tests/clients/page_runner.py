"""Runs the fenced code blocks of a Markdown page, in order, as a reader would who pastes them.

The words behind the fence say how: `bash`, `python`, `sql duckdb` (also plain `sql`), `sql spark`,
`properties spark`; any other block is only shown. A third word `s3` marks what is for an object store, `demo`
what needs a running demo.
`→` in a comment at the end of a statement says what must come out: the one value of a query, the text that is
printed, or a part of what a command answers (white space apart).
"""

from __future__ import annotations

import ast
import contextlib
import io
import os
import re
import shlex
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
from pyspark.sql import SparkSession

from tests.clients.duckdb_client import connected
from tests.clients.spark_client import SparkLake
from tests.harness import components
from tests.harness.components import ROOT
from tests.harness.stacks import Stack

FENCE = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CATALOG = re.compile(r"^spark\.sql\.catalog\.(\w+)\s", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    page: str
    line: int
    language: str
    words: tuple[str, ...]
    text: str

    @property
    def where(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(page: Path, section: str | None = None) -> Iterator[Block]:
    """The blocks of a page, or of one of its sections."""
    text = page.read_text()
    begin = text.index(f"\n## {section}\n") if section else 0
    end = text.find("\n## ", begin + 1) if section else -1
    for found in FENCE.finditer(text, begin, len(text) if end < 0 else end):
        line = text.count("\n", 0, found.start()) + 1
        yield Block(page.name, line, found[1], tuple(found[2].split()), found[3])


class Reader:
    """Somebody who follows a page, with one shell, one Python, one DuckDB and one Spark."""

    def __init__(self, stack: Stack, spark: SparkSession | None = None) -> None:
        """Without a session for pages that have nothing for Spark."""
        self._stack = stack
        self._session = spark
        self._catalogs: dict[str, str] = {}  # name on the page -> name in the shared session
        self._python: dict[str, Any] = {"__name__": "page"}
        # polars warns that another package would plan faster, and warnings are errors here.
        os.environ["POLARS_ICEBERG_PLANNER"] = "pyiceberg"
        self._duckdb: duckdb.DuckDBPyConnection | None = None
        self.done = 0

    def run(self, block: Block) -> None:
        """AssertionError with the place on the page if something else comes out."""
        runner = self._runner(block)
        if runner is None:
            return
        self.done += 1
        try:
            runner(self._adapted(block.text))
        except Exception as error:
            raise AssertionError(f"{block.where}: {error}") from error

    def _runner(self, block: Block) -> Callable[[str], None] | None:
        engine = next((word for word in block.words if word not in ("s3", "demo")), "duckdb")
        if block.language == "sql":
            return self._spark_sql if engine == "spark" else self._duckdb_sql
        if block.language == "properties":
            return self._spark_settings if engine == "spark" else None
        return {"bash": self._bash, "python": self._run_python}.get(block.language)

    def _adapted(self, text: str) -> str:
        """The page's addresses and keys become those of the stack."""
        text = text.replace("127.0.0.1:8181", self._stack.url.removeprefix("http://"))
        text = re.sub(r"^INSTALL iceberg; LOAD iceberg;\n", "", text, flags=re.MULTILINE)
        if self._stack.s3 is not None:
            text = text.replace("127.0.0.1:9000", self._stack.s3.endpoint.removeprefix("http://"))
            text = re.sub(r"\bKEY\b", self._stack.s3.access_key_id, text)
            text = re.sub(r"(['\" ])SECRET(['\"\n])", rf"\g<1>{self._stack.s3.secret_access_key}\2", text)
        return text

    @property
    def _spark(self) -> SparkLake:
        assert self._session is not None, "this page is for Spark too"
        return SparkLake(self._session, self._stack)

    # -- the ways to run a block

    def _bash(self, text: str) -> None:
        for command, expected in _statements(text, "#", lambda line: not line.rstrip().endswith("\\")):
            if " tail " in command:
                self._follow(command)
                continue
            ended = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", command],
                cwd=ROOT,
                env=self._environment,
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
            assert ended.returncode == 0, f"{command}\n{ended.stderr}"
            assert '"error":{' not in ended.stdout or '"code":' in (expected or ""), ended.stdout
            if expected is not None:
                assert _dense(expected) in _dense(ended.stdout), f"{expected} is not in {ended.stdout}"

    def _follow(self, command: str) -> None:
        """A command that shows what happens until Ctrl-C: it shows something, and ends well."""
        running = subprocess.Popen(
            shlex.split(command), cwd=ROOT, env=self._environment, stdout=subprocess.PIPE, text=True
        )
        assert running.stdout is not None
        assert running.stdout.readline(), f"{command} showed nothing"
        running.send_signal(signal.SIGINT)
        running.communicate(timeout=60)
        assert running.returncode == 0, f"{command} ended with {running.returncode}"

    @property
    def _environment(self) -> dict[str, str]:
        """Commands of the page find the server of the stack where they would look for one."""
        path = f"{components.calve().parent}:{os.environ['PATH']}"
        return dict(os.environ) | {"CALVE_URI": self._stack.url, "PATH": path}

    def _run_python(self, text: str) -> None:
        lines = text.splitlines()
        for node in ast.parse(text).body:
            printed = io.StringIO()
            code = compile(ast.Module([node], []), "page", "exec")
            with contextlib.redirect_stdout(printed):
                exec(code, self._python)  # the page is ours
            _, arrow, expected = lines[(node.end_lineno or 1) - 1].partition("# → ")
            assert not arrow or printed.getvalue().strip() == expected.strip(), printed.getvalue()

    def _duckdb_sql(self, text: str) -> None:
        if self._duckdb is None:
            self._duckdb = connected()
        for statement, expected in _statements(text, "--", lambda line: line.rstrip().endswith(";")):
            result = self._duckdb.execute(statement)
            rows = result.fetchall() if result.description else []
            assert expected is None or [(expected,)] == [(str(value),) for (value,) in rows], rows

    def _spark_settings(self, text: str) -> None:
        for name in CATALOG.findall(text):
            self._catalogs[name] = f"{name}_{self._stack.server.port}"  # the session has other stacks too
        for line in self._renamed(text).splitlines():
            key, value = line.split(maxsplit=1)
            if key != "spark.sql.extensions":  # cannot be set in a running session, and is
                self._spark.session.conf.set(key, value)

    def _spark_sql(self, text: str) -> None:
        for statement, expected in _statements(text, "--", lambda line: line.rstrip().endswith(";")):
            rows = self._spark.sql(self._renamed(statement).rstrip().rstrip(";"))
            assert expected is None or [(expected,)] == [(str(value),) for (value,) in rows], rows

    def _renamed(self, text: str) -> str:
        for name, real in self._catalogs.items():
            text = re.sub(rf"(?<![\w~]){name}(?=\.|\s)", real, text)
        return text


def _statements(text: str, comment: str, is_last: Callable[[str], bool]) -> Iterator[tuple[str, str | None]]:
    """Statements with what the comment behind each promises."""
    held: list[str] = []
    for line in text.splitlines():
        code, _, said = line.partition(f" {comment} ")
        if line.startswith(comment) or not (code.strip() or held):
            continue
        held.append(code)
        # Inside quotes a line end is text.
        if is_last(code) and sum(part.count("'") for part in held) % 2 == 0:
            _, arrow, expected = said.partition("→ ")
            yield "\n".join(held), expected.strip() if arrow else None
            held = []
    assert not held, f"unfinished: {held}"


def _dense(text: str) -> str:
    return re.sub(r"\s", "", text)
