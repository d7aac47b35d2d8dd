"""The servers of the harness that fail over: a standby and a replica go on without the primary."""

from __future__ import annotations

import pytest

from tests.harness.mariadb import MariaDbServer
from tests.harness.postgres import PostgresServer
from tests.harness.postgres_standby import standby_of


def test_a_standby_is_promoted() -> None:
    with PostgresServer.started() as primary, standby_of(primary) as standby:
        with primary.connect() as connection:
            connection.execute("CREATE TABLE t (x int)")
            connection.execute("INSERT INTO t VALUES (1)")
        standby.wait_for(primary)
        primary.kill()
        standby.promote()
        with standby.connect() as connection:
            connection.execute("INSERT INTO t VALUES (2)")
            assert connection.execute("SELECT x FROM t ORDER BY x").fetchall() == [(1,), (2,)]


@pytest.mark.proof
def test_a_replica_is_promoted_and_numbers_go_on() -> None:
    with MariaDbServer.started(1) as primary, MariaDbServer.started(2) as replica:
        database = primary.database().rpartition("/")[2]
        replica.follow(primary)
        primary.run(f"CREATE TABLE {database}.t (x int PRIMARY KEY)")
        primary.run(f"INSERT INTO {database}.t VALUES (1)")
        replica.wait_for(primary)
        replica.cut_off()
        primary.run(f"INSERT INTO {database}.t VALUES (9)")
        primary.kill()
        replica.promote()
        replica.run(f"INSERT INTO {database}.t VALUES (2)")
        assert [row["x"] for row in replica.run(f"SELECT x FROM {database}.t ORDER BY x")] == [1, 2]
        assert replica.gtid_position() == "0-2-4"
