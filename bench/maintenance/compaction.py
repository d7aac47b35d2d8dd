"""Compaction while batches land: bytes rewritten for each byte landed, beside Iceberg's own defaults.

Both tables get the same batches of random rows. After every twelve, one is maintained by a step of the
worker, the other by `rewrite_data_files` as Iceberg's documentation calls it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog.rest import RestCatalog

from bench.rivals.calve import calve
from spark_jobs.driver import started
from spark_jobs.maintenance import steps as maintenance
from spark_jobs.messages import parsed
from spark_jobs.server_client import Server
from spark_jobs.slot_session import SlotSession, Stores
from spark_jobs.tables.commit import quoted

EVERY = 12
POLICY = {"small-files-min": 12, "delete-files-max": 32, "delete-ratio": 0.2, "target-bytes": 128 * 2**20}
SCHEMA = pa.schema([("id", pa.int64()), ("amount", pa.float64()), ("item", pa.string())])


def run(folder: Path, batches: int, rows: int, say: Callable[[str], None]) -> dict[str, Any]:
    rng = random.Random(1)
    with calve(folder) as server:
        catalog = RestCatalog("lake", uri=server.url, warehouse="main")
        catalog.create_namespace("bench")
        tables = {name: catalog.create_table(f"bench.{name}", SCHEMA) for name in ("calve", "iceberg")}
        spark = started(server.url, master="local[2]", memory="1g", extra={})
        client = Server(server.url)
        slot = SlotSession(spark, client, Stores(client, None), "bench", 0)
        step = maintenance.MaintenanceStep(client, slot)
        maintenance.warm_up(spark)
        found = {name: {"rewritten-bytes": 0, "ms": 0, "steps": 0, "longest-ms": 0} for name in tables}

        def by_calve() -> tuple[int, int]:
            facts = step.run(_job("calve"))
            return facts.get("rewritten-bytes", 0), facts["ms"]

        def by_iceberg() -> tuple[int, int]:
            started_s = time.monotonic()
            name = quoted(step.catalog("main"))
            (row,) = slot.spark.sql(
                f"CALL {name}.system.rewrite_data_files(table => '{name}.bench.iceberg')"
            ).collect()
            return row["rewritten_bytes_count"], round((time.monotonic() - started_s) * 1000)

        for number in range(1, batches + 1):
            batch = _batch(rng, rows)
            for table in tables.values():
                table.append(batch)
            if number % EVERY == 0:
                for name, do in (("calve", by_calve), ("iceberg", by_iceberg)):
                    rewritten, ms = do()
                    one = found[name]
                    one["rewritten-bytes"] += rewritten
                    one["ms"] += ms
                    one["steps"] += 1
                    one["longest-ms"] = max(one["longest-ms"], ms)
                say(f"{number} batches: {found}")
        for name, table in tables.items():
            summary = table.refresh().current_snapshot().summary
            assert summary is not None
            landed = int(summary["total-files-size"] or 0)
            found[name] |= {
                "files": int(summary["total-data-files"] or 0),
                "bytes": landed,
                "rows": int(summary["total-records"] or 0),
            }
        spark.stop()
    return {
        name: one
        | {
            "rewritten-per-byte": round(one["rewritten-bytes"] / max(1, one["bytes"]), 2),
            "rows-per-s": _rows_per_s(one),
        }
        for name, one in found.items()
    }


def _rows_per_s(one: dict[str, int]) -> int:
    """Rows that were rewritten in a second of rewriting, if all rows have the same size."""
    rows = one["rewritten-bytes"] * one["rows"] / max(1, one["bytes"])
    return round(rows / max(1, one["ms"]) * 1000)


def _job(name: str) -> maintenance.MaintenanceJob:
    return parsed(
        maintenance.MaintenanceJob,
        {
            "id": "bench",
            "epoch": 1,
            "warehouse": "main",
            "namespace": ["bench"],
            "name": name,
            "actions": ["compact"],
            "policy": POLICY,
            "step-bytes-max": 32 * 2**20,
        },
    )


def _batch(rng: random.Random, rows: int) -> pa.Table:
    ids = [rng.randint(0, 10**9) for _ in range(rows)]
    return pa.table(
        {"id": ids, "amount": [rng.random() for _ in ids], "item": [f"item {id_ % 997}" for id_ in ids]},
        schema=SCHEMA,
    )
