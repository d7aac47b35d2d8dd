"""The next batch of a table is staged while the one before it is landed, and used only if all is as expected.

A worker by hand lands the first; a second one asks meanwhile, which is when the server looks ahead.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.contract.ingest.desks import Desks
from tests.contract.ingest.hand import Hand, Job
from tests.harness.stacks import STACKS, Stack, Stacks

SETTINGS = {"CALVE_FRESHNESS_TARGET_MS": "0", "CALVE_FLUSH_EVENTS": "3"}
ROWS: list[dict[str, Any]] = [{"id": 1, "x": "c"}, {"id": 3, "x": "d"}, {"id": 4, "x": None}]

Bench = tuple[Stack, Stacks]


@pytest.fixture(scope="module")
def desks(stacks: Stacks, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desks]:
    with contextlib.ExitStack() as running:
        yield Desks(stacks, tmp_path_factory.mktemp("ahead"), running, SETTINGS)


@pytest.fixture(params=STACKS)
def bench(request: pytest.FixtureRequest, desks: Desks, stacks: Stacks) -> Bench:
    return desks.on(request.param), stacks


class Table:
    """A table with two rows landed, and a third batch that waits behind the second, which is being landed."""

    def __init__(self, bench: Bench, *, look: bool = True, rows: list[dict[str, Any]] = ROWS) -> None:
        self.stack, self.stacks = bench
        self.space = f"n{uuid.uuid4().hex[:8]}"
        self.hand, self.other = Hand(self.stack.url), Hand(self.stack.url)
        self.post({"id": 1, "x": "a"})
        self.hand.land(self.hand.lease(self.space))
        self.post({"id": 2, "x": "b"})
        self.job = self.hand.lease(self.space)
        before = self.staged()
        self.post(*rows)
        if look:
            assert self.other.ask().status_code == 204
        self.prestaging = self.staged() - before

    def post(self, *rows: dict[str, Any]) -> None:
        self.hand.post(f"{self.space}.t", *(dict(row) for row in rows))

    def staged(self) -> set[str]:
        """The ids of jobs that have files."""
        folder = self._path(f"{self._root()}/_calve/staged")
        return {file.parent.name for file in folder.rglob("*.parquet")}

    def next(self) -> Job:
        return self.other.lease(self.space)

    def content(self, job: Job) -> pa.Table:
        [name] = job["tables"][0]["files"]
        return pq.read_table(self._path(name))

    def status(self) -> dict[str, Any]:
        tables = httpx.get(f"{self.stack.url}/status", timeout=60).json()["landing"]["tables"]
        found: dict[str, Any] = tables[f"{self.space}.t"]
        return found

    def _path(self, location: str) -> Path:
        if location.startswith("s3:"):
            return self.stacks.s3.path(location)
        return Path(location.removeprefix("file://"))

    def _root(self) -> str:
        found = self.hand.rest.lake("GET", "warehouses/main").json()
        return str(found["root"])


def test_a_prestaged_batch_equals_one_that_is_staged_later(bench: Bench) -> None:
    early, late = Table(bench), Table(bench, look=False)
    found = {}
    for name, table in (("early", early), ("late", late)):
        table.hand.land(table.job)
        job = table.next()
        described = dict(job["tables"][0])
        del described["files"], described["namespace"], described["states"]
        content = table.content(job).drop_columns(["_calve_source", "_calve_event_id"])
        found[name] = (described, content.to_pylist())
        assert {job["id"]} == early.prestaging or name == "late"
        assert table.other.land(job)
        assert (table.status()["events"], table.status()["pending-events"]) == (5, 0)
    assert found["early"] == found["late"]
    assert early.prestaging
    assert not late.prestaging
    assert early.staged() & early.prestaging == set()


def test_a_prestaged_batch_claims_no_table(bench: Bench) -> None:
    table = Table(bench)
    assert len(table.prestaging) == 1
    assert table.other.ask(0.3).status_code == 204
    shown = table.other.rest.lake("GET", f"jobs/{next(iter(table.prestaging))}")
    assert shown.status_code == 404
    table.hand.land(table.job)
    table.other.land(table.next())


def test_a_third_batch_is_prestaged_after_the_second(bench: Bench) -> None:
    table = Table(bench)
    table.hand.land(table.job)
    second = table.next()
    assert {second["id"]} == table.prestaging
    table.post(*({"id": id_, "x": "y"} for id_ in range(10, 14)))
    assert table.hand.ask().status_code == 204
    [third] = table.staged() - {second["id"]}
    table.other.land(second)
    job = table.next()
    assert (job["id"], job["tables"][0]["events"]) == (third, 4)
    table.other.land(job)
    assert table.status()["events"] == 9


def test_a_small_batch_is_not_prestaged(bench: Bench) -> None:
    table = Table(bench, rows=ROWS[:2])
    assert table.prestaging == set()
    table.hand.land(table.job)
    assert table.next()["tables"][0]["events"] == 2


def _given_up(table: Table) -> None:
    assert table.hand.fail(table.job, retry=False).status_code == 204


def _set(table: Table) -> None:
    path = f"main/namespaces/{table.space}/tables/t/ingest"
    answer = table.hand.rest.lake("PUT", path, json={"after-reject": "wait"})
    assert answer.status_code == 200, answer.text
    table.hand.land(table.job)


def _altered(table: Table) -> None:
    table.hand.land(table.job)
    metadata = table.hand.rest.load(table.space, "t")["metadata"]
    schema = dict(metadata["schemas"][-1])
    last = metadata["last-column-id"] + 1
    schema["fields"] = [*schema["fields"], {"id": last, "name": "y", "required": False, "type": "string"}]
    updates = [
        {"action": "add-schema", "schema": schema, "last-column-id": last},
        {"action": "set-current-schema", "schema-id": -1},
    ]
    answer = table.hand.rest.commit(table.space, "t", {"requirements": [], "updates": updates})
    assert answer.status_code == 200, answer.text


def _replaced(table: Table) -> None:
    table.hand.land(table.job)
    for name in ("t", "t__changes"):
        table.hand.rest.ok("DELETE", table.hand.rest.table_path(table.space, name))


@pytest.mark.parametrize("happens", [_given_up, _set, _altered, _replaced], ids=lambda f: f.__name__)
def test_a_prestaged_batch_is_discarded_if_its_assumptions_were_wrong(
    bench: Bench, happens: Callable[[Table], None]
) -> None:
    table = Table(bench)
    assert len(table.prestaging) == 1
    happens(table)
    job = table.next()
    assert job["id"] not in table.prestaging
    table.other.land(job)
    _wait(lambda: not table.staged() & table.prestaging)
    assert table.status()["events"] == 5
    assert job["tables"][0]["events"] == (4 if happens is _given_up else 3)


def _wait(is_so: Callable[[], bool]) -> None:
    until_s = time.monotonic() + 10
    while not is_so():
        assert time.monotonic() < until_s
        time.sleep(0.05)


def test_prestaging_writes_no_dead_letters(bench: Bench) -> None:
    table = Table(bench, rows=[*ROWS, {"id": None, "x": "bad"}])
    assert table.prestaging == set()
    where = {"table": f"{table.space}.t"}
    assert table.hand.rest.lake("GET", "main/dead-letters", params=where).json()["dead-letters"] == []
    table.hand.land(table.job)
    job = table.next()
    assert job["tables"][0]["rejects"] is not None
    table.other.land(job)
    assert len(table.hand.rest.lake("GET", "main/dead-letters", params=where).json()["dead-letters"]) == 1
    assert (table.status()["events"], table.status()["rejects"]) == (5, 1)


def test_a_table_that_would_change_is_not_staged_ahead(bench: Bench) -> None:
    table = Table(bench, rows=[{**row, "new": 1} for row in ROWS])
    assert table.prestaging == set()
    table.hand.land(table.job)
    job = table.next()
    assert any(state["updates"] for state in job["tables"][0]["states"].values())
    table.other.land(job)
    assert table.status()["events"] == 5
