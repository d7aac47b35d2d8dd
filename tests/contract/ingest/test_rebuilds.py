"""Jobs that rebuild mirrors, with a worker by hand: how often one is tried, and what a person sees of it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.contract.ingest.desks import Desks
from tests.contract.ingest.hand import Hand, Job, expire
from tests.contract.ingest.test_jobs import SETTINGS, fresh, landed
from tests.harness.stacks import STACKS, Stack, Stacks


@pytest.fixture(scope="module")
def desks(stacks: Stacks, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desks]:
    with contextlib.ExitStack() as running:
        yield Desks(stacks, tmp_path_factory.mktemp("desks"), running, SETTINGS)


@pytest.fixture(params=STACKS)
def desk(request: pytest.FixtureRequest, desks: Desks) -> Stack:
    return desks.on(request.param)


class Table:
    """A table with one row that has landed, and a worker that rebuilds."""

    def __init__(self, desk: Stack) -> None:
        self.desk, self.space, self.hand = desk, fresh(), Hand(desk.url)
        self.name = f"{self.space}.t"
        self.hand.about = {"rebuilds": True}
        self.hand.post(self.name, {"id": 1, "k": 1})
        self.hand.land(self.hand.lease(self.space))

    def call(self, method: str, what: str, **more: Any) -> httpx.Response:
        return self.hand.rest.lake(method, f"main/namespaces/{self.space}/tables/t/{what}", **more)

    def request(self) -> None:
        answer = self.call("POST", "rebuild")
        assert answer.status_code == 202, answer.text

    def lease_rebuild(self) -> Job:
        job = self.hand.lease(self.space)
        assert job["kind"] == "rebuild", job
        return job

    @property
    def rebuild(self) -> dict[str, Any]:
        found: dict[str, Any] = self.call("GET", "ingest").json()["state"]["rebuild"]
        return found


def test_a_rebuild_whose_worker_dies_each_time_is_given_up(desk: Stack) -> None:
    table = Table(desk)
    table.request()
    first = table.lease_rebuild()
    for attempts in (1, 2, 3, 4):
        job = first if attempts == 1 else table.lease_rebuild()
        assert (job["id"], job["epoch"]) == (first["id"], attempts)
        assert (table.rebuild["state"], table.rebuild["attempts"]) == ("running", attempts)
        expire(desk, job)
    # The mirror is right without it, so the table goes on.
    table.hand.post(table.name, {"id": 2, "k": 2})
    table.hand.land(_batch(table))
    found = table.rebuild
    assert found["state"] == "failed"
    assert "its worker stopped 4 times" in found["error"]
    assert f"`calve table rebuild {table.name}`" in found["error"]
    assert landed(desk, table.name)["rebuild"]["error"] == found["error"]
    # It can be requested again, and then has all its attempts.
    table.request()
    job = table.lease_rebuild()
    assert (table.rebuild["state"], table.rebuild["attempts"]) == ("running", 1)
    table.hand.land(job)
    assert (table.rebuild["state"], table.rebuild["error"]) == ("none", None)
    assert "rebuild" not in landed(desk, table.name)


def _batch(table: Table) -> Job:
    job = table.hand.lease(table.space)
    assert job["kind"] == "commit", job
    return job


def test_a_table_whose_needed_rebuild_was_given_up_waits_and_says_why(desk: Stack) -> None:
    table = Table(desk)
    assert table.call("PUT", "ingest", json={"key": ["k"]}).is_success
    table.hand.post(table.name, {"id": 2, "k": 2})
    for attempts in (1, 2, 3, 4):
        job = table.lease_rebuild()
        assert job["epoch"] == attempts
        assert table.hand.fail(job, "no space is left").status_code == 204
        if attempts < 4:
            waiting = table.rebuild
            assert (waiting["state"], waiting["error"]) == ("requested", "no space is left")
    assert table.hand.ask().status_code == 204
    assert table.rebuild["state"] == "failed"
    shown = landed(desk, table.name)
    assert shown["pending-events"] == 1
    assert "no space is left" in shown["stalled"]
    assert f"`calve table rebuild {table.name}`" in shown["stalled"]
    table.request()
    table.hand.land(table.lease_rebuild())
    table.hand.land(_batch(table))
    shown = landed(desk, table.name)
    assert (shown["pending-events"], shown["key"]) == (0, ["k"])
    assert "stalled" not in shown


def test_a_rebuild_that_is_requested_again_begins_anew(desk: Stack) -> None:
    table = Table(desk)
    table.request()
    first = table.lease_rebuild()
    assert table.call("PUT", "ingest", json={"key": ["k"]}).is_success
    expire(desk, first)
    second = table.lease_rebuild()
    assert second["id"] != first["id"]
    assert second["tables"][0]["key"] == ["k"]
    table.hand.land(second)


def test_a_worker_that_does_not_rebuild_leaves_the_job_to_others(desk: Stack) -> None:
    table, other = Table(desk), Hand(desk.url)
    table.request()
    job = table.lease_rebuild()
    expire(desk, job)
    assert other.ask().status_code == 204
    again = table.lease_rebuild()
    assert (again["id"], again["epoch"]) == (job["id"], 2)
    table.hand.land(again)
