"""Trino as a child process of the tests: one node with a small heap, and a catalog for each lake.

trino = Trino(folder, {"lake": properties(stack)})
trino.start()
trino.sql("SELECT count(*) FROM lake.shop.orders")
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import trino.dbapi
import trino.exceptions

from tests.harness import components
from tests.harness.ports import free_port
from tests.harness.process import Child
from tests.harness.stacks import Stack

START_S = 300
HEAP = "768m"


class TrinoRefused(Exception):
    """Trino's own words for what went wrong."""


class Trino:
    """One server. Ended by its id."""

    def __init__(self, folder: Path, catalogs: Mapping[str, Mapping[str, str]]) -> None:
        self.port = free_port()
        (folder / "catalogs").mkdir(parents=True)
        for name, given in catalogs.items():
            _write(folder / "catalogs" / f"{name}.properties", given)
        _write(
            folder / "config.properties",
            {
                "coordinator": "true",
                "node-scheduler.include-coordinator": "true",
                "http-server.http.port": str(self.port),
                "discovery.uri": f"http://127.0.0.1:{self.port}",
                "catalog.config-dir": str(folder / "catalogs"),
                "plugin.dir": str(components.trino() / "plugin"),
                "query.max-memory-per-node": "200MB",
                "memory.heap-headroom-per-node": "200MB",
                "task.concurrency": "2",
            },
        )
        self._child = Child(_command(folder), log=folder / "trino.log", folder=folder)

    def start(self) -> None:
        self._child.start(self._is_ready, timeout_s=START_S)

    def stop(self) -> None:
        self._child.stop()

    def tail(self) -> str:
        return self._child.tail()

    def sql(self, statement: str) -> list[list[Any]]:
        """The rows of a statement; of one that writes, the number of rows written."""
        with trino.dbapi.Connection(host="127.0.0.1", port=self.port, user="calve") as connection:
            cursor = connection.cursor()
            try:
                cursor.execute(statement)
                return [list(row) for row in cursor.fetchall()]
            except trino.exceptions.TrinoQueryError as error:
                raise TrinoRefused(_words(error.failure_info)) from None

    def _is_ready(self) -> bool:
        time.sleep(0.5)  # Trino needs the processor for its start
        try:
            told = httpx.get(f"http://127.0.0.1:{self.port}/v1/info", timeout=5)
            return told.is_success and not told.json()["starting"] and self.sql("SELECT 1") == [[1]]
        except (httpx.HTTPError, TrinoRefused):
            return False  # not listening yet, or no node has announced itself yet


def properties(stack: Stack, warehouse: str = "main", *, credential: str | None = None) -> dict[str, str]:
    """A catalog of Trino that is a warehouse of Calve, as docs/engines.md says."""
    given = {
        "connector.name": "iceberg",
        "iceberg.catalog.type": "rest",
        "iceberg.rest-catalog.uri": stack.url,
        "iceberg.rest-catalog.warehouse": warehouse,
        "iceberg.rest-catalog.nested-namespace-enabled": "true",
        # So that maintenance can be shown on files that are seconds old.
        "iceberg.expire-snapshots.min-retention": "0s",
        "iceberg.remove-orphan-files.min-retention": "0s",
        "iceberg.register-table-procedure.enabled": "true",
    }
    if credential is not None:
        given |= {
            "iceberg.rest-catalog.security": "OAUTH2",
            "iceberg.rest-catalog.oauth2.credential": credential,
            "iceberg.rest-catalog.oauth2.server-uri": f"{stack.url}/v1/oauth/tokens",
        }
    if stack.s3 is None:
        return given | {"fs.native-local.enabled": "true", "local.location": "/"}
    return given | {
        "fs.native-s3.enabled": "true",
        "s3.endpoint": stack.s3.endpoint,
        "s3.region": stack.s3.region,
        "s3.path-style-access": "true",
        "s3.aws-access-key": stack.s3.access_key_id,
        "s3.aws-secret-key": stack.s3.secret_access_key,
    }


def _words(failure: Mapping[str, Any] | None) -> str:
    """The message of a failure and those of its causes: the server's own words may be in any of them."""
    found = []
    while failure is not None:
        found.append(f"{failure.get('message')}")
        failure = failure.get("cause")
    return "; caused by ".join(found)


def _command(folder: Path) -> list[str]:
    """What Trino's launcher starts, with the Java options that its documentation asks for."""
    node = {"environment": "test", "id": "one", "data-dir": str(folder / "data")}
    node |= {"internal-address": "127.0.0.1", "bind-ip": "127.0.0.1"}
    return [
        str(components.trino_java()),
        f"-Xmx{HEAP}",
        "-XX:+UseG1GC",
        "-XX:TieredStopAtLevel=1",  # a short life: quick to start
        "-XX:+ExitOnOutOfMemoryError",
        "-XX:ReservedCodeCacheSize=256M",
        "-Djdk.attach.allowAttachSelf=true",
        "-Dfile.encoding=UTF-8",
        "--enable-native-access=ALL-UNNAMED",
        "--sun-misc-unsafe-memory-access=allow",
        *(f"-Dnode.{key}={value}" for key, value in node.items()),
        f"-Dconfig={folder / 'config.properties'}",
        "-Dlog.enable-console=true",
        "-cp",
        f"{components.trino()}/lib/*",
        "io.trino.server.TrinoServer",
    ]


def _write(path: Path, given: Mapping[str, str]) -> None:
    path.write_text("".join(f"{key}={value}\n" for key, value in given.items()))
