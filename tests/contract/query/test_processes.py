"""Queries of a server with several processes: each process lists and ends those of the others."""

from __future__ import annotations

import uuid
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from query.registry import PROCESS_CHARS
from tests.contract.query.lake import QueryLake
from tests.contract.query.test_running import SLOW, _wait_for
from tests.harness.stacks import STACKS, StackName, Stacks

LISTS = 8  # each over a connection of its own, so that several processes answer
QUERIES_MAX = 30


@pytest.mark.parametrize("name", STACKS)
def test_every_process_lists_and_ends_the_queries_of_all(
    stacks: Stacks, tmp_path: Path, name: StackName
) -> None:
    # One query at a time in each process: those that run would take the processor from all others.
    settings = {"CALVE_WORKERS": "2", "CALVE_QUERY_PROCESSES_MAX": "1"}
    with stacks.started(name, tmp_path, settings) as stack, ThreadPoolExecutor(40) as threads:
        lake = QueryLake.on(stack)
        sql = f"{SLOW} -- {uuid.uuid4().hex}"
        answers: list[Future[httpx.Response]] = []

        def running() -> list[str]:
            listed = httpx.get(f"{stack.url}/lake/v1/main/queries", timeout=60).json()["queries"]
            active = [one for one in listed if one["state"] in ("waiting", "running")]
            return [one["query_id"] for one in active if one["sql"] == sql]

        def in_two_processes() -> bool:
            if len(answers) < QUERIES_MAX:
                answers.append(threads.submit(lake.post, sql))
            return len({query_id[:PROCESS_CHARS] for query_id in running()}) == 2

        _wait_for(in_two_processes, 60)
        _wait_for(lambda: all(len(running()) == len(answers) for _ in range(LISTS)), 60)
        for query_id in running():
            ended = httpx.delete(f"{stack.url}/query/{query_id}", timeout=60)
            assert ended.status_code == 200, ended.text
        assert {answer.result(60).status_code for answer in answers} == {409}
        _wait_for(lambda: not any(running() for _ in range(LISTS)), 60)
