"""Several processes on one port: they share the work, are replaced, and never outlive their parent."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.harness.ports import wait_until_free
from tests.unit.server.child import Answer, SmallServer

WORKERS = 2


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SmallServer]:
    with SmallServer.started(tmp_path, {"CALVE_WORKERS": str(WORKERS)}) as started:
        eventually(lambda: b"calve_server_processes 2.0\n" in started.get("/metrics").body)
        yield started


def workers_of(server: SmallServer) -> set[int]:
    """The children of the parent that serve, from the kernel; multiprocessing has a helper of its own."""
    listed = Path(f"/proc/{server.child.pid}/task/{server.child.pid}/children").read_text()
    return {int(pid) for pid in listed.split() if b"spawn_main" in _command(pid)}


def _command(pid: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except FileNotFoundError:
        return b""


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


def eventually(condition: Callable[[], bool], timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.02)


def served(server: SmallServer, operation: str) -> float:
    """How often the operation was answered, by all processes together."""
    families = text_string_to_metric_families(server.get("/metrics").body.decode())
    return sum(
        sample.value
        for family in families
        for sample in family.samples
        if sample.name == "calve_http_request_duration_seconds_count"
        and sample.labels["operation"] == operation
    )


def test_all_workers_serve_and_their_numbers_are_added(server: SmallServer) -> None:
    workers = workers_of(server)
    assert len(workers) == WORKERS
    answered: set[int] = set()
    asked = 0
    while answered != workers:
        answered.add(server.get("/echo").json["pid"])
        asked += 1
        assert asked < 5000, "one worker gets no connection"
    # A request is counted just after its answer, so another worker may render a moment too early.
    eventually(lambda: served(server, "echo") == asked)
    for _ in range(5):  # whichever worker renders
        assert served(server, "echo") == asked


def test_a_dead_worker_is_replaced_and_its_numbers_stay(server: SmallServer) -> None:
    for _ in range(50):
        server.get("/echo")
    eventually(lambda: served(server, "echo") == 50)
    before = workers_of(server)
    victim = min(before)
    os.kill(victim, signal.SIGKILL)
    eventually(lambda: len(workers_of(server) - before) == 1 and server.get("/echo").status == 200)
    assert workers_of(server) & before == before - {victim}
    eventually(lambda: served(server, "echo") >= 51)
    eventually(lambda: b"calve_worker_restarts_total 1.0\n" in server.get("/metrics").body)
    assert b"calve_server_processes 2.0\n" in server.get("/metrics").body


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_graceful_stop_finishes_what_is_in_flight(
    tmp_path: Path, number: signal.Signals, workers: str
) -> None:
    settings = {"CALVE_WORKERS": workers, "CALVE_LOG_LEVEL": "debug"}
    with SmallServer.started(tmp_path, settings) as server:
        begun = tmp_path / "begun"
        answers: list[Answer] = []
        slow = threading.Thread(target=lambda: answers.append(server.get(f"/sleep?s=1&begun={begun}")))
        slow.start()
        eventually(begun.exists)
        os.kill(server.child.pid, number)
        assert server.child.wait(60) == 0
        slow.join()
        assert answers[0].status == 200
        assert server.lines("request")[-1]["path"] == "/sleep"


def test_a_stop_waits_no_longer_than_it_may(tmp_path: Path) -> None:
    settings = {"CALVE_WORKERS": "2", "CALVE_SHUTDOWN_TIMEOUT_S": "1"}
    with SmallServer.started(tmp_path, settings) as server, server.connect() as connection:
        begun = tmp_path / "begun"
        connection.sendall(f"GET /sleep?s=600&begun={begun} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        eventually(begun.exists)
        os.kill(server.child.pid, signal.SIGTERM)
        assert server.child.wait(60) == 0


def test_workers_do_not_outlive_a_killed_parent(server: SmallServer) -> None:
    workers = workers_of(server)
    with server.connect():  # a connection that stays open must not hold them
        os.kill(server.child.pid, signal.SIGKILL)
        eventually(lambda: all(is_gone(pid) for pid in workers))
    wait_until_free(server.port)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_an_application_that_cannot_be_created_is_one_sentence(tmp_path: Path, workers: str) -> None:
    server = SmallServer(tmp_path, {"CALVE_WORKERS": workers, "CALVE_TEST_FAIL": "create"})
    server.child.start(lambda: True)
    assert server.child.wait(60) == 2
    assert server.log == "calve: the lake is frozen.\n"


@pytest.mark.parametrize("workers", ["1", "2"])
def test_an_application_that_fails_at_its_start_ends_the_server(tmp_path: Path, workers: str) -> None:
    server = SmallServer(tmp_path, {"CALVE_WORKERS": workers, "CALVE_TEST_FAIL": "lifespan"})
    server.child.start(lambda: True)
    assert server.child.wait(60) == 2
    assert server.log.endswith(" did not start; the log says why.\n")


def test_metrics_of_a_former_server_are_gone(tmp_path: Path) -> None:
    settings = {"CALVE_WORKERS": "2"}
    with SmallServer.started(tmp_path, settings) as server:
        assert server.get("/echo").status == 200
        eventually(lambda: served(server, "echo") == 1)
    with SmallServer.started(tmp_path, settings) as server:
        assert served(server, "echo") == 0
