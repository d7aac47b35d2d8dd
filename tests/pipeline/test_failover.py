"""Debezium Server while its database fails over: the mirror ends equal to the new primary.

Each test prints one line with its figures. `CALVE_PROOF_CHANGES` is the number of changes.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from tests.harness.mariadb import MariaDbServer
from tests.harness.postgres import PostgresServer
from tests.harness.postgres_standby import standby_of
from tests.harness.stacks import StackName, Stacks
from tests.pipeline.failover_proof import Failover, load_all, require_equal, running
from tests.pipeline.stock import Stock, loading

pytestmark = [pytest.mark.proof, pytest.mark.timeout(7_200)]

CHANGES = int(os.environ.get("CALVE_PROOF_CHANGES", "100000"))
LOGICAL = {"wal_level": "logical"}
LOG_FILES = 5  # of the first MariaDB: its replica has fewer


def test_a_promoted_postgresql_standby(stacks: Stacks, tmp_path: Path) -> None:
    """The standby lacks changes that Debezium has read. A new epoch and a resync remove them."""
    began_s = time.monotonic()
    with (
        stacks.started("postgres-s3", tmp_path / "stack") as stack,
        PostgresServer.started(LOGICAL) as primary,
        standby_of(primary, LOGICAL) as standby,
        running(stack, tmp_path, Stock(primary.database(), "stock"), rows=200) as run,
    ):
        alter_under_load(run)
        with loading(run.stock, CHANGES * 3 // 4) as load:
            load.reached(CHANGES * 2 // 5)
            standby.stop()
            run.wait_for_order(above=run.stock.newest_id)
            primary.kill()
            load.wait_for_loss()
            run.debezium.kill()
            standby.start()
            standby.promote()
            address = run.stock.database.replace(f":{primary.port}/", f":{standby.port}/")
            lost = run.ids("orders") - ids_at(address)
            assert lost, "the standby lacks nothing that the mirror has"
            run.begin_anew(address, load)
            load.wait()
        end_under_load(run)
        report("PostgreSQL", run, began_s, lost_orders=len(lost))
        assert not lost & run.ids("orders")


@pytest.mark.parametrize("name", ["embedded"])
def test_a_promoted_mariadb_replica(name: StackName, stacks: Stacks, tmp_path: Path) -> None:
    """The replica has all that Debezium has read: it goes on by its GTID, in another log."""
    began_s = time.monotonic()
    with (
        stacks.started(name, tmp_path / "stack") as stack,
        MariaDbServer.started(1) as primary,
        MariaDbServer.started(2) as replica,
        running(stack, tmp_path, mariadb_stock(primary, replica), rows=200) as run,
    ):
        alter_under_load(run)
        with loading(run.stock, CHANGES * 3 // 4) as load:
            load.reached(CHANGES * 2 // 5)
            run.debezium.kill()
            replica.wait_for(primary)
            load.reached(run.stock.changes + 100)
            primary.kill()
            load.wait_for_loss()
            replica.promote()
            run.go_on(replica.address(run.stock.schema), load)
            load.wait()
        end_under_load(run)
        report("MariaDB", run, began_s)


def test_a_promoted_mariadb_replica_that_lacks_changes(stacks: Stacks, tmp_path: Path) -> None:
    """Debezium has read changes that the replica never got. A new epoch and a resync remove them."""
    began_s = time.monotonic()
    with (
        stacks.started("embedded", tmp_path / "stack") as stack,
        MariaDbServer.started(1) as primary,
        MariaDbServer.started(2) as replica,
        running(stack, tmp_path, mariadb_stock(primary, replica), rows=200) as run,
    ):
        alter_under_load(run)
        with loading(run.stock, CHANGES * 3 // 4) as load:
            load.reached(CHANGES * 2 // 5)
            replica.cut_off()
            run.wait_for_order(above=run.stock.newest_id)
            primary.kill()
            load.wait_for_loss()
            run.debezium.kill()
            replica.promote()
            address = replica.address(run.stock.schema)
            lost = run.ids("orders") - ids_at(address)
            assert lost, "the replica lacks nothing that the mirror has"
            run.begin_anew(address, load)
            load.wait()
        end_under_load(run)
        report("MariaDB, changes lost", run, began_s, lost_orders=len(lost))
        assert not lost & run.ids("orders")


def mariadb_stock(primary: MariaDbServer, replica: MariaDbServer) -> Stock:
    """An empty database that is replicated. The primary's log has more files than that of the replica."""
    for _ in range(LOG_FILES):
        primary.run("FLUSH BINARY LOGS")
    database = primary.database()
    replica.follow(primary)
    return Stock(database, database.rpartition("/")[2])


def alter_under_load(run: Failover) -> None:
    load_all(run.stock, CHANGES // 8)
    run.stock.add_column()
    load_all(run.stock, CHANGES // 4)
    run.stock.widen_column()


def end_under_load(run: Failover) -> None:
    run.stock.change_type()
    load_all(run.stock, CHANGES * 7 // 8)
    run.stock.truncate()
    load_all(run.stock, CHANGES)
    run.wait_for_all()


def ids_at(address: str) -> set[object]:
    """The ids of orders that a server has."""
    schema = "stock" if address.startswith("postgresql") else address.rpartition("/")[2]
    stock = Stock(address, schema)
    found = {int(row[0]) for row in stock.rows("orders", ["id"])}
    stock.close()
    return set(found)


def report(what: str, run: Failover, began_s: float, **figures: Any) -> None:
    equal = require_equal(run)
    made = ", ".join(f"{count} {kind}" for kind, count in sorted(run.stock.made.items()))
    figures = {"rows lost": run.stock.rows_lost, **figures}
    more = "".join(f", {name} {value}" for name, value in figures.items())
    print(
        f"\n{what}: {run.stock.changes} changes ({made}){more}; {equal['changes']} events landed, "
        f"{equal['rows']} rows in {equal['tables']} tables equal; {time.monotonic() - began_s:.0f} s"
    )
