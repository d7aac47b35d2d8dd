"""A private MariaDB with a binary log of rows and GTIDs, and replicas of it that can be promoted.

    with MariaDbServer.started(1) as primary, MariaDbServer.started(2) as replica:
        url = primary.database()      # an empty database, as a SQLAlchemy address
        replica.follow(primary)
        primary.kill()
        replica.promote()

`stop`, `kill` and `start` may be called in between: the port and the data stay.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymysql

from tests.harness import components
from tests.harness.errors import ComponentFailed
from tests.harness.ports import free_port
from tests.harness.process import Child

ACCOUNT = "root"  # inside the server; it has no password and listens on 127.0.0.1 only
SYSTEM_ACCOUNT = "mysql"  # made by the Debian package
# Durable as in production: the tests kill servers.
SETTINGS = {
    "bind-address": "127.0.0.1",
    "log-bin": "bin",
    "binlog-format": "ROW",
    "binlog-row-image": "FULL",
    "sync-binlog": "1",
    "log-slave-updates": "ON",
    "gtid-strict-mode": "ON",
    "character-set-server": "utf8mb4",
    "default-time-zone": "+00:00",
    "innodb-buffer-pool-size": "64M",
    "skip-name-resolve": "ON",
}


class MariaDbServer:
    """One server; `server_id` is what its GTIDs contain."""

    def __init__(self, folder: Path, server_id: int) -> None:
        self.port = free_port()
        self.data = folder / "data"
        self._numbers = itertools.count(1)
        own = {
            "datadir": str(self.data),
            "port": str(self.port),
            "socket": str(folder / "mariadb.sock"),
            "pid-file": str(folder / "mariadb.pid"),
            "server-id": str(server_id),
        }
        self._child = Child(
            [
                str(components.mariadb("mariadbd")),
                "--no-defaults",
                *(f"--{name}={value}" for name, value in (SETTINGS | own).items()),
            ],
            log=folder / "mariadb.log",
            folder=folder,
            user=_other_account(),
        )

    @classmethod
    @contextlib.contextmanager
    def started(cls, server_id: int) -> Iterator[MariaDbServer]:
        """A new server, running; at the end of the block it is stopped and deleted."""
        folder = Path(tempfile.mkdtemp(prefix="calve-mariadb-"))
        try:
            server = cls(folder, server_id)
            _create_data(server.data, _other_account())
            server.start()
            try:
                yield server
            finally:
                server.stop()
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def database(self, name: str | None = None) -> str:
        """The SQLAlchemy address of an empty database."""
        name = name or f"calve_{next(self._numbers)}"
        self.run(f"CREATE DATABASE {name}")
        return self.address(name)

    def address(self, database: str) -> str:
        return f"mysql+pymysql://{ACCOUNT}@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        self._child.start(self._answers)

    def stop(self) -> None:
        """A clean shutdown; open connections are cut."""
        self._child.stop()

    def kill(self) -> None:
        """A crash: the next start recovers from its logs."""
        self._child.kill()

    def run(self, statement: str) -> list[dict[str, Any]]:
        connection = self._connect()
        try:
            with connection.cursor() as cursor:
                cursor.execute(statement)
                return list(cursor.fetchall())
        finally:
            connection.close()

    # -- replication

    def follow(self, primary: MariaDbServer) -> None:
        """Become a replica of a primary. This server must be empty."""
        # What mariadb-install-db wrote has GTIDs of its own.
        self.run("RESET MASTER")
        self.run("SET GLOBAL gtid_slave_pos = ''")
        self.run(
            f"CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {primary.port}, "
            f"MASTER_USER = '{ACCOUNT}', MASTER_CONNECT_RETRY = 1, MASTER_USE_GTID = slave_pos"
        )
        self.run("START SLAVE")
        self.run("SET GLOBAL read_only = ON")
        self.wait_for(primary)

    def wait_for(self, primary: MariaDbServer, timeout_s: float = 60) -> None:
        """Wait until it has applied everything that the primary has now."""
        position = primary.gtid_position()
        found = self.run(f"SELECT MASTER_GTID_WAIT('{position}', {timeout_s}) AS done")
        if found[0]["done"] != 0:
            raise ComponentFailed(f"the replica has not reached {position}: {self.run('SHOW SLAVE STATUS')}")

    def cut_off(self) -> None:
        """Receive nothing more from the primary, as if the network between them were down."""
        self.run("STOP SLAVE IO_THREAD")

    def promote(self) -> None:
        """Make it a primary. What it has received of the log is applied first."""
        self.run("STOP SLAVE IO_THREAD")
        self._wait_for_relay_log()
        self.run("STOP SLAVE")
        self.run("RESET SLAVE ALL")
        self.run("SET GLOBAL read_only = OFF")

    def gtid_position(self) -> str:
        return str(self.run("SELECT @@gtid_binlog_pos AS position")[0]["position"])

    def _wait_for_relay_log(self, timeout_s: float = 60) -> None:
        until_s = time.monotonic() + timeout_s
        while True:
            (status,) = self.run("SHOW SLAVE STATUS")
            if status["Slave_SQL_Running_State"].startswith("Slave has read all relay log"):
                return
            if time.monotonic() > until_s:
                raise ComponentFailed(f"the relay log is not applied after {timeout_s:.0f} s: {status}")
            time.sleep(0.05)

    def _connect(self) -> Any:
        return pymysql.connect(
            host="127.0.0.1",
            port=self.port,
            user=ACCOUNT,
            autocommit=True,
            connect_timeout=5,
            cursorclass=pymysql.cursors.DictCursor,
        )

    def _answers(self) -> bool:
        try:
            self._connect().close()
        except pymysql.err.OperationalError:
            return False
        return True


def _other_account() -> str | None:
    """MariaDB refuses to run as root; then it runs under the account that its package made."""
    return SYSTEM_ACCOUNT if os.geteuid() == 0 else None


def _create_data(data: Path, account: str | None) -> None:
    command = [str(components.mariadb("mariadb-install-db")), "--no-defaults", f"--datadir={data}"]
    command += ["--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"]
    if account is not None:
        shutil.chown(data.parent, account, account)
        command.append(f"--user={account}")
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=data.parent)
    if ended.returncode != 0:
        raise ComponentFailed(
            f"mariadb-install-db ended with {ended.returncode}:\n{ended.stdout}{ended.stderr}"
        )
