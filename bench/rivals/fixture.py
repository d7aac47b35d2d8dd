"""Iceberg's own Java REST server, unchanged, from its published jars: a JDBC catalog and local files.

Its database is SQLite with a write-ahead log, as Calve's is, or PostgreSQL.

    python -m bench.rivals.fixture [--port 8281]      serves until interrupted, on a store that is thrown away

It binds every interface of the machine (it has no setting for that); we speak to 127.0.0.1 only.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from bench.rivals.server import Server, serving
from tests.contract.rck import maven
from tests.harness.ports import free_port
from tests.harness.process import Child

WAREHOUSE = "main"
MAIN_CLASS = "org.apache.iceberg.rest.RESTCatalogServer"


@contextlib.contextmanager
def fixture(
    folder: Path,
    *,
    class_path: str,
    name: str = "fixture",
    port: int | None = None,
    database: str | None = None,
) -> Iterator[Server]:
    """A fresh reference server. `database` is the address of an empty PostgreSQL database, None SQLite."""
    folder.mkdir(parents=True, exist_ok=True)
    port = port or free_port()
    settings = {
        "CATALOG_REST_PORT": str(port),
        **_database(folder, database),
        "CATALOG_WAREHOUSE": (folder / "warehouse").as_uri(),
        "CATALOG_JDBC_SCHEMA__VERSION": "V1",
    }
    child = Child(
        ["java", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", class_path, MAIN_CLASS],
        log=folder / "fixture.log",
        environment={**os.environ, **settings},
        folder=folder,
    )
    with serving(name, child, port=port, warehouse=WAREHOUSE) as server:
        yield server


def _database(folder: Path, address: str | None) -> dict[str, str]:
    if address is None:
        pragmas = "journal_mode=WAL&synchronous=FULL&busy_timeout=30000"
        return {"CATALOG_URI": f"jdbc:sqlite:file:{folder}/catalog.db?{pragmas}"}
    found = urlsplit(address)
    return {
        "CATALOG_URI": f"jdbc:postgresql://{found.hostname}:{found.port}{found.path}",
        "CATALOG_JDBC_USER": unquote(found.username or ""),
        "CATALOG_JDBC_PASSWORD": unquote(found.password or ""),
    }


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--port", type=int, default=8281)
    given = arguments.parse_args()
    # Leave the blocks below in order, so that the server is ended whichever way we are.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with tempfile.TemporaryDirectory(prefix="calve-fixture-") as text:
        folder = Path(text)
        path = maven.class_path(folder / "maven")
        with fixture(folder / "store", class_path=path, port=given.port) as server:
            print(f"{server.url} after {server.start_s:.1f} s, {server.resident_mb():.0f} MB", flush=True)
            with contextlib.suppress(KeyboardInterrupt):
                signal.pause()


if __name__ == "__main__":
    main()
