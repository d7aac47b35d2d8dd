"""A journal that is full, or away: nobody is told of success, and what is sent again is stored once."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from websockets.sync.client import connect

from catalog.errors import CommitStateUnknown, Unavailable
from ingest.api import ApiSettings
from ingest.settings import JournalLimits
from tests.contract.ingest.api.api_server import ApiServer, batch, event, events_in, served
from tests.harness.postgres import PostgresServer

SMALL = JournalLimits(bytes_max=20_000, fallback_bytes_max=10_000)


@pytest.fixture
def small(tmp_path: Path, database: str | None) -> Iterator[ApiServer]:
    """A server whose journal holds about a hundred events."""
    with served(tmp_path, database=database, limits=SMALL) as server:
        yield server


def incompressible(first: int, count: int = 10) -> list[dict[str, Any]]:
    return [
        event(number, after={"id": number, "x": f"{hash((number, place)):x}" * 4})
        for place, number in enumerate(range(first, first + count))
    ]


def fill(client: httpx.Client, headers: dict[str, str]) -> tuple[int, httpx.Response]:
    """Send until the server refuses; the number of accepted events, and the refusal."""
    for number in range(0, 100_000, 10):
        answer = client.post("/cdc", json=incompressible(number), headers=headers)
        if answer.status_code != 202:
            return number, answer
    raise AssertionError("it is never full")


def test_a_full_journal_sends_retry_after_and_accepts_the_retry(small: ApiServer) -> None:
    headers = {"X-Source-Id": "s"}
    with httpx.Client(base_url=small.url, timeout=60) as client:
        accepted, refusal = fill(client, headers)
        assert refusal.status_code == 429
        assert 1 <= int(refusal.headers["retry-after"]) <= 3
        assert refusal.json()["error"]["code"] == 429
        assert sum(row.events for row in small.journal.pending("main")) == accepted
        # Refused again, and again: a refusal leaves no mark.
        assert client.post("/cdc", json=incompressible(accepted), headers=headers).status_code == 429
        small.landing.land("main")
        retry = client.post("/cdc", json=incompressible(accepted), headers=headers)
        assert (retry.status_code, retry.json()["eventsAccepted"], retry.json()["isDuplicate"]) == (
            202,
            10,
            False,
        )
        assert [change.number for change in events_in(small.journal, "main")] == list(
            range(accepted, accepted + 10)
        )


def test_the_least_important_are_refused_first(small: ApiServer) -> None:
    with httpx.Client(base_url=small.url, timeout=60) as client:
        counts = []
        for priority in (3, 2, 1, 0):
            headers = {"X-Source-Id": f"s{priority}", "X-Priority": str(priority)}
            accepted, refusal = fill(client, headers)
            assert refusal.status_code == 429
            counts.append(accepted)
        assert all(count > 0 for count in counts), counts


def test_over_websocket_the_same(small: ApiServer) -> None:
    statuses: list[str] = []
    with connect(small.ws_url, additional_headers={"X-Priority": "0"}) as socket:
        number = 0
        while True:
            socket.send(batch(number, incompressible(number)))
            answer = orjson.loads(socket.recv())
            if answer["type"] == "nack":
                break
            statuses.append(answer["status"])
            number += 10
        assert (answer["reason"], answer["shouldRetry"], answer["retryDelayMs"]) == (
            "buffer_full",
            True,
            5000,
        )
        assert answer["sequenceNumber"] == number
        assert statuses == sorted(statuses, key=["ok", "buffered", "fallback"].index)
        assert set(statuses) == {"ok", "buffered", "fallback"}
        small.landing.land("main")
        socket.send(batch(number, incompressible(number), isRetry=True))
        assert orjson.loads(socket.recv())["status"] == "ok"
        assert [change.number for change in events_in(small.journal, "main")] == list(
            range(number, number + 10)
        )


def test_load_is_shed_by_priority(small: ApiServer) -> None:
    with connect(small.ws_url, additional_headers={"X-Priority": "3"}) as socket:
        number = 0
        while True:
            socket.send(batch(number, incompressible(number)))
            answer = orjson.loads(socket.recv())
            if answer["type"] == "nack":
                break
            number += 10
        assert (answer["reason"], answer["shouldRetry"]) == ("load_shedding", True)
    with connect(small.ws_url) as socket:
        socket.send(batch(1, incompressible(0), sourceDoId="other"))
        assert orjson.loads(socket.recv())["type"] == "ack"


class Failing:
    """In the journal's place for a while: commits, or not, and fails."""

    def __init__(self, server: ApiServer, error: Exception, *, commits: bool) -> None:
        self._error, self._commits = error, commits
        self._appender: Any = server.journal._group_commit._appender
        self._append = self._appender.append

    def __enter__(self) -> None:
        self._appender.append = self._fail

    def __exit__(self, *_: object) -> None:
        self._appender.append = self._append

    def _fail(self, *arguments: Any) -> Any:
        if self._commits:
            self._append(*arguments)
        raise self._error


@pytest.mark.parametrize(
    ("error", "commits", "status"),
    [
        (Unavailable("the database does not answer", retry_after_s=60), False, 503),
        (CommitStateUnknown("the answer to COMMIT was lost"), True, 500),
        (CommitStateUnknown("the answer to COMMIT was lost"), False, 500),
    ],
)
def test_a_database_that_fails(
    tmp_path: Path, database: str | None, error: Exception, commits: bool, status: int
) -> None:
    """Whatever it was: sent again, every event is there once."""
    with (
        served(tmp_path, database=database) as server,
        httpx.Client(base_url=server.url, timeout=60) as client,
    ):
        with Failing(server, error, commits=commits):
            refusal = client.post("/cdc", json=[event(1)])
            assert refusal.status_code == status
            if status == 503:
                assert int(refusal.headers["retry-after"]) <= 3
            with connect(server.ws_url) as socket:
                socket.send(batch(1, [event(1)]))
                nack = orjson.loads(socket.recv())
                assert (nack["reason"], nack["shouldRetry"]) == ("internal_error", True)
        answer = client.post("/cdc", json=[event(1)])
        assert (answer.status_code, answer.json()["isDuplicate"]) == (202, commits)
        assert len(events_in(server.journal, "main")) == (2 if commits else 1)


def test_postgres_that_is_away_for_a_while(tmp_path: Path) -> None:
    """503 while it is away; the same request is taken when it is back."""
    with (
        PostgresServer.started() as own,
        served(tmp_path, database=own.database()) as server,
        httpx.Client(base_url=server.url, timeout=60) as client,
    ):
        assert client.post("/cdc", json=[event(1)]).status_code == 202
        own.kill()
        statuses = [client.post("/cdc", json=[event(2)]).status_code for _ in range(2)]
        assert set(statuses) <= {500, 503}
        own.start()
        deadline_s = time.monotonic() + 60
        while (answer := client.post("/cdc", json=[event(2)])).status_code != 202:
            assert time.monotonic() < deadline_s
            time.sleep(0.1)
        assert answer.json()["success"] is True
        assert len(events_in(server.journal, "main")) == 2


def test_eight_producers_at_once(tmp_path: Path, database: str | None) -> None:
    """Each sends numbered batches and repeats some; all of it is there once, in the order of its source."""
    problems: list[Any] = []
    batches, size = 12, 50

    def produce(server: ApiServer, name: str) -> None:
        with httpx.Client(base_url=server.url, timeout=60, headers={"X-Source-Id": name}) as client:
            for number in range(batches):
                body = [event(number * size + place) for place in range(size)]
                for _ in range(2 if number % 4 == 0 else 1):
                    answer = client.post("/cdc", json=body)
                    if answer.status_code != 202:
                        problems.append(answer.text)

    with served(tmp_path, database=database, settings=ApiSettings(inline_bytes_max=4096)) as server:
        threads = [threading.Thread(target=produce, args=(server, f"p{number}")) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not problems
        found = events_in(server.journal, "main")
        assert len(found) == 8 * batches * size
        for number in range(8):
            mine = [change.number for change in found if change.source == f"p{number}"]
            assert mine == list(range(batches * size))
