"""Numbers: what is counted, how it is rendered, and how several processes share it."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from calve.telemetry import cells
from calve.telemetry.metrics import LATENCY_S, Metrics
from tests.harness.components import program


def samples(metrics: Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    families = text_string_to_metric_families(metrics.render().decode())
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def test_counters_and_gauges() -> None:
    metrics = Metrics()
    hits = metrics.counter("hits_total", "Hits.", ("kind",))
    hits.labels("a").add()
    hits.labels("a").add(2)
    hits.labels("b").add(0.5)
    metrics.gauge("depth", "Depth.").labels().set(-4)
    seen = samples(metrics)
    assert seen["hits_total", (("kind", "a"),)] == 3
    assert seen["hits_total", (("kind", "b"),)] == 0.5
    assert seen["depth", ()] == -4


@given(st.lists(st.floats(0, 100), max_size=50))
def test_histograms(values: list[float]) -> None:
    metrics = Metrics()
    child = metrics.histogram("took_seconds", "Time.", ("operation",)).labels("x")
    for value in values:
        child.observe(value)
    seen = samples(metrics)
    for bound in LATENCY_S:
        bucket = ("took_seconds_bucket", (("le", str(bound).removesuffix(".0")), ("operation", "x")))
        assert seen[bucket] == sum(value <= bound for value in values)
    assert seen["took_seconds_bucket", (("le", "+Inf"), ("operation", "x"))] == len(values)
    assert seen["took_seconds_count", (("operation", "x"),)] == len(values)
    assert seen["took_seconds_sum", (("operation", "x"),)] == pytest.approx(sum(values))


@given(st.text())
def test_any_label_value_survives(text: str) -> None:
    metrics = Metrics()
    try:
        text.encode()
    except UnicodeEncodeError:
        return  # a lone surrogate is no text that could be sent
    metrics.counter("hits_total", "Hits.", ("kind",)).labels(text).add()
    rendered = metrics.render().decode()
    assert rendered.count("hits_total{") == 1
    assert "\r" in text or len(rendered.split("\n")) == len(Metrics().render().decode().split("\n")) + 3


def test_promtool_accepts_it() -> None:
    metrics = Metrics()
    metrics.counter("calve_hits_total", 'Hits, "quoted" \\ and\nbroken.', ("kind",)).labels('a"\\\n').add()
    metrics.gauge("calve_depth", "Depth.").labels().set(1.5)
    metrics.histogram("calve_took_seconds", "Time.").labels().observe(0.3)
    command = [str(program("promtool")), "check", "metrics"]
    checked = subprocess.run(command, input=metrics.render(), capture_output=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, b"")


def test_threads_lose_nothing() -> None:
    metrics = Metrics()
    counter = metrics.counter("hits_total", "Hits.").labels()

    def count() -> None:
        for _ in range(5000):
            counter.add()

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert samples(metrics)["hits_total", ()] == 20_000


def in_child(work: Callable[[], None]) -> None:
    """Do this in a forked process, and wait for it."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_processes_add_up_and_a_successor_goes_on() -> None:
    metrics = Metrics()
    hits = metrics.counter("hits_total", "Hits.", ("kind",))
    open_ = metrics.gauge("open", "Open.")
    hits.labels("early").add()  # before the fork there is nothing to serve, so nothing is kept
    metrics.share(3)
    metrics.attach(2)

    def work(number: int) -> Callable[[], None]:
        def count() -> None:
            metrics.attach(number)
            hits.labels("a").add(10)
            hits.labels(f"only {number}").add()
            open_.labels().set(7)
            assert samples(metrics)["open", ()] == 7

        return count

    in_child(work(0))
    in_child(work(1))
    in_child(work(1))  # the successor of a dead one
    hits.labels("a").add()
    open_.labels().set(1)
    seen = samples(metrics)
    assert seen["hits_total", (("kind", "a"),)] == 31
    assert seen["hits_total", (("kind", "only 1"),)] == 2
    assert seen["open", ()] == 1  # what the dead ones had open is gone
    assert seen["calve_server_processes", ()] == 1


def test_a_full_slot_does_not_stop_anybody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cells, "CELLS_MAX", 5)
    metrics = Metrics()
    hits = metrics.counter("hits_total", "Hits.", ("kind",))
    for number in range(10):
        hits.labels(str(number)).add()
    assert len([name for name, _ in samples(metrics) if name == "hits_total"]) == 5


def test_the_process_is_described() -> None:
    seen = samples(Metrics())
    assert seen["process_resident_memory_bytes", ()] > 1_000_000
    assert seen["process_open_fds", ()] > 2
    assert seen["process_cpu_seconds_total", ()] > 0
    assert seen["process_start_time_seconds", ()] > 1_600_000_000
