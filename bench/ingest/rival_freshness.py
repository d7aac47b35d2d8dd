"""The freshness of a hand-written Structured Streaming job: a file every 0.1 s until DuckDB sees its rows.

The job is that of `end-to-end`: `foreachBatch`, an append to the changes, a MERGE into the mirror, one table,
through the same catalog. Its files are synced to the disk as an acknowledgement is.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.ingest import events, inbox, reader, steady
from bench.ingest.pipeline import Pipeline
from bench.ingest.report import Percentiles, figure, table
from bench.ingest.spark_child import SparkChild

ENDLESS = 2**60  # the stream is stopped, it does not end


@dataclass(frozen=True, slots=True)
class Streamed:
    rate: int
    keys: int
    achieved: float
    duckdb: Percentiles
    unseen: int  # files that DuckDB never saw
    cpu_cores: float  # of the server and of the job's Spark


def measure(
    calve: Pipeline, spark: SparkChild, folder: Path, rate: int, keys: int, warm_up_s: float, seconds: float
) -> Streamed:
    name = f"rival_fresh_{rate}.orders"
    spark.ask("create", table=name, keys=keys)
    folder.mkdir(parents=True)
    with reader.looking(calve.url, calve.s3, [name]) as stopped:
        cpu_s = calve.server.cpu_s() + spark.server.cpu_s()
        began = time.monotonic()
        spark.ask("start", table=name, folder=str(folder), events=ENDLESS)
        sent_us, count = _put(folder, name, rate, keys, warm_up_s, seconds)
        took_s = time.monotonic() - began
        cpu_s = calve.server.cpu_s() + spark.server.cpu_s() - cpu_s
        spark.ask("drain")
        seen, _ = stopped()
    spark.ask("stop")
    first = reader.first_seen_us(seen, sent_us)
    visible = [at - sent for sent, at in zip(sent_us, first, strict=True) if at is not None]
    unseen = len(first) - len(visible)
    return Streamed(rate, keys, count / seconds, Percentiles.of_us(visible), unseen, cpu_s / took_s)


def _put(
    folder: Path, name: str, rate: int, keys: int, warm_up_s: float, seconds: float
) -> tuple[list[int], int]:
    """When each file after the warm-up was written, which is the marker of its rows, and how many rows."""
    orders = events.Orders(name, keys, steady.SEED)
    each, sequence, count = round(rate * steady.EVERY_S), 1, 0
    sent_us: list[int] = []
    began = time.monotonic()
    for turn in range(round((warm_up_s + seconds) / steady.EVERY_S)):
        time.sleep(max(0.0, began + turn * steady.EVERY_S - time.monotonic()))
        now_us = steady.now_us()
        # The first is no delete, so that the marker is there to be seen.
        changes = [orders.update(sequence, now_us)]
        changes += [orders.change(sequence + place, now_us) for place in range(1, each)]
        sequence += each
        inbox.put(folder, turn, inbox.content(changes))
        if turn * steady.EVERY_S >= warm_up_s:
            sent_us.append(now_us)
            count += len(changes)
    return sent_us, count


def shown(found: Sequence[Streamed], calve: Mapping[int, Percentiles]) -> str:
    """Beside Calve's figures by rate, as DuckDB saw both."""
    head = ["foreachBatch MERGE, 1 table", "events/s", "sent", "DuckDB p50 ms", "p95", "p99", "cores"]
    head += ["Calve p50 ms", "p95", "Calve is fresher, p50 by"]
    rows = []
    for one in found:
        ours = calve[one.rate]
        figures = [one.achieved, one.duckdb.p50_ms, one.duckdb.p95_ms, one.duckdb.p99_ms, one.cpu_cores]
        figures += [ours.p50_ms, ours.p95_ms]
        ratio = f"{one.duckdb.p50_ms / ours.p50_ms:.1f}x" + (
            f" ({one.unseen} never seen)" if one.unseen else ""
        )
        rows.append([f"{one.keys:,} rows", f"{one.rate:,}", *map(figure, figures), ratio])
    return table(head, rows)
