"""`python -m bench.query.hot_rows [--repeats N] [--pending N]`: one row with `consistency=fresh`, a moment
after its change was acknowledged. No worker runs, so nothing is published meanwhile.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import httpx

from tests.contract.ingest.hand import Hand
from tests.harness.server import CalveServer

HEADERS = {"X-Source-Id": "bench"}
WARM_UP = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=200)
    parser.add_argument("--pending", type=int, default=1_000, help="changes of other rows that wait")
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        CalveServer.started(Path(folder)) as server,
        httpx.Client(base_url=server.url, timeout=60) as client,
    ):
        run(client, server.url, given.repeats, given.pending)


def run(client: httpx.Client, url: str, repeats: int, pending: int) -> None:
    send(client, (1, 1))
    hand = Hand(url)
    while (leased := hand.ask(10)).status_code != 200:
        pass
    hand.land(leased.json())
    numbers = iter(range(2, 10_000_000))
    for _ in range(0, pending, 100):
        send(client, *((next(numbers), 1_000 + n) for n in range(100)))
    took_ms = []
    for key in range(2, 2 + repeats + WARM_UP):
        send(client, (next(numbers), key))
        started_s = time.perf_counter()
        found = client.get(f"/lake/v1/main/namespaces/bench/tables/t/rows/{key}?consistency=fresh")
        took_ms.append((time.perf_counter() - started_s) * 1000)
        assert found.json()["row"]["id"] == key, found.text
        assert found.json()["token"] is not None
    took_ms = sorted(took_ms[WARM_UP:])
    print(
        f"fresh row, {pending} other changes pending: median {statistics.median(took_ms):.1f} ms, "
        f"p95 {took_ms[int(len(took_ms) * 0.95)]:.1f} ms, {repeats} requests"
    )


def send(client: httpx.Client, *changes: tuple[int, int]) -> None:
    """Inserts, each with its number and its key."""
    events = [
        {
            "sequence": number,
            "timestamp": 1_763_280_000_000 + number,
            "operation": "INSERT",
            "table": "bench.t",
            "rowId": str(key),
            "after": {"id": key, "name": f"name {key}", "amount": key * 1.5, "note": None},
        }
        for number, key in changes
    ]
    client.post("/cdc", json={"events": events}, headers=HEADERS).raise_for_status()


if __name__ == "__main__":
    main()
