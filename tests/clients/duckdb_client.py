"""DuckDB as a black-box user. Its extensions are loaded by path, so nothing is installed or downloaded."""

from __future__ import annotations

import importlib
import itertools
from pathlib import Path
from typing import Any

import duckdb

from tests.harness.stacks import Stack

EXTENSIONS = ("avro", "httpfs", "iceberg")  # in the order in which they need each other
_names = itertools.count()


class DuckLake:
    """A connection with one warehouse reference attached as `lake`."""

    def __init__(self, stack: Stack, warehouse: str = "main", *, url: str | None = None, options: str = "") -> None:
        self.connection = connected()
        if stack.s3 is not None:
            self.sql(
                f"CREATE SECRET store (TYPE s3, KEY_ID '{stack.s3.access_key_id}', "
                f"SECRET '{stack.s3.secret_access_key}', REGION '{stack.s3.region}', "
                f"ENDPOINT '{stack.s3.endpoint.removeprefix('http://')}', URL_STYLE 'path', USE_SSL false)"
            )
        self.sql(
            f"ATTACH '{warehouse}' AS lake (TYPE iceberg, ENDPOINT '{url or stack.url}', "
            f"AUTHORIZATION_TYPE 'none'{options})"
        )

    def sql(self, text: str) -> list[tuple[Any, ...]]:
        """The rows of the last of some statements."""
        result = self.connection.execute(text)
        return result.fetchall() if result.description else []

    def close(self) -> None:
        self.connection.close()


def connected() -> duckdb.DuckDBPyConnection:
    """A private database in memory with the Iceberg extension."""
    connection = duckdb.connect(f":memory:clients-{next(_names)}", config={"extension_directory": "/nonexistent"})
    connection.execute("SET autoinstall_known_extensions=false; SET autoload_known_extensions=false")
    # With this cache on, tables with deletion vectors were read wrong without an error.
    connection.execute("SET enable_external_file_cache=false; SET threads=2; SET TimeZone='UTC'")
    for name in EXTENSIONS:
        package = importlib.import_module(f"duckdb_extension_{name}")
        assert package.__file__ is not None
        folder = Path(package.__file__).parent / "extensions" / f"v{duckdb.__version__}"
        connection.execute(f"LOAD '{folder / name}.duckdb_extension'")
    return connection
