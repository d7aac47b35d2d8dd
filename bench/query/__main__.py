"""`python -m bench.query [--rows N] [--repeats N] [--spark]`: analytical queries, look-ups, a large result.

Each query runs through `/query`, through DuckDB attached to the same catalog in this process, and with
`--spark` through Spark SQL; in turn, so that the load of the machine is the same for all. The figures go to
bench/results/ as JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import httpx
import numpy as np
import pyarrow as pa
from pyiceberg.catalog.rest import RestCatalog

from tests.clients.duckdb_client import connected
from tests.harness.server import CalveServer

RESULTS = Path(__file__).parents[1] / "results"
CHUNK_ROWS = 1_000_000
QUERIES = {
    "count": "SELECT count(*) FROM {t}",
    "sum": "SELECT sum(amount) FROM {t}",
    "filter": "SELECT count(*), avg(amount) FROM {t} WHERE status = 'paid' AND amount > 500",
    "group, few": "SELECT status, count(*), sum(amount) FROM {t} GROUP BY 1 ORDER BY 1",
    "group, many": "SELECT customer, sum(amount) AS s FROM {t} GROUP BY 1 ORDER BY s DESC LIMIT 10",
    "by day": "SELECT date_trunc('day', placed) AS d, count(*) FROM {t} GROUP BY 1 ORDER BY 1 LIMIT 30",
    "distinct": "SELECT count(DISTINCT customer) FROM {t}",
    "top": "SELECT id, amount FROM {t} ORDER BY amount DESC, id LIMIT 100",
    "window": (
        "SELECT status, id FROM (SELECT status, id, row_number() OVER (PARTITION BY status ORDER BY amount "
        "DESC, id) AS n FROM {t} WHERE id % 10 = 0) WHERE n <= 5 ORDER BY 1, 2"
    ),
    "join": "SELECT c.region, sum(o.amount) FROM {t} o JOIN {c} c USING (customer) GROUP BY 1 ORDER BY 1",
}
LOOK_UP = "SELECT * FROM {t} WHERE id = {id}"
LARGE = "SELECT * FROM {t}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--spark", action="store_true", help="measure Spark SQL too")
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="bench-query-") as folder,
        CalveServer.started(Path(folder)) as server,
    ):
        _fill(server.url, given.rows)
        with _spark(server.url, wanted=given.spark) as spark:
            found = _measure(server, given, spark)
    RESULTS.mkdir(exist_ok=True)
    file = RESULTS / f"query-{given.rows}.json"
    file.write_text(json.dumps(found, indent=1) + "\n")
    print(f"\nwritten to {file.relative_to(RESULTS.parents[1])}")


def _measure(server: CalveServer, given: argparse.Namespace, spark: Any) -> dict[str, Any]:
    """Print tables, and return their figures."""
    direct = _attached(server.url)
    found: dict[str, Any] = {"rows": given.rows, "repeats": given.repeats, "queries": [], "look-ups": []}
    with httpx.Client(base_url=server.url, timeout=600) as client:
        print(f"{given.rows:,} rows, medians of {given.repeats}, milliseconds\n")
        columns = ["query", "/query", "DuckDB", "ratio", "over 1.1x + 10 ms"]
        columns += ["processor /query", "processor DuckDB", *(["Spark"] if spark else [])]
        print(f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|")
        for name, sql in QUERIES.items():
            found["queries"].append(_row(name, sql, client, direct, spark, given.repeats, server.pid))
        for index in (1, 2):
            number = given.rows * index // 3
            sql = LOOK_UP.replace("{id}", str(number))
            row = _row("look-up by key", sql, client, direct, spark, given.repeats, server.pid)
            found["look-ups"].append(row)
        found["large"] = _large(client, server, given.rows)
    return found | {"side by side": _side_by_side(server.url, given.clients)}


def _row(
    name: str,
    sql: str,
    client: httpx.Client,
    direct: duckdb.DuckDBPyConnection,
    spark: Any,
    repeats: int,
    server: int,
) -> dict[str, Any]:
    runs: dict[str, Callable[[], object]] = {
        "query": lambda: _ask(client, sql.format(t="shop.orders", c="shop.customers")),
        "direct": lambda: direct.execute(
            sql.format(t="lake.shop.orders", c="lake.shop.customers")
        ).fetchall(),
    }
    if spark is not None:
        text = sql.format(t="lake.shop.orders", c="lake.shop.customers")
        runs["spark"] = lambda: spark.sql(text).collect()
    found: dict[str, list[float]] = {key: [] for key in runs}
    used: dict[str, list[float]] = {key: [] for key in runs}
    for turn in range(repeats + 2):
        for key, run in runs.items():
            # DuckDB and Spark's driver run here; they ask the server for metadata.
            processes = [server] if key == "query" else [server, os.getpid()]
            before_ms, begun_s = sum(map(processor_ms, processes)), time.perf_counter()
            run()
            taken_ms = (time.perf_counter() - begun_s) * 1000
            if turn > 1:  # the first ones are for warming up, in each of two query processes
                found[key].append(taken_ms)
                used[key].append(sum(map(processor_ms, processes)) - before_ms)
    medians = {key: round(statistics.median(taken), 2) for key, taken in found.items()}
    ours, theirs = medians["query"], medians["direct"]
    over = round(max(0.0, ours - (1.1 * theirs + 10)), 2)
    least = {f"least {key}": round(min(taken), 2) for key, taken in found.items()}
    processor = {f"processor {key}": round(statistics.median(taken), 2) for key, taken in used.items()}
    cells = [f"{ours:.1f}", f"{theirs:.1f}", f"{ours / theirs:.2f}", f"{over:.1f}"]
    cells += [f"{processor['processor query']:.1f}", f"{processor['processor direct']:.1f}"]
    cells += [f"{medians['spark']:.0f}"] if spark is not None else []
    print(f"| {name} | {' | '.join(cells)} |", flush=True)
    return {"name": name, "over": over} | medians | least | processor


def _large(client: httpx.Client, server: CalveServer, rows: int) -> list[dict[str, Any]]:
    """The time to the first bytes of a result with all rows, the rate, and the memory of the server."""
    print(
        "\n| all rows as | first bytes ms | whole s | MB | server memory grew by MB |\n|---|---|---|---|---|"
    )
    found = []
    for format_ in ("arrow", "ndjson", "csv"):
        before_kb, begun_s = _memory_kb(server.pid), time.perf_counter()
        first_s, size, grew_kb = 0.0, 0, 0
        body = {"sql": LARGE.format(t="shop.orders"), "format": format_}
        with client.stream("POST", "/query", json=body, headers={"Accept-Encoding": "identity"}) as response:
            assert response.status_code == 200, response.read()
            for piece in response.iter_raw():
                first_s = first_s or time.perf_counter() - begun_s
                size += len(piece)
                grew_kb = max(grew_kb, _memory_kb(server.pid) - before_kb) if size % 64 == 0 else grew_kb
        whole_s = time.perf_counter() - begun_s
        grew_kb = max(grew_kb, _memory_kb(server.pid) - before_kb)
        megabytes = size / 2**20
        print(
            f"| {format_} | {first_s * 1000:.0f} | {whole_s:.2f} | {megabytes:.0f} | {grew_kb / 1024:.1f} |"
        )
        figures = {"first_ms": first_s * 1000, "whole_s": whole_s, "mb": megabytes, "grew_mb": grew_kb / 1024}
        found.append({"format": format_} | {key: round(value, 2) for key, value in figures.items()})
    print(f"\n({rows:,} rows)")
    return found


def _side_by_side(url: str, clients: int) -> dict[str, Any]:
    """Several clients with the same query for a while: how many each got, and how long they waited."""
    sql, until_s = QUERIES["group, few"].format(t="shop.orders"), time.monotonic() + 10

    def run(_: int) -> list[float]:
        taken = []
        with httpx.Client(base_url=url, timeout=600) as client:
            while time.monotonic() < until_s:
                begun_s = time.perf_counter()
                _ask(client, sql)
                taken.append((time.perf_counter() - begun_s) * 1000)
        return taken

    with ThreadPoolExecutor(clients) as threads:
        found = list(threads.map(run, range(clients)))
    counts = [len(one) for one in found]
    every = sorted(ms for one in found for ms in one)
    p95_ms = every[int(len(every) * 0.95)]
    print(
        f"\n{clients} clients side by side for 10 s: {sum(counts) / 10:.1f} queries/s; "
        f"each got {min(counts)} to {max(counts)}; "
        f"median {statistics.median(every):.0f} ms, p95 {p95_ms:.0f} ms"
    )
    return {"counts": counts, "median_ms": round(statistics.median(every), 1), "p95_ms": round(p95_ms, 1)}


def _ask(client: httpx.Client, sql: str) -> Any:
    response = client.post("/query", json={"sql": sql, "format": "compact"})
    assert response.status_code == 200, response.text
    return response.json()["rows"]


def _attached(url: str) -> duckdb.DuckDBPyConnection:
    connection = connected()
    connection.execute(
        f"ATTACH 'main' AS lake (TYPE iceberg, ENDPOINT '{url}', AUTHORIZATION_TYPE 'none', READ_ONLY)"
    )
    return connection


def _fill(url: str, rows: int) -> None:
    catalog = RestCatalog("lake", uri=url, warehouse="main")
    catalog.create_namespace("shop")
    customers = pa.table(
        {"customer": range(10_000), "region": [f"region {number % 20}" for number in range(10_000)]}
    )
    catalog.create_table("shop.customers", customers.schema).append(customers)
    table = None
    generator = np.random.default_rng(7)
    for start in range(0, rows, CHUNK_ROWS):
        part = _orders(generator, start, min(CHUNK_ROWS, rows - start))
        table = table or catalog.create_table("shop.orders", part.schema)
        table.append(part)


def _orders(generator: np.random.Generator, start: int, count: int) -> pa.Table:
    statuses = np.array(["new", "paid", "sent", "done", "void"])
    ids = np.arange(start, start + count)
    return pa.table(
        {
            "id": ids,
            "customer": generator.integers(0, 10_000, count),
            "status": statuses[generator.integers(0, 5, count)],
            "amount": np.round(generator.random(count) * 1000, 2),
            "placed": (ids * 10_000 + 1_700_000_000_000_000).astype("datetime64[us]"),
        }
    )


@contextmanager
def _spark(url: str, *, wanted: bool) -> Iterator[Any]:
    if not wanted:
        yield None
        return
    from pyspark.sql import SparkSession

    from spark_jobs.jars import installed

    builder = SparkSession.builder.master("local[*]").config("spark.jars", ",".join(map(str, installed())))
    lake = "spark.sql.catalog.lake"
    for key, value in {"": "org.apache.iceberg.spark.SparkCatalog", ".type": "rest", ".uri": url}.items():
        builder = builder.config(f"{lake}{key}", value)
    session = builder.config(f"{lake}.warehouse", "main").getOrCreate()
    yield session
    session.stop()


def processor_ms(pid: int) -> float:
    """The processor time of a process and its children. It says more than wall time on a busy machine."""
    total_ns = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError):  # a thread that has just ended
            total_ns += int((task / "schedstat").read_text().split()[0])
            for child in (task / "children").read_text().split():
                total_ns += int(processor_ms(int(child)) * 1e6)
    return total_ns / 1e6


def _memory_kb(pid: int) -> int:
    return int(Path(f"/proc/{pid}/status").read_text().partition("VmRSS:")[2].split()[0])


if __name__ == "__main__":
    main()
