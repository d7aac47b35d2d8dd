"""The supervisor of the Spark worker: what it logs and reports in each state of the worker."""

from __future__ import annotations

import logging
import os
import queue
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from calve.bootstrap import open_database
from calve.server import spark_worker
from calve.server.spark_worker import STARTING, SparkWorker, environment, missing
from calve.settings import Settings
from catalog.identity.oauth import Client, ClientCredentials
from catalog.identity.tokens import TokenIdentity
from spark_jobs import jars, java

WAIT_S = 30
State = tuple[str | None, str | None]


class Supervised:
    """A supervisor whose worker is a short Python program."""

    def __init__(self, program: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.states: queue.Queue[State] = queue.Queue()
        words = [sys.executable, "-c", program]
        monkeypatch.setattr(spark_worker, "command", lambda *_given, **_more: words)
        self.worker = SparkWorker(
            Settings(), "http://127.0.0.1:9", report=lambda name, reason: self.states.put((name, reason))
        )

    def next(self) -> State:
        return self.states.get(timeout=WAIT_S)

    def after(self, state: State) -> State:
        """The first state that differs."""
        while (found := self.next()) == state:
            pass
        return found


@pytest.fixture(autouse=True)
def _nothing_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_worker, "missing", lambda: None)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Supervised]]:
    """Starts a supervisor for a program."""
    started: list[Supervised] = []

    def start(program: str) -> Supervised:
        started.append(Supervised(program, monkeypatch))
        started[-1].worker.start()
        return started[-1]

    yield start
    for each in started:
        each.worker.stop()


def said(event: str, **facts: object) -> str:
    return f"import json; print(json.dumps({ {'event': event, **facts}!r}), flush=True)\n"


def test_a_worker_that_is_ready(run: Callable[[str], Supervised]) -> None:
    program = said("starting", worker="w-1") + said("ready", worker="w-1") + "import time; time.sleep(60)"
    supervised = run(program)
    assert supervised.next() == (None, STARTING)
    assert supervised.next() == ("w-1", None)


def test_a_worker_that_ends_says_why(run: Callable[[str], Supervised]) -> None:
    program = said("starting", worker="w-1") + said("spark-died", error="no memory") + "raise SystemExit(70)"
    supervised = run(program)
    assert supervised.next() == (None, STARTING)
    assert supervised.next() == ("w-1", "not running: no memory (it is started again in 2 s)")
    assert supervised.after(("w-1", "not running: no memory (it is started again in 2 s)")) == (
        None,
        STARTING,
    )


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("raise SystemExit(3)", "it ended with exit code 3"),
        ("import os; os.kill(os.getpid(), 9)", "it ended with SIGKILL"),
        ("import nothing_like_this", "ModuleNotFoundError: No module named 'nothing_like_this'"),
    ],
)
def test_a_worker_that_ends_without_a_word(
    run: Callable[[str], Supervised], program: str, reason: str
) -> None:
    supervised = run(program)
    assert supervised.next() == (None, STARTING)
    name, told = supervised.next()
    assert name is None
    assert told is not None
    assert told.startswith("not running: it ended with")
    assert reason in told


def test_what_is_missing_is_reported_and_the_worker_starts_once_it_is_there(
    run: Callable[[str], Supervised], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = iter(["jars missing, run `make setup`", None])
    monkeypatch.setattr(spark_worker, "missing", lambda: next(found, None))
    monkeypatch.setattr(spark_worker, "REPEAT_S", 0.01)
    supervised = run("import time; time.sleep(60)")
    assert supervised.next() == (None, "not running: jars missing, run `make setup`")
    assert supervised.next() == (None, STARTING)


def test_lines_of_the_worker_and_of_java_become_log_lines(
    run: Callable[[str], Supervised], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, spark_worker.__name__)
    program = said("landed", job="j-1", number=7, tables={"shop.orders": {}}, stages={"write": 1}, name="x")
    program += "import sys\n"
    program += "print('2026-11-16T05:32:00.123Z WARN TaskSet: slow | at x', file=sys.stderr, flush=True)\n"
    program += "print('Using incubator modules', file=sys.stderr, flush=True)\n"
    supervised = run(program)
    supervised.next()
    supervised.next()  # it has ended, so all its lines were read
    records = {record.getMessage(): record for record in caplog.records}
    landed = vars(records["Spark worker: landed"])
    assert (landed["job"], landed["number"], landed["tables"]) == ("j-1", 7, ["shop.orders"])
    assert landed["worker_name"] == "x"
    assert "stages" not in landed
    assert records["Spark: slow | at x"].levelno == logging.WARNING
    assert records["Spark: Using incubator modules"].levelno == logging.DEBUG


def test_a_stop_ends_the_child(run: Callable[[str], Supervised]) -> None:
    program = "import os\n" + said("ready", worker="w-1") + "import time; time.sleep(60)"
    supervised = run(program)
    while supervised.next()[1] is not None:
        pass
    supervised.worker.stop()
    child = supervised.worker._child
    assert child is not None
    assert child.poll() is not None


def test_what_this_machine_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALVE_JARS", str(tmp_path))
    told = missing()
    assert told is not None
    assert told.startswith("jars missing, run `make setup`")
    for jar in jars.JARS:
        (tmp_path / jar.file).touch()
    assert missing() is None
    monkeypatch.setattr(java, "candidates", lambda _environment: iter(()))
    monkeypatch.setattr(java, "_packaged", lambda: None)
    told = missing()
    assert told is not None
    assert told.startswith("Java 17 or 21 missing, run `make setup`")
    assert os.environ["CALVE_JARS"] == str(tmp_path)


def test_a_server_that_starts_leaves_the_credentials_of_other_servers_alone(tmp_path: Path) -> None:
    settings = Settings(auth="tokens", database=f"sqlite:///{tmp_path}/catalog.db")
    database = open_database(settings)
    identity = TokenIdentity(database, 600)

    def token_of(credential: str) -> str:
        name, _, secret = credential.partition(":")
        grant = ClientCredentials(Client(name, secret), "catalog")
        return str(identity.issue(grant)["access_token"])

    try:
        first = spark_worker.credentials(settings)["CALVE_WORKER_CREDENTIAL"]
        token = token_of(first)
        second = spark_worker.credentials(settings)["CALVE_WORKER_CREDENTIAL"]
        assert identity.identify(f"Bearer {token}").name == spark_worker.PRINCIPAL
        assert token_of(first) != token_of(second)
    finally:
        database.close()


def test_a_local_spark_does_not_look_up_the_host_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)
    assert environment(Settings(spark_master="local[2]"))["SPARK_LOCAL_IP"] == "127.0.0.1"
    assert "SPARK_LOCAL_IP" not in environment(Settings(spark_master="spark://spark.example:7077"))
    monkeypatch.setenv("SPARK_LOCAL_IP", "192.0.2.7")
    assert environment(Settings())["SPARK_LOCAL_IP"] == "192.0.2.7"


def test_settings_of_spark_reach_the_worker() -> None:
    settings = Settings(
        spark_driver_host="10.0.0.7",
        spark_driver_port=7078,
        spark_executors_max=8,
        spark_event_log_dir="file:///var/log/spark",
    )
    words = spark_worker.command(settings, "http://lake:8181")
    given = dict(word.split("=", 1) for before, word in pairwise(words) if before == "--conf")
    assert given == {
        "spark.driver.host": "10.0.0.7",
        "spark.driver.bindAddress": "0.0.0.0",
        "spark.driver.port": "7078",
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.shuffleTracking.enabled": "true",
        "spark.dynamicAllocation.maxExecutors": "8",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": "file:///var/log/spark",
    }
    assert "--conf" not in spark_worker.command(Settings(), "http://lake:8181")
