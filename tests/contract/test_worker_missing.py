"""A server whose Spark worker cannot run: the start, /ready and /status say which part is missing."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.contract.test_serving import wait_for_log
from tests.harness.stacks import STACKS, StackName, Stacks

JARS_MISSING = "not running: jars missing, run `make setup`"
CHANGE = {
    "table": "shop.orders",
    "operation": "INSERT",
    "sequence": 1,
    "timestamp": 1_794_960_000_000,
    "rowId": "1",
    "before": None,
    "after": {"id": 1},
}


def _until_told(url: str) -> dict[str, Any]:
    """`/ready`, once the supervisor has written its reason: it starts after the server answers."""
    until_s = time.monotonic() + 60
    while True:
        answer = httpx.get(f"{url}/ready", timeout=30)
        assert answer.status_code == 200, "changes are accepted without a worker"
        checks: dict[str, Any] = answer.json()["checks"]
        if "jars missing" in checks["worker"] or time.monotonic() > until_s:
            return checks
        time.sleep(0.1)


@pytest.mark.parametrize(("name", "processes"), [("embedded", "2"), ("postgres-s3", "1")])
def test_jars_that_are_missing(name: StackName, processes: str, stacks: Stacks, tmp_path: Path) -> None:
    settings = {"CALVE_WORKER": "yes", "CALVE_WORKERS": processes, "CALVE_JARS": str(tmp_path / "no-jars")}
    with stacks.started(name, tmp_path, settings) as stack:
        assert _until_told(stack.url)["worker"].startswith(JARS_MISSING)
        httpx.post(f"{stack.url}/cdc", json={"events": [CHANGE]}, timeout=30).raise_for_status()
        status = httpx.get(f"{stack.url}/status", timeout=30).json()
        assert status["degradedMode"]
        assert status["landing"]["stalled"].startswith(f"Spark worker {JARS_MISSING}")
        assert status["landing"]["worker"].startswith(JARS_MISSING)
        assert status["landing"]["workers"] == []
        printed = stack.server.log.read_text()
    assert f"\nSpark worker {JARS_MISSING}" in printed
    assert "Traceback" not in printed


def test_a_server_without_a_worker_of_its_own(stacks: Stacks, tmp_path: Path) -> None:
    with stacks.started("embedded", tmp_path) as stack:
        told = httpx.get(f"{stack.url}/ready", timeout=30).json()["checks"]["worker"]
        assert told.startswith("not running: no worker has asked for work")
        assert "`calve worker`" in told
        assert "worker=no" in stack.server.log.read_text()


@pytest.mark.parametrize("name", STACKS)
def test_a_restart_after_a_crash_logs_what_was_recovered(
    name: StackName, stacks: Stacks, tmp_path: Path
) -> None:
    with stacks.started(name, tmp_path) as stack:
        assert "recovered:" not in stack.server.log.read_text()
        httpx.post(f"{stack.url}/cdc", json={"events": [CHANGE]}, timeout=30).raise_for_status()
        stack.server.kill()
        stack.server.start()
        told = wait_for_log(stack.server, "recovered: ")
        assert "recovered: 1 acknowledged changes of 1 tables wait to land, 0 unfinished batches" in told
