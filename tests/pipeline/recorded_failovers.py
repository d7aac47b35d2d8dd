"""Small runs of Debezium Server, recorded: failovers, and tables whose events name no key.

`python -m tests.pipeline.recorded_failovers` records them anew; that needs `make proof-components`.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from tests.harness.mariadb import MariaDbServer
from tests.harness.postgres import PostgresServer
from tests.harness.postgres_standby import standby_of
from tests.pipeline import key_tables
from tests.pipeline.debezium import Debezium
from tests.pipeline.key_tables import COMPARED, FIRST, THEN, KeyTables
from tests.pipeline.recorder import Recorder, recording
from tests.pipeline.recordings import RecordedRun, plain, write
from tests.pipeline.stock import TABLES, Stock

POSTGRES_FAILOVER, MARIADB_FAILOVER = "failover-postgresql.jsonl", "failover-mariadb.jsonl"
POSTGRES_KEYS, MARIADB_KEYS = "keys-postgresql.jsonl", "keys-mariadb.jsonl"
SCHEMAS = {
    POSTGRES_FAILOVER: "failover_pg",
    MARIADB_FAILOVER: "failover_maria",
    POSTGRES_KEYS: "keys_pg",
    MARIADB_KEYS: "keys_maria",
}
LOGICAL = {"wal_level": "logical"}
ROWS = 1  # of each table at the beginning
STEPS = 2
ARRIVED_S = 120


def record_postgres_failover() -> None:
    """The standby is stopped before the last transactions of the primary. Debezium has sent them."""
    schema = SCHEMAS[POSTGRES_FAILOVER]
    with (
        PostgresServer.started(LOGICAL) as primary,
        standby_of(primary, LOGICAL) as standby,
        recording() as recorder,
    ):
        stock = Stock(primary.database(), schema)
        stock.create(ROWS)
        debezium = _started(stock.database, schema, stock.names, recorder)
        try:
            _steps(stock)
            stock.add_column()
            standby.wait_for(primary)
            standby.stop()
            _steps(stock)
            _wait_for_end(recorder, stock.mark_end())
            primary.kill()
            debezium.kill()
            standby.start()
            standby.promote()
            failover_at = len(recorder.taken)
            stock.connect(stock.database.replace(f":{primary.port}/", f":{standby.port}/"))
            stock.load_keys()
            debezium.connect_to(stock.database)
            debezium.forget_offsets()
            debezium.start()
            _end(stock, recorder)
        finally:
            debezium.kill()
        _write_stock(POSTGRES_FAILOVER, stock, recorder, failover_at)


def record_mariadb_failover() -> None:
    """Debezium is killed before the primary, and goes on at the replica by its GTID."""
    schema = SCHEMAS[MARIADB_FAILOVER]
    with (
        MariaDbServer.started(1) as primary,
        MariaDbServer.started(2) as replica,
        recording() as recorder,
    ):
        primary.run("FLUSH BINARY LOGS")  # the logs of the two have other numbers
        database = primary.database(schema)
        replica.follow(primary)
        stock = Stock(database, schema)
        stock.create(ROWS)
        debezium = _started(stock.database, schema, stock.names, recorder)
        try:
            _steps(stock)
            stock.add_column()
            _wait_for_end(recorder, stock.mark_end())
            debezium.kill()
            _steps(stock)
            replica.wait_for(primary)
            primary.kill()
            replica.promote()
            failover_at = len(recorder.taken)
            stock.connect(replica.address(schema))
            stock.load_keys()
            debezium.connect_to(stock.database)
            debezium.start()
            _end(stock, recorder)
        finally:
            debezium.kill()
        _write_stock(MARIADB_FAILOVER, stock, recorder, failover_at)


def record_keys(name: str) -> None:
    schema = SCHEMAS[name]
    if name == POSTGRES_KEYS:
        with PostgresServer.started(LOGICAL) as server:
            _record_keys(name, KeyTables(server.database(), schema))
    else:
        with MariaDbServer.started(1) as maria:
            _record_keys(name, KeyTables(maria.database(schema), schema))


def _record_keys(name: str, tables: KeyTables) -> None:
    with recording() as recorder:
        tables.run(*FIRST)
        debezium = _started(tables.database, tables.schema, tables.names, recorder)
        try:
            tables.run(*THEN)
            _wait_for_end(recorder, 1)
        finally:
            debezium.kill()
        rows = {table: plain(found) for table, found in tables.rows().items()}
        assert rows.keys() == key_tables.TABLES.keys()
        write(name, RecordedRun(recorder.taken, COMPARED, rows))
        tables.close()


def _started(database: str, name: str, tables: list[str], recorder: Recorder) -> Debezium:
    debezium = Debezium(Path(tempfile.mkdtemp()), database, url=recorder.url, tables=tables, name=name)
    debezium.start()
    return debezium


def _steps(stock: Stock) -> None:
    for _ in range(STEPS):
        stock.step()


def _end(stock: Stock, recorder: Recorder) -> None:
    _steps(stock)
    stock.change_type()
    stock.truncate()
    _steps(stock)
    _wait_for_end(recorder, stock.mark_end())


def _wait_for_end(recorder: Recorder, number: int) -> None:
    """Wait until the row of `done` with this id has come, and the end of its transaction after it."""
    until_s = time.monotonic() + ARRIVED_S
    marks = (b'"table":"done"', b'"op":"c"', f'"id":{number}'.encode())
    while not _has_ended([taken.body for taken in list(recorder.taken)], marks):
        assert time.monotonic() < until_s, "Debezium does not send the last transaction"
        time.sleep(0.02)


def _has_ended(bodies: list[bytes], marks: tuple[bytes, ...]) -> bool:
    rows = [place for place, body in enumerate(bodies) if all(mark in body for mark in marks)]
    return bool(rows) and any(b'"status":"END"' in body for body in bodies[rows[0] + 1 :])


def _write_stock(name: str, stock: Stock, recorder: Recorder, failover_at: int) -> None:
    columns = {table: stock.columns(table) for table in TABLES}
    rows = {table: plain(stock.rows(table)) for table in TABLES}
    write(name, RecordedRun(recorder.taken, columns, rows, failover_at))
    stock.close()


if __name__ == "__main__":
    record_postgres_failover()
    record_mariadb_failover()
    record_keys(POSTGRES_KEYS)
    record_keys(MARIADB_KEYS)
