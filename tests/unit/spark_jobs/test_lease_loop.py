"""The loop of a worker, with a server that answers as it is told and a Spark that does nothing."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError

from spark_jobs import lease_loop
from spark_jobs.landing.landing_job import LandingJob, Outcome
from spark_jobs.lease_loop import SPARK_DIED, Worker
from spark_jobs.messages import BadJob, Job
from spark_jobs.progress import Progress
from spark_jobs.server_client import LostLease, Server
from spark_jobs.slot_session import Stores
from tests.unit.spark_jobs.stub_server import Asked, StubServer, refused, stub_server
from tests.unit.spark_jobs.test_messages import JOB

LEASE = "/lake/v1/jobs/lease"
WAIT_S = 20.0


class _Spark:
    """As much of a session as a worker touches without a batch."""

    def __init__(self) -> None:
        self.stopped = False
        self.sparkContext = self
        self.conf = self
        self._gateway = None
        self._jsc = self

    def newSession(self) -> _Spark:  # noqa: N802
        return self

    def set(self, key: str, value: str) -> None:
        pass

    def setLocalProperty(self, key: str, value: str) -> None:  # noqa: N802
        pass

    def sc(self) -> _Spark:
        return self

    def isStopped(self) -> bool:  # noqa: N802
        return self.stopped


class _Desk:
    """Hands out a job once, then nothing."""

    def __init__(self, stub: StubServer) -> None:
        self.stub = stub
        self.waiting: list[dict[str, Any]] = []
        self.beat: Callable[[], tuple[int, Any]] = lambda: (200, {"lease-s": 1})
        stub.otherwise = self._answer

    def _answer(self, asked: Asked) -> tuple[int, Any]:
        if asked.path == LEASE:
            if self.waiting:
                return (200, self.waiting.pop())
            time.sleep(0.02)
            return (204, None)
        if asked.path.endswith("/heartbeat"):
            return self.beat()
        return (200, {})

    def told(self, what: str) -> list[Any]:
        return [asked.body for asked in self.stub.asked if asked.path.endswith(what)]


@pytest.fixture
def desk() -> Iterator[_Desk]:
    with stub_server() as stub:
        yield _Desk(stub)


@pytest.fixture
def spark() -> _Spark:
    return _Spark()


@pytest.fixture
def worker(desk: _Desk, spark: _Spark) -> Iterator[Worker]:
    server = Server(desk.stub.url, retry_s_max=0.0)
    stores = Stores(server, None)
    made = Worker(server, spark, stores, "w-1", slots=1, about={})  # type: ignore[arg-type]
    yield made
    made.stop()
    time.sleep(0.1)
    server.close()


def _lands(monkeypatch: pytest.MonkeyPatch, do: Callable[[Job, Progress], Outcome]) -> None:
    monkeypatch.setattr(LandingJob, "run", lambda _self, job, progress: do(job, progress))


def _until(done: Callable[[], bool]) -> None:
    until_s = time.monotonic() + WAIT_S
    while not done():
        assert time.monotonic() < until_s, "did not happen"
        time.sleep(0.01)


def _said(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def _run(worker: Worker) -> tuple[threading.Thread, list[int]]:
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(worker.run()))
    thread.start()
    return thread, codes


def test_a_job_is_landed_and_told(
    desk: _Desk, worker: Worker, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _lands(monkeypatch, lambda job, _: Outcome(7, 1, {"write": 12}, {"a.b.t": {"events": 3}}))
    desk.waiting.append(JOB)
    thread, codes = _run(worker)
    _until(lambda: len(desk.told("/lease")) > 2)
    worker.stop()
    thread.join()
    assert codes == [0]
    (landed,) = [line for line in _said(capsys) if line["event"] == "landed"]
    assert (landed["job"], landed["number"], landed["stages"]) == ("j", 7, {"write": 12})
    assert desk.told("/lease")[0] == {
        "worker": "w-1",
        "slot": 0,
        "wait-s": lease_loop.LEASE_WAIT_S,
        "about": {"rebuilds": True},
    }


@pytest.mark.parametrize(("error", "retry"), [(ValueError("oh"), True), (BadJob("never"), False)])
def test_a_job_that_fails_is_given_back(
    desk: _Desk, worker: Worker, monkeypatch: pytest.MonkeyPatch, error: Exception, retry: bool
) -> None:
    def fails(job: Job, progress: Progress) -> Outcome:
        raise error

    _lands(monkeypatch, fails)
    desk.waiting.append(JOB)
    thread, codes = _run(worker)
    _until(lambda: len(desk.told("/fail")) == 1)
    worker.stop()
    thread.join()
    assert codes == [0]
    (told,) = desk.told("/fail")
    assert (told["epoch"], told["retry"]) == (2, retry)
    assert str(error) in told["error"]


def test_a_job_whose_description_is_wrong_is_given_back_with_the_reason(desk: _Desk, worker: Worker) -> None:
    """A worker that only lets its lease run out gets the same job again, for ever."""
    table = {**JOB["tables"][0], "key": ["tenant", "id"]}
    desk.waiting.append({**JOB, "tables": [table]})
    thread, codes = _run(worker)
    _until(lambda: len(desk.told("/fail")) == 1)
    worker.stop()
    thread.join()
    assert codes == [0]
    (told,) = desk.told("/fail")
    assert (told["epoch"], told["retry"]) == (2, False)
    assert "the key column tenant is not among the columns" in told["error"]


def test_a_lease_is_kept_and_its_loss_is_noticed(
    desk: _Desk, worker: Worker, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def waits(job: Job, progress: Progress) -> Outcome:
        progress.set(stage="write", done=1, of=2)
        _until(lambda: len(desk.told("/heartbeat")) >= 2)
        desk.beat = lambda: (409, refused("another has it"))
        while True:
            progress.check()
            time.sleep(0.01)

    _lands(monkeypatch, waits)
    desk.waiting.append({**JOB, "lease-s": 0.3})
    thread, _ = _run(worker)
    _until(lambda: len(desk.told("/lease")) > 2)
    worker.stop()
    thread.join()
    assert "lost" in [line["event"] for line in _said(capsys)]
    assert desk.told("/heartbeat")[0] == {"epoch": 2, "progress": {"stage": "write", "done": 1, "of": 2}}
    assert desk.told("/fail") == []


@pytest.mark.parametrize("how", ["network", "stopped"])
def test_a_spark_that_dies_ends_the_worker(
    desk: _Desk, worker: Worker, spark: _Spark, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    def dies(job: Job, progress: Progress) -> Outcome:
        if how == "network":
            raise Py4JNetworkError("Answer from Java side is empty")
        spark.stopped = True
        raise ValueError("no context")

    _lands(monkeypatch, dies)
    desk.waiting.append(JOB)
    thread, codes = _run(worker)
    thread.join(WAIT_S)
    assert codes == [SPARK_DIED]
    assert len(desk.told("/fail")) == 1


def test_told_to_stop_it_finishes_what_it_has(
    desk: _Desk, worker: Worker, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    begun, finish = threading.Event(), threading.Event()

    def lands(job: Job, progress: Progress) -> Outcome:
        begun.set()
        assert finish.wait(WAIT_S)
        return Outcome(1, 1)

    _lands(monkeypatch, lands)
    desk.waiting.append(JOB)
    thread, codes = _run(worker)
    assert begun.wait(WAIT_S)
    worker.stop()
    finish.set()
    thread.join(WAIT_S)
    assert codes == [0]
    assert [line["event"] for line in _said(capsys)] == ["landed"]


@pytest.mark.parametrize("merges", [False, True])
def test_what_takes_too_long_to_finish_is_given_back(
    desk: _Desk, worker: Worker, monkeypatch: pytest.MonkeyPatch, merges: bool
) -> None:
    begun, finish = threading.Event(), threading.Event()

    def hangs(job: Job, progress: Progress) -> Outcome:
        progress.transaction = "w-1-0" if merges else None
        begun.set()
        finish.wait(WAIT_S)
        raise LostLease("given back")

    _lands(monkeypatch, hangs)
    monkeypatch.setattr(lease_loop, "STOP_S", 0.1)
    desk.waiting.append(JOB)
    thread, codes = _run(worker)
    assert begun.wait(WAIT_S)
    worker.stop()
    thread.join(WAIT_S)
    finish.set()
    assert codes == [0]
    assert [told["error"] for told in desk.told("/fail")] == ["the worker stopped"]
    assert ("DELETE /lake/v1/main/transactions/w-1-0" in desk.stub.paths()) == merges


def test_it_stops_when_nobody_is_left_to_work_for(desk: _Desk, spark: _Spark) -> None:
    server = Server(desk.stub.url, retry_s_max=0.0)
    gone = threading.Event()
    stores = Stores(server, None)
    worker = Worker(server, spark, stores, "w-1", slots=1, about={}, gone=gone.is_set)  # type: ignore[arg-type]
    thread, codes = _run(worker)
    _until(lambda: len(desk.told("/lease")) > 0)
    gone.set()
    thread.join(WAIT_S)
    assert codes == [0]
    worker.stop()
    time.sleep(0.1)
    server.close()


def test_a_server_that_is_away_is_asked_again(
    desk: _Desk, worker: Worker, capsys: pytest.CaptureFixture[str]
) -> None:
    desk.stub.on("POST", LEASE, (503, refused("later")), (503, refused("later")), (204, None))
    thread, _ = _run(worker)
    _until(lambda: len(desk.told("/lease")) > 3)
    worker.stop()
    thread.join()
    assert [line["event"] for line in _said(capsys)] == ["no-answer"], "said once, not at every try"
