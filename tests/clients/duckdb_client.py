"""DuckDB as a black-box user. Its extensions are loaded by path, so nothing is installed or downloaded."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import duckdb

from tests.harness.s3 import S3Access
from tests.harness.stacks import Stack

EXTENSIONS = ("avro", "httpfs", "iceberg")  # in the order in which they need each other
# To load the extensions takes longer than most tests, so databases are used again; each for one server only,
# because after DETACH and ATTACH of another server DuckDB 1.5.5 may still talk to the first one.
_idle: dict[str, list[duckdb.DuckDBPyConnection]] = {}


class DuckLake:
    """A database in memory, with one warehouse reference attached as `lake`. For one thread at a time."""

    def __init__(
        self, stack: Stack, warehouse: str = "main", *, url: str | None = None, options: str = ""
    ) -> None:
        self._url = url or stack.url
        idle = _idle.setdefault(self._url, [])
        self._connection = idle.pop() if idle else connected()
        attach(self._connection, self._url, stack.s3, warehouse, options)

    def sql(self, text: str) -> list[tuple[Any, ...]]:
        """The rows of the last of some statements."""
        return self.named(text)[1]

    def named(self, text: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        """The same with the names of the columns."""
        result = self._connection.execute(text)
        columns = [column[0] for column in result.description or []]
        return columns, result.fetchall() if columns else []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:  # whatever state it is in, nobody gets it again
            self._connection.close()
            return
        self.sql("DETACH lake")
        _idle[self._url].append(self._connection)


def attach(
    connection: duckdb.DuckDBPyConnection,
    url: str,
    s3: S3Access | None,
    warehouse: str = "main",
    options: str = "",
) -> None:
    """Attach a warehouse of the server as `lake`."""
    if s3 is not None:
        connection.execute(
            f"CREATE OR REPLACE SECRET store (TYPE s3, KEY_ID '{s3.access_key_id}', "
            f"SECRET '{s3.secret_access_key}', REGION '{s3.region}', "
            f"ENDPOINT '{s3.endpoint.removeprefix('http://')}', URL_STYLE 'path', USE_SSL false)"
        )
    connection.execute(
        f"ATTACH '{warehouse}' AS lake (TYPE iceberg, ENDPOINT '{url}', AUTHORIZATION_TYPE 'none'{options})"
    )


def connected() -> duckdb.DuckDBPyConnection:
    """A private database in memory with the Iceberg extension."""
    connection = duckdb.connect(config={"extension_directory": "/nonexistent"})
    connection.execute("SET autoinstall_known_extensions=false; SET autoload_known_extensions=false")
    # With this cache on, tables with deletion vectors were read wrong without an error.
    connection.execute("SET enable_external_file_cache=false; SET threads=2; SET TimeZone='UTC'")
    for name in EXTENSIONS:
        package = importlib.import_module(f"duckdb_extension_{name}")
        assert package.__file__ is not None
        folder = Path(package.__file__).parent / "extensions" / f"v{duckdb.__version__}"
        connection.execute(f"LOAD '{folder / name}.duckdb_extension'")
    return connection
