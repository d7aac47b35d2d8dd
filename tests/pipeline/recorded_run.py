"""A run of Debezium Server on a PostgreSQL that lives, with a crash in the middle, recorded.

`python -m tests.pipeline.recorded_run` records it anew; that needs `make proof-components`.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from tests.harness.postgres import PostgresServer
from tests.pipeline.debezium import Debezium
from tests.pipeline.recorder import Recorder, recording
from tests.pipeline.recordings import RecordedRun, plain, write
from tests.pipeline.shop import Shop

FILE = "debezium-run.jsonl"
SCHEMA = "debezium_run"


def record() -> None:
    with PostgresServer.started({"wal_level": "logical"}) as source, recording() as recorder:
        shop = Shop(source.database(), SCHEMA)
        shop.fill(3)
        folder = Path(tempfile.mkdtemp())
        debezium = Debezium(folder, shop.database, url=recorder.url, tables=shop.names, name=SCHEMA)
        debezium.start()
        try:
            shop.corner_cases()
            _wait(recorder, 60)
            debezium.kill()
            for _ in range(12):
                shop.step()
            debezium.start()
            shop.mark_end()
            _wait(recorder, 0)
        finally:
            debezium.kill()
        columns = {table: shop.columns(table) for table in shop.tables}
        rows = {table: plain(shop.rows(table)) for table in shop.tables}
        write(FILE, RecordedRun(recorder.taken, columns, rows))
        shop.close()


def _wait(recorder: Recorder, requests: int) -> None:
    """Until so many have come, or else the last."""
    until_s = time.monotonic() + 120
    while not (requests and len(recorder.taken) >= requests):
        if any(b'"table":"done"' in taken.body for taken in list(recorder.taken)):
            return
        assert time.monotonic() < until_s, "Debezium sends nothing"
        time.sleep(0.02)


if __name__ == "__main__":
    record()
