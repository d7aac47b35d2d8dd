"""A streaming standby of a private PostgreSQL, which can be promoted.

    with PostgresServer.started(settings) as primary, standby_of(primary, settings) as standby:
        primary.kill()
        standby.promote()

Replication is asynchronous, as it is by default: the standby may lack what the primary has acknowledged last.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.harness import components
from tests.harness.errors import ComponentFailed
from tests.harness.postgres import ACCOUNT, PostgresServer, other_account

PROMOTED_S = 60


class PostgresStandby(PostgresServer):
    """A copy of the primary's cluster that follows its log."""

    def promote(self) -> None:
        """Make it a primary. What it has received of the log is applied first."""
        with self.connect() as connection:
            found = connection.execute(f"SELECT pg_promote(true, {PROMOTED_S})".encode()).fetchone()
        if found != (True,):
            raise ComponentFailed(f"the standby was not promoted within {PROMOTED_S} s")

    def wait_for(self, primary: PostgresServer, timeout_s: float = 60) -> None:
        """Wait until it has applied everything that the primary has now."""
        with primary.connect() as connection:
            (position,) = connection.execute("SELECT pg_current_wal_lsn()::text").fetchone() or ("",)
        query = f"SELECT pg_last_wal_replay_lsn() >= '{position}'::pg_lsn".encode()
        until_s = time.monotonic() + timeout_s
        with self.connect() as connection:
            while connection.execute(query).fetchone() != (True,):
                if time.monotonic() > until_s:
                    raise ComponentFailed(f"the standby has not reached {position} after {timeout_s:.0f} s")
                time.sleep(0.02)


@contextlib.contextmanager
def standby_of(
    primary: PostgresServer, settings: Mapping[str, str] | None = None
) -> Iterator[PostgresStandby]:
    """A new standby, running; at the end of the block it is stopped and deleted."""
    folder = Path(tempfile.mkdtemp(prefix="calve-standby-"))
    try:
        server = PostgresStandby(folder, settings)
        _copy_cluster(primary, server.data, other_account())
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _copy_cluster(primary: PostgresServer, data: Path, account: str | None) -> None:
    command = [str(components.postgres("pg_basebackup")), "-h", "127.0.0.1", "-p", str(primary.port)]
    command += ["-U", ACCOUNT, "-D", str(data), "--write-recovery-conf", "--checkpoint=fast"]
    if account is not None:
        shutil.chown(data.parent, account, account)
        command = [str(components.program("runuser")), "-u", account, "--", *command]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=data.parent)
    if ended.returncode != 0:
        raise ComponentFailed(f"pg_basebackup ended with {ended.returncode}:\n{ended.stdout}{ended.stderr}")
