"""The text of /metrics with one process and with several."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from calve.telemetry import metrics
from tests.harness.components import ROOT, program
from tests.harness.server import environment

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def samples(rendered: bytes) -> Samples:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(rendered.decode())
        for sample in family.samples
    }


def test_the_process_is_described() -> None:
    seen = samples(metrics.render())
    assert seen["process_resident_memory_bytes", ()] > 1_000_000
    assert seen["process_open_fds", ()] > 2
    assert seen["process_cpu_seconds_total", ()] > 0
    assert seen["process_start_time_seconds", ()] > 1_600_000_000


def test_promtool_accepts_it() -> None:
    command = [str(program("promtool")), "check", "metrics"]
    checked = subprocess.run(command, input=metrics.render(), capture_output=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, b"")


SERVER = """
import sys
from prometheus_client import Counter, Gauge
from calve.telemetry import metrics
Counter("hits_total", "Hits.").inc(10)
Gauge("open", "Open.", multiprocess_mode="livesum").set(7)
metrics.record_start(2)
sys.stdout.buffer.write(metrics.render())
"""


def server_process(folder: Path) -> Samples:
    """Start a process that counts, renders and ends; what it rendered."""
    settings = {metrics.DIRECTORY_VARIABLE: str(folder), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", SERVER]
    return samples(subprocess.run(command, env=environment(settings), capture_output=True, check=True).stdout)


def test_counters_add_up_over_processes_and_gauges_over_those_alive(tmp_path: Path) -> None:
    for number in range(1, 6):
        seen = server_process(tmp_path)
        assert seen["hits_total", ()] == 10 * number
        assert seen["open", ()] == 7  # the processes before are gone, and what they had open with them
        assert seen["calve_server_processes", ()] == 1
        # A parent and two workers are the first processes; every one after them replaces one.
        assert seen["calve_worker_restarts_total", ()] == max(0, number - 3)
