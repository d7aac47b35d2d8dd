"""`calve serve` as a newcomer runs it: a worker comes with it, and `calve demo` shows changes become rows."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import httpx

from tests.clients.duckdb_client import DuckLake
from tests.harness import components
from tests.harness.server import environment
from tests.harness.stacks import Stacks
from tests.pipeline.producer import wait_until_landed


def test_a_demo_against_the_embedded_default(stacks: Stacks, tmp_path: Path) -> None:
    settings = {
        "CALVE_WORKER": "yes",
        "CALVE_SPARK_MASTER": "local[2]",
        "CALVE_JARS": os.environ["CALVE_JARS"],
    }
    with stacks.started("embedded", tmp_path, settings) as stack:
        words = [str(components.calve()), "demo", "--uri", stack.url, "--seconds", "3", "--rate", "100"]
        ended = subprocess.run(
            words, env=environment({}), capture_output=True, text=True, timeout=240, check=False, cwd=tmp_path
        )
        assert ended.returncode == 0, ended.stderr
        assert "SELECT sum(balance)" in ended.stdout
        wait_until_landed(stack.url)
        status = httpx.get(f"{stack.url}/status").json()["landing"]
        assert [worker["alive"] for worker in status["workers"]] == [True]
        assert httpx.get(f"{stack.url}/ready").json()["checks"]["worker"] == "ok"
        with DuckLake(stack) as lake:
            assert lake.sql("SELECT sum(balance) FROM lake.demo.accounts") == [(1000,)]
            changes = lake.sql("SELECT count(*) FROM lake.demo.orders__changes")[0][0]
            assert changes == status["tables"]["demo.orders"]["events"]


def test_a_demo_without_a_server_says_so(tmp_path: Path) -> None:
    words = [str(components.calve()), "demo", "--uri", "http://127.0.0.1:1"]
    ended = subprocess.run(
        words, env=environment({}), capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path
    )
    assert ended.returncode == 2
    assert "Start one with" in ended.stderr
