"""`python -m bench.query.hot_rows [--repeats N] [--pending N] [--rows N]`: a row that changed a moment ago.

It is read by `rows/{key}?consistency=fresh` and by `/query` with `consistency=fresh`, beside `/query` with
`consistency=committed`, which has only the published rows. No worker runs, so nothing is published meanwhile.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
from pyiceberg.catalog.rest import RestCatalog

from tests.contract.query.writing_hands import InsertingHand
from tests.harness.server import CalveServer

HEADERS = {"X-Source-Id": "bench"}
WARM_UP = 20
SENT_AT_ONCE = 100
ONE = "SELECT * FROM bench.t WHERE id = {key}"
ALL = "SELECT count(*), sum(amount) FROM bench.t"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=200)
    parser.add_argument("--pending", type=int, default=1_000, help="changes of other rows that wait")
    parser.add_argument("--rows", type=int, default=10_000, help="published rows")
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        CalveServer.started(Path(folder)) as server,
        httpx.Client(base_url=server.url, timeout=60) as client,
    ):
        numbers = itertools.count(1)
        fill(client, server.url, numbers, given.rows)
        insert(client, numbers, range(given.rows, given.rows + given.pending))
        run(client, numbers, given.repeats, given.pending)


def fill(client: httpx.Client, url: str, numbers: Iterator[int], rows: int) -> None:
    """Publish rows, as a worker would."""
    insert(client, numbers, range(rows))
    hand = InsertingHand(url, lambda name: RestCatalog("bench", uri=url, warehouse=name))
    published = 0
    while published < rows:
        leased = hand.ask(10)
        if leased.status_code == 200:
            hand.land(leased.json())
            published += sum(table["events"] for table in leased.json()["tables"])


def run(client: httpx.Client, numbers: Iterator[int], repeats: int, pending: int) -> None:
    def row(key: int) -> Any:
        return client.get(f"/lake/v1/main/namespaces/bench/tables/t/rows/{key}?consistency=fresh").json()

    def query(sql: str, consistency: str) -> Callable[[int], Any]:
        def send(key: int) -> Any:
            body = {"sql": sql.format(key=key), "consistency": consistency}
            return client.post("/query", json=body).raise_for_status().json()

        return send

    measured = {
        "rows/{key}, fresh": row,
        "/query of one key, fresh": query(ONE, "fresh"),
        "/query of one key, committed": query(ONE, "committed"),
        "/query of all rows, fresh": query(ALL, "fresh"),
        "/query of all rows, committed": query(ALL, "committed"),
    }
    took_ms: dict[str, list[float]] = {name: [] for name in measured}
    for key in range(repeats + WARM_UP):
        number = next(numbers)
        send(client, event("UPDATE", number, key))
        for name, load in measured.items():
            started_s = time.perf_counter()
            found = load(key)
            took_ms[name].append((time.perf_counter() - started_s) * 1000)
            if name == "rows/{key}, fresh":
                assert found["row"]["amount"] == number * 1.5, found
            elif name == "/query of one key, fresh":
                assert (found["fresh_by"], found["rows"][0]["amount"]) == ("journal", number * 1.5), found
    print(f"{pending} other changes pending, {repeats} requests, milliseconds: median, p95")
    for name, all_ms in took_ms.items():
        kept_ms = sorted(all_ms[WARM_UP:])
        p95_ms = kept_ms[int(len(kept_ms) * 0.95)]
        print(f"{name:32} {statistics.median(kept_ms):8.1f} {p95_ms:8.1f}")


def insert(client: httpx.Client, numbers: Iterator[int], keys: range) -> None:
    for first in range(0, len(keys), SENT_AT_ONCE):
        send(client, *(event("INSERT", next(numbers), key) for key in keys[first : first + SENT_AT_ONCE]))


def event(operation: str, number: int, key: int) -> dict[str, Any]:
    return {
        "sequence": number,
        "timestamp": 1_763_280_000_000 + number,
        "operation": operation,
        "table": "bench.t",
        "rowId": str(key),
        "after": {"id": key, "name": f"name {key}", "amount": number * 1.5, "note": None},
    }


def send(client: httpx.Client, *events: dict[str, Any]) -> None:
    client.post("/cdc", json={"events": events}, headers=HEADERS).raise_for_status()


if __name__ == "__main__":
    main()
