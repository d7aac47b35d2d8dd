"""A private PostgreSQL: its own data directory and port, durable as in production, gone after the tests.

    with PostgresServer.started() as postgres:
        url = postgres.database()      # an empty database, as a SQLAlchemy address

`stop`, `kill` and `start` may be called in between: the port and the data stay.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import psycopg

from tests.harness import components
from tests.harness.errors import ComponentFailed
from tests.harness.ports import free_port
from tests.harness.process import Child

ACCOUNT = "postgres"
# fsync and synchronous_commit keep their defaults (on): the crash tests are about nothing else.
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "max_connections": "200",
    "shared_buffers": "64MB",
    "log_min_messages": "warning",
}


class PostgresServer:
    """One cluster; `database()` gives each caller an empty database of its own."""

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        self.port = free_port()
        self.data = folder / "data"
        self._numbers = itertools.count(1)
        own = {"port": str(self.port), "unix_socket_directories": str(folder)}
        given = SETTINGS | dict(settings or {}) | own
        self._child = Child(
            [
                str(components.postgres("postgres")),
                f"-D{self.data}",
                *(f"--{name}={value}" for name, value in given.items()),
            ],
            log=folder / "postgres.log",
            folder=folder,
            user=other_account(),
            stop_signal=signal.SIGINT,  # a fast shutdown: does not wait for clients
        )

    @classmethod
    @contextlib.contextmanager
    def started(cls, settings: Mapping[str, str] | None = None) -> Iterator[PostgresServer]:
        """A new cluster, running; at the end of the block it is stopped and deleted."""
        # Not below pytest's own folder: that one is closed to the account PostgreSQL runs under.
        folder = Path(tempfile.mkdtemp(prefix="calve-postgres-"))
        try:
            server = cls(folder, settings)
            _create_cluster(server.data, other_account())
            server.start()
            try:
                yield server
            finally:
                server.stop()
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def database(self, template: str | None = None) -> str:
        """The SQLAlchemy address of a fresh database: an empty one, or a copy of one that this method made
        and that has no connections.
        """
        name = f"calve_{next(self._numbers)}"
        copied = "template1" if template is None else template.rpartition("/")[2]
        with self.connect() as connection:
            connection.execute(f"CREATE DATABASE {name} TEMPLATE {copied}".encode())
        return f"postgresql+psycopg://{ACCOUNT}@127.0.0.1:{self.port}/{name}"

    def start(self) -> None:
        self._child.start(self._answers)

    def stop(self) -> None:
        """A clean shutdown; open connections are cut."""
        self._child.stop()

    def kill(self) -> None:
        """A crash: the next start recovers from the write-ahead log."""
        self._child.kill()

    def connect(self) -> psycopg.Connection:
        return psycopg.connect(
            host="127.0.0.1",
            port=self.port,
            user=ACCOUNT,
            dbname="postgres",
            autocommit=True,
            connect_timeout=5,
        )

    def _answers(self) -> bool:
        try:
            self.connect().close()
        except psycopg.OperationalError:
            return False
        return True


def other_account() -> str | None:
    """PostgreSQL refuses to run as root; then it runs under the account that its package made."""
    return ACCOUNT if os.geteuid() == 0 else None


def _create_cluster(data: Path, account: str | None) -> None:
    command = [str(components.postgres("initdb")), "-D", str(data), "-U", ACCOUNT, "--auth=trust"]
    command += ["--encoding=UTF8", "--locale=C.UTF-8", "--no-instructions"]
    if account is not None:
        shutil.chown(data.parent, account, account)
        command = [str(components.program("runuser")), "-u", account, "--", *command]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=data.parent)
    if ended.returncode != 0:
        raise ComponentFailed(f"initdb ended with {ended.returncode}:\n{ended.stdout}{ended.stderr}")
