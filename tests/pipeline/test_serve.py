"""`calve serve` as a newcomer runs it: a worker comes with it, and `calve demo` shows changes become rows."""

from __future__ import annotations

import os
import re
import shlex
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
            words, env=environment({}), capture_output=True, text=True, timeout=400, check=False, cwd=tmp_path
        )
        assert ended.returncode == 0, ended.stderr
        assert "SELECT sum(balance)" in ended.stdout
        assert re.search(r"^acknowledged=\d+  visible=0 .*Spark worker starting", ended.stdout, re.MULTILINE)
        assert re.search(r"^(\S+) changes acknowledged and \1 visible", ended.stdout, re.MULTILINE)
        wait_until_landed(stack.url)
        status = httpx.get(f"{stack.url}/status").json()["landing"]
        assert [worker["alive"] for worker in status["workers"]] == [True]
        assert httpx.get(f"{stack.url}/ready").json()["checks"]["worker"] == "ok"
        with DuckLake(stack) as lake:
            assert lake.sql("SELECT sum(balance) FROM lake.shop.accounts") == [(1000,)]
            changes = lake.sql("SELECT count(*) FROM lake.shop.orders__changes")[0][0]
            assert changes == status["tables"]["shop.orders"]["events"]
            rows = lake.sql("SELECT count(*) FROM lake.shop.orders")[0][0]
            assert f"shop.orders: {rows} rows, from {changes} changes." in ended.stdout
            assert "shop.accounts: 10 rows, from" in ended.stdout
        lines = [line.strip() for line in ended.stdout.splitlines()]
        assert f"export CALVE_URI={stack.url}" in lines
        _, *given = shlex.split(next(line for line in lines if line.startswith("calve query")))
        queried = subprocess.run(
            [str(components.calve()), *given, "--format", "json"],
            env={**environment({}), "CALVE_URI": stack.url},
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        assert "status" in queried.stdout
