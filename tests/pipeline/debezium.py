"""Debezium Server as a child process of the tests: unmodified, from PostgreSQL or MariaDB to an HTTP address.

    debezium = Debezium(folder, database, url=f"{server.url}/cdc", tables=["shop.orders"])
    debezium.start(); debezium.kill(); debezium.start()

Its offsets are a file in `folder`, and its replication slot stays in the database: a new start goes on where
the last one had got an answer. `connect_to` changes the database, as an operator does after a failover.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

from tests.harness import components
from tests.harness.ports import free_port
from tests.harness.process import Child

START_S = 120
READS_LOG = ("Processing messages", "Connected to binlog at")
OFFSETS = "offsets.dat"
HISTORY = "schema_history.dat"


@dataclass(frozen=True, slots=True)
class Sending:
    """How the records are sent."""

    schemas: bool = True
    batches: bool = False
    batch_size_max: int = 50


class Debezium:
    """One connector in one process. Ended by its id."""

    def __init__(
        self,
        folder: Path,
        database: str,
        *,
        url: str,
        tables: Sequence[str],
        sending: Sending | None = None,
        name: str = "shop",
    ) -> None:
        self._folder = folder
        (folder / "config").mkdir(parents=True, exist_ok=True)
        source = {"topic.prefix": name, "table.include.list": ",".join(tables)}
        self._given = source, _sink(url, sending or Sending())
        self.connect_to(database)
        self._child = Child(
            _command(), log=folder / "debezium.log", environment=_environment(), folder=folder
        )

    @property
    def running(self) -> bool:
        return self._child.running

    @property
    def log(self) -> Path:
        return self._child.log

    def connect_to(self, database: str) -> None:
        """Read this database from the next start on, with the same offsets."""
        source, sink = self._given
        connector = _mariadb if database.startswith("mysql") else _postgres
        given = {
            **{f"debezium.source.{key}": value for key, value in source.items()},
            **{
                f"debezium.source.{key}": value
                for key, value in connector(self._folder, database, str(source["topic.prefix"])).items()
            },
            **sink,
        }
        lines = [f"{key}={value}" for key, value in given.items()]
        (self._folder / "config" / "application.properties").write_text("\n".join(lines) + "\n")

    def forget_offsets(self) -> None:
        """Read every table again at the next start."""
        for name in (OFFSETS, HISTORY):
            (self._folder / name).unlink(missing_ok=True)

    def start(self, *, wait: bool = True) -> None:
        """`wait` until it reads the database's log; a first load is over then."""
        began = self.log.stat().st_size if self.log.exists() else 0
        self._child.start(lambda: not wait or self._reads_log(began), timeout_s=START_S)

    def stop(self) -> int:
        return self._child.stop(timeout_s=40)

    def kill(self) -> None:
        self._child.kill()

    def tail(self) -> str:
        return self._child.tail()

    def _reads_log(self, began: int) -> bool:
        """Whether it has said so since the log had this size."""
        said = self.log.read_bytes()[began:].decode(errors="replace")
        return any(words in said for words in READS_LOG)


def _command() -> list[str]:
    home = components.debezium()
    runner = next(home.glob("debezium-server-*runner.jar"))
    words = [str(components.debezium_java()), "-Xmx384m", "--add-opens=java.base/java.lang=ALL-UNNAMED"]
    words += ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]  # a short life: quick to start, small
    return [*words, "-cp", f"{runner}:{home}/config/lib:{home}/lib/*", "io.debezium.server.Main"]


def _environment() -> dict[str, str]:
    """Without K_SINK, which would win over the address in the settings."""
    return {name: value for name, value in os.environ.items() if name != "K_SINK"}


def _read(folder: Path, database: str) -> dict[str, object]:
    """What all connectors need."""
    address = sa.make_url(database)
    return {
        "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
        "offset.storage.file.filename": folder / OFFSETS,
        "offset.flush.interval.ms": 0,
        "database.hostname": address.host,
        "database.port": address.port,
        "database.user": address.username,
        "database.password": "unused",
        "provide.transaction.metadata": "true",
        "skipped.operations": "none",
        "poll.interval.ms": 50,
    }


def _postgres(folder: Path, database: str, name: str) -> dict[str, object]:
    return _read(folder, database) | {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "database.dbname": sa.make_url(database).database,
        "plugin.name": "pgoutput",
        "slot.name": name,
        "publication.name": name,
        "publication.autocreate.mode": "filtered",
    }


def _mariadb(folder: Path, database: str, name: str) -> dict[str, object]:
    return _read(folder, database) | {
        "connector.class": "io.debezium.connector.mariadb.MariaDbConnector",
        "database.password": "",
        "database.include.list": sa.make_url(database).database,
        "database.server.id": 7_000 + zlib.crc32(name.encode()) % 1_000,  # as a replica; unique among them
        "schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory",
        "schema.history.internal.file.filename": folder / HISTORY,
        "database.ssl.mode": "disable",
    }


def _sink(url: str, sending: Sending) -> dict[str, object]:
    sink = {
        "type": "http",
        "http.url": url,
        "http.retries": 600,
        "http.retry.interval.ms": 500,
        "http.timeout.ms": 20_000,
        "http.batch.enabled": str(sending.batches).lower(),
        "http.batch.max-size": sending.batch_size_max,
    }
    return {
        **{f"debezium.sink.{key}": value for key, value in sink.items()},
        "debezium.format.value": "json",
        "debezium.format.value.schemas.enable": str(sending.schemas).lower(),
        "quarkus.http.host": "127.0.0.1",
        "quarkus.http.port": free_port(),
        "quarkus.log.level": "INFO",
        "quarkus.log.console.json": "false",
    }
