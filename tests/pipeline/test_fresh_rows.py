"""Fresh rows while changes stream in and are published: each answer is the row at some time meanwhile."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from typing import Any

import httpx

from tests.pipeline.conftest import Pipeline
from tests.pipeline.producer import Producer, flush

Make = Callable[[Pipeline, str], Producer]
ANSWERS = 40
FRESH: dict[str, str | int] = {"consistency": "fresh", "timeout_s": 50}


def test_a_fresh_row_is_never_older_than_the_request(pipeline: Pipeline, produced: Make) -> None:
    space = f"n{uuid.uuid4().hex[:8]}"
    shop, table = produced(pipeline, f"shop-{space}"), f"{space}.orders"
    row = {"id": 1, "n": 0, "kept": "k"}
    shop.send([shop.event("INSERT", table, None, row), shop.event("INSERT", table, None, {**row, "id": 2})])
    flush(pipeline.url)
    sent, acknowledged = [0], [0]
    ended = threading.Event()

    def produce() -> None:
        while not ended.is_set():
            n = sent[0] = sent[0] + 1
            after = {**row, "n": n} if n % 3 else {"id": 1, "n": n}
            shop.send([shop.event("UPDATE", table, {"id": 1}, after)])
            acknowledged[0] = n

    place = f"{pipeline.url}/lake/v1/main/namespaces/{space}/tables/orders"
    producing = threading.Thread(target=produce)
    with httpx.Client(timeout=60) as client:

        def fresh(key: int) -> dict[str, Any]:
            found = client.get(f"{place}/rows/{key}", params=FRESH)
            assert found.status_code == 200, found.text
            answer: dict[str, Any] = found.json()
            return answer

        fresh(1)
        producing.start()
        try:
            for _ in range(ANSWERS):
                least = acknowledged[0]
                found = fresh(1)["row"]
                assert least <= found["n"] <= sent[0]
                assert found["kept"] == "k"
        finally:
            ended.set()
            producing.join()
        assert fresh(1)["row"]["n"] == sent[0]
        assert fresh(2)["row"]["n"] == 0
        # A change that needs a new column is not shown before its publish.
        shop.send([shop.event("UPDATE", table, {"id": 2}, {"id": 2, "n": 5, "new": "column"})])
        assert fresh(2)["row"]["n"] == 5
        # While the table is paused nothing is published.
        client.post(f"{place}/ingest/pause").raise_for_status()
        shop.send([shop.event("UPDATE", table, {"id": 1}, {"id": 1, "n": -1})])
        shop.send([shop.event("DELETE", table, {"id": 2}, None)])
        answer = fresh(1)
        assert (answer["row"]["n"], answer["row"]["kept"]) == (-1, "k")
        assert answer["token"].startswith("main:")
        assert fresh(2)["row"] is None
        assert client.get(f"{place}/rows/2").json()["row"]["n"] == 5
        client.post(f"{place}/ingest/resume").raise_for_status()
        refused = client.get(f"{place}/rows/2", params={**FRESH, "as_of": "now"})
        assert refused.status_code == 400
    flush(pipeline.url)
    assert pipeline.rows(f"SELECT id, n, kept FROM lake.{table}") == [(1, -1, "k")]
