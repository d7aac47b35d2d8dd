"""An answer means: durable. Nothing is said before COMMIT, and nothing that was said is lost to a kill."""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import httpx
import orjson
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from ingest.api import ApiSettings
from ingest.settings import JournalLimits
from tests.contract.ingest.api.api_server import ApiServer, batch, event, events_in, journal_at, served
from tests.harness.components import ROOT

KILLS = 3


class Held:
    """The journal stops before its transaction, until it is let go."""

    def __init__(self, server: ApiServer) -> None:
        self._appender: Any = server.journal._group_commit._appender
        self._append = self._appender.append
        self.reached, self.released = threading.Event(), threading.Event()

    def __enter__(self) -> Self:
        self._appender.append = self._wait
        return self

    def __exit__(self, *_: object) -> None:
        self.released.set()
        self._appender.append = self._append

    def _wait(self, *arguments: Any) -> Any:
        self.reached.set()
        self.released.wait()
        return self._append(*arguments)


def test_no_answer_before_commit(server: ApiServer, warehouse: str) -> None:
    said: list[Any] = []

    def post() -> None:
        answer = httpx.post(f"{server.url}/cdc?warehouse={warehouse}", json=[event(1)], timeout=60)
        said.append(answer.status_code)

    thread = threading.Thread(target=post)
    with connect(f"{server.ws_url}?warehouse={warehouse}") as socket, Held(server) as held:
        thread.start()
        held.reached.wait()
        socket.send(batch(1, [event(2)]))
        socket.send("ping")
        assert socket.recv(timeout=60) == "pong", "the batch before it has been read, and not answered"
        assert said == []
        assert events_in(server.journal, warehouse) == []
        held.released.set()
        assert orjson.loads(socket.recv(timeout=60))["type"] == "ack"
        thread.join()
    assert said == [202]
    assert len(events_in(server.journal, warehouse)) == 2


@contextlib.contextmanager
def process(folder: Path, database: str | None) -> Iterator[tuple[subprocess.Popen[str], int]]:
    command = [sys.executable, "-m", "tests.contract.ingest.api.api_process", str(folder)]
    started = subprocess.Popen(
        [*command, *([database] if database else [])], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    try:
        assert started.stdout is not None
        yield started, int(started.stdout.readline())
    finally:
        started.kill()
        started.wait()
        assert started.stdout is not None
        started.stdout.close()


def over_http(port: int, name: str, first: int, acked: set[tuple[str, int]]) -> None:
    """Numbered events, until the server is gone; notes what was acknowledged."""
    headers = {"X-Source-Id": name}
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=60) as client:
        for number in range(first, first + 100_000, 5):
            numbers = range(number, number + 5)
            try:
                answer = client.post("/cdc", json=[event(one) for one in numbers])
            except httpx.HTTPError:
                return
            assert answer.status_code == 202
            acked.update((name, one) for one in numbers)


def over_websocket(port: int, name: str, first: int, acked: set[tuple[str, int]]) -> None:
    """The same, with several batches on their way at once."""
    sent = first
    try:
        with connect(f"ws://127.0.0.1:{port}/ws") as socket:
            for number in range(first, first + 100_000):
                socket.send(batch(number, [event(number)], sourceDoId=name))
                sent = number
                if sent - first >= 8:
                    acked.add((name, orjson.loads(socket.recv(timeout=60))["sequenceNumber"]))
    except (ConnectionClosed, OSError, EOFError):
        return


@pytest.mark.timeout(300)
def test_what_was_acknowledged_survives_a_kill(tmp_path: Path, database: str | None) -> None:
    acked: set[tuple[str, int]] = set()
    choose = random.Random(7)
    for life in range(KILLS):
        with process(tmp_path, database) as (server, port):
            threads = [
                threading.Thread(target=send, args=(port, f"{send.__name__}-{number}", life * 200_000, acked))
                for number in range(2)
                for send in (over_http, over_websocket)
            ]
            for thread in threads:
                thread.start()
            began = len(acked)
            while len(acked) < began + 50:
                time.sleep(0.01)
            time.sleep(choose.uniform(0, 0.3))
            server.kill()
            for thread in threads:
                thread.join()
    journal = journal_at(tmp_path, database, JournalLimits())
    try:
        stored = [(change.source, change.number) for change in events_in(journal, "main")]
    finally:
        journal.close()
        journal._database.close()
    assert acked <= set(stored)
    assert len(stored) == len(set(stored)), "each of them once"


def test_requests_beyond_the_memory_limit_are_refused(tmp_path: Path) -> None:
    settings = ApiSettings(inline_bytes_max=0, parsing_bytes_max=2_000, parse_threads_max=1)
    with served(tmp_path, settings=settings) as server:
        api: Any = server.api
        read, reached, released = api.parse, threading.Event(), threading.Event()

        def wait(*arguments: Any) -> Any:
            reached.set()
            released.wait()
            return read(*arguments)

        api.parse = wait
        said: list[int] = []
        body = [event(number) for number in range(10)]
        first = threading.Thread(
            target=lambda: said.append(httpx.post(f"{server.url}/cdc", json=body, timeout=60).status_code)
        )
        first.start()
        reached.wait()
        refusal = httpx.post(f"{server.url}/cdc", json=body, timeout=60)
        assert (refusal.status_code, refusal.headers["retry-after"]) == (429, "1")
        api.parse = read
        released.set()
        first.join()
        assert said == [202]
        assert httpx.post(f"{server.url}/cdc", json=body, timeout=60).json()["isDuplicate"] is True
