"""What the server does for itself: nothing is forgotten before the disk has it, nothing left behind stays."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from calve.bootstrap import Ingest, open_catalog, open_ingest
from calve.settings import Settings
from catalog.errors import Unavailable
from catalog.identity.open import OpenIdentity
from catalog.services import transactions, warehouses
from catalog.services.catalog import Catalog
from catalog.store.database import Database
from ingest.api.explain import explain
from ingest.api.jobs import OpenTransaction, SentCommits
from ingest.change import RequestContext, TableName
from ingest.formats.detect import parse
from ingest.journal.entries import pending_totals
from ingest.landing.job_staging import PrestagedBatch, RunningJob
from ingest.settings import TableSettings
from ingest.staging.context import BatchRange, CannotStage, StagedBatch, StagingContext
from ingest.staging.process import stage
from ingest.store.jobs import staged_folder

Opened = tuple[Catalog, Ingest]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opened]:
    settings = Settings(home=tmp_path / "lake", flush_events=1)
    catalog = open_catalog(settings)
    ingest = open_ingest(settings, catalog, OpenIdentity())
    try:
        yield catalog, ingest
    finally:
        ingest.close()
        catalog.database.close()


def _leased(opened: Opened) -> dict[str, Any]:
    """A job for one change, in the hands of a worker."""
    _, ingest = opened
    _append(ingest)
    job = ingest.job_service.lease("w", ["main"], {}, "anonymous")
    assert job is not None
    return job


def _append(ingest: Ingest, table: str = "shop.t", warehouse: str = "main") -> None:
    event = {"sequence": 1, "operation": "INSERT", "table": table, "rowId": "1", "after": {"id": 1}}
    body = orjson.dumps({"events": [{**event, "timestamp": 1}]})
    ingest.journal.submit(warehouse, parse(body, RequestContext(source=f"s-{table}")), priority=1).result()


def test_a_batch_that_the_disk_does_not_have_is_not_published(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog, ingest = opened
    job = _leased(opened)
    transactions.open_transaction(catalog, "main", "anonymous", "w-0", 60)

    def refuse(directory: str) -> None:
        raise Unavailable(f"Cannot sync {directory}: input/output error")

    monkeypatch.setattr(catalog.files, "sync", refuse)
    with pytest.raises(Unavailable, match="input/output error"):
        ingest.job_service.publish(job["id"], 1, OpenTransaction("w-0"), "anonymous", {})
    assert ingest.jobs.state(job["id"]) == "leased"
    assert [row.events for row in ingest.journal.pending("main")] == [1]
    assert catalog.open_transaction("main", "w-0").state == "open"


def test_files_that_no_job_has_go_after_a_while(opened: Opened) -> None:
    catalog, ingest = opened
    job = _leased(opened)
    folder = staged_folder(catalog.warehouse("main").root)
    [used] = job["tables"][0]["files"]
    left = [f"{folder}/0123abcd/0-changes.parquet", f"{folder}/0123abcd/0-rejects.parquet"]
    for location in left:
        catalog.files.create(location, b"")
    now_ms = time.time_ns() // 1_000_000
    ingest.housekeeping.delete_abandoned("main", now_ms - 60_000)
    assert all(catalog.files.exists(location) for location in (used, *left))
    ingest.housekeeping.delete_abandoned("main", now_ms + 60_000)
    assert [catalog.files.exists(location) for location in (used, *left)] == [True, False, False]
    assert not Path(f"{folder}/0123abcd".removeprefix("file://")).exists()


def test_a_transaction_that_has_expired_is_closed(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog, ingest = opened
    transactions.open_transaction(catalog, "main", "anonymous", "left", 60)
    ingest.housekeeping.once()
    assert transactions.newest(catalog, "main", "left").state == "open"
    later_ms = catalog.now_ms() + 60_001
    monkeypatch.setattr(catalog, "now_ms", lambda: later_ms)
    ingest.housekeeping.once()
    assert transactions.newest(catalog, "main", "left").state == "expired"


def test_staging_that_fails_leaves_no_files(opened: Opened) -> None:
    """The first table is staged, the second cannot be; each attempt would leave one more file."""
    catalog, ingest = opened
    ground = StagingContext(catalog, ingest.journal, ingest.tables)
    for table in ("shop.a", "shop.b"):
        _append(ingest, table)
    head = ingest.journal.head("main")
    spans: dict[TableName, tuple[int, int]] = {("shop", name): (0, head) for name in ("a", "b")}
    ingest.tables.set_settings("main", ("shop", "b"), TableSettings(partition=("days(missing)",)))
    with pytest.raises(CannotStage, match=r"shop\.b"):
        stage(ground, BatchRange("failed", "main", spans))
    folder = staged_folder(catalog.warehouse("main").root).removeprefix("file://")
    assert [path for path in Path(folder).rglob("*") if path.is_file()] == []
    del spans["shop", "b"]
    assert [
        Path(name.removeprefix("file://")).exists()
        for name in stage(ground, BatchRange("good", "main", spans)).files
    ] == [True]


def test_changes_of_a_dropped_warehouse_do_not_fill_the_journal(opened: Opened) -> None:
    catalog, ingest = opened
    warehouses.create(catalog, "gone", f"{catalog.warehouse('main').root}-gone")
    for name in ("gone", "main"):
        _append(ingest, warehouse=name)
    head = ingest.journal.head("gone")
    ingest.housekeeping.once()
    assert len(ingest.journal.pending("gone")) == 1
    warehouses.drop(catalog, "gone")
    ingest.housekeeping.once()
    assert ingest.journal.pending("gone") == []
    assert pending_totals(ingest.journal.database)[0] == 1
    assert (ingest.journal.head("gone"), ingest.tables.all("gone")) == (head, {})


def test_trouble_is_over_when_nothing_waits(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    _, ingest = opened

    def refuse(cut: BatchRange) -> StagedBatch:
        raise Unavailable("the store is away")

    monkeypatch.setattr(ingest.staging_process, "stage", refuse)
    _append(ingest)
    assert ingest.job_service.lease("w", ["main"], {}, "anonymous") is None
    assert "the store is away" in ingest.landing_status.status("main")["stalled"]
    ingest.journal.trim("main", {("shop", "t"): ingest.journal.head("main")})  # another server was quicker
    assert ingest.landing_status.status("main")["stalled"] is None


def test_a_table_that_cannot_be_staged_is_shown_while_others_land(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog, ingest = opened
    ground = StagingContext(catalog, ingest.journal, ingest.tables)

    def stage_others(cut: BatchRange) -> StagedBatch:
        if ("shop", "bad") in cut.ranges:
            raise CannotStage("shop.bad: a view has this name", ("shop", "bad"))
        return stage(ground, cut)

    monkeypatch.setattr(ingest.staging_process, "stage", stage_others)
    _append(ingest, "shop.bad")
    assert ingest.job_service.lease("w", ["main"], {}, "anonymous") is None
    _append(ingest, "shop.good")
    job = ingest.job_service.lease("w", ["main"], {}, "anonymous")
    assert job is not None
    assert [table["name"] for table in job["tables"]] == ["good"]
    status = ingest.landing_status.status("main")
    assert "a view has this name" in status["stalled"]
    assert status["tables"]["shop.bad"]["stalled"] == "shop.bad: a view has this name"
    assert "stalled" not in status["tables"]["shop.good"]


def test_explain_uses_the_settings_of_a_table_that_does_not_exist_yet(opened: Opened) -> None:
    _, ingest = opened
    ingest.tables.set_settings("main", ("shop", "t"), TableSettings(key=("tenant", "id")))
    body = b'[{"op":"c","after":{"id":1,"tenant":2},"source":{"schema":"shop","table":"t"}}]'
    explained = explain(parse(body, RequestContext()), "main", ingest.landing_status)
    assert explained["tables"][0]["key"] == explained["events"][0]["key"] == ["tenant", "id"]


def test_a_prestaged_batch_is_cut_again_if_it_cannot_be_checked(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog, ingest = opened
    _append(ingest)
    table, head = ("shop", "t"), ingest.journal.head("main")
    file = f"{staged_folder(catalog.warehouse('main').root)}/ahead/0-changes.parquet"
    catalog.files.create(file, b"")
    after = RunningJob("published", "main", 1, {})
    prestaging = ingest.job_service._staging.prestaging
    prestaging.waiting = PrestagedBatch(
        BatchRange("ahead", "main", {table: (0, head)}), StagedBatch([], [], 1, [file]), after
    )
    state = ingest.jobs.state
    monkeypatch.setattr(ingest.jobs, "state", lambda id_: "done" if id_ == "published" else state(id_))

    def die(cut: BatchRange, batch: StagedBatch) -> bool:
        raise Unavailable("the staging process died")

    monkeypatch.setattr(ingest.staging_process, "is_current", die)
    job = ingest.job_service.lease("w", ["main"], {}, "anonymous")
    assert job is not None
    assert (job["id"] != "ahead", job["tables"][0]["events"]) == (True, 1)
    assert not catalog.files.exists(file)
    assert ingest.jobs.state("ahead") is None


def test_an_idle_look_for_a_job_costs_the_same_with_any_number_of_warehouses(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog, ingest = opened
    names = ["main", *(f"w{number}" for number in range(20))]
    for name in names[1:]:
        warehouses.create(catalog, name, None)
    ingest.job_service.lease("w", names, {}, "anonymous")
    count = Counter[str]()
    fetch_all, fetch_one = Database.fetch_all, Database.fetch_one

    def all_(self: Database, statement: Any, params: Any = None) -> Any:
        count["queries"] += 1
        return fetch_all(self, statement, params)

    def one(self: Database, statement: Any, params: Any = None) -> Any:
        count["queries"] += 1
        return fetch_one(self, statement, params)

    monkeypatch.setattr(Database, "fetch_all", all_)
    monkeypatch.setattr(Database, "fetch_one", one)
    assert ingest.job_service.lease("w", names, {}, "anonymous") is None
    assert count["queries"] <= 2


def test_an_append_wakes_requests_that_wait_for_a_job(opened: Opened) -> None:
    _, ingest = opened
    wakeup = ingest.job_service.wakeup
    before = wakeup.count
    _append(ingest)
    assert wakeup.count == before + 1


def test_a_job_that_a_worker_cannot_use_is_shown_and_its_tables_go_alone(opened: Opened) -> None:
    _, ingest = opened
    for table in ("shop.a", "shop.b"):
        _append(ingest, table)
    job = ingest.job_service.lease("w", ["main"], {}, "anonymous")
    assert job is not None
    assert [table["name"] for table in job["tables"]] == ["a", "b"]
    ingest.job_service.fail(job["id"], job["epoch"], "the key column tenant is not there", retry=False)
    assert "the key column tenant is not there" in ingest.landing_status.status("main")["stalled"]
    alone: list[list[str]] = []
    while len(alone) < 2:
        job = ingest.job_service.lease("w", ["main"], {}, "anonymous")
        if job is not None:
            alone.append([table["name"] for table in job["tables"]])
            ingest.job_service.publish(job["id"], job["epoch"], SentCommits([]), "anonymous", {})
    assert alone == [["a"], ["b"]]
    assert ingest.landing_status.status("main")["stalled"] is None


def test_a_batch_is_bounded_in_bytes(opened: Opened) -> None:
    _, ingest = opened
    ingest.cutter._given = replace(ingest.cutter._given, batch_bytes_max=1)
    for number in range(3):
        event = {"sequence": number + 1, "operation": "INSERT", "table": "shop.t", "after": {"id": number}}
        body = orjson.dumps({"events": [{**event, "rowId": str(number), "timestamp": 1}]})
        ingest.journal.submit("main", parse(body, RequestContext(source="s")), priority=1).result()
    events: list[int] = []
    while sum(events) < 3:
        job = ingest.job_service.lease("w", ["main"], {}, "anonymous")
        assert job is not None
        events.append(job["tables"][0]["events"])
        ingest.job_service.publish(job["id"], job["epoch"], SentCommits([]), "anonymous", {})
    assert events == [1, 1, 1]


def test_a_batch_is_cut_so_early_that_it_is_visible_in_time(opened: Opened) -> None:
    _, ingest = opened
    cutter = ingest.cutter
    target_ms = cutter._given.freshness_ms
    for _ in range(50):
        cutter.record_duration(300)
    assert cutter.thresholds.freshness_ms == target_ms - 300
    for _ in range(50):
        cutter.record_duration(60_000)
    assert cutter.thresholds.freshness_ms == 0


def test_a_table_that_always_has_a_batch_is_maintained_now_and_then(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, ingest = opened

    class Maintenance:
        def next_job(self, worker: str, names: Collection[str]) -> dict[str, Any] | None:
            return {"kind": "maintain"}

    _append(ingest)
    monkeypatch.setattr(ingest.job_service, "maintenance", Maintenance())
    said = {"maintenance": "also"}
    job = ingest.job_service.lease("w", ["main"], said, "anonymous")
    assert job is not None
    assert job["kind"] == "commit"
    ingest.job_service.fail(job["id"], job["epoch"], "no", retry=True)
    monkeypatch.setattr(ingest.job_service, "_maintained_s", float("-inf"))
    assert ingest.job_service.lease("w", ["main"], said, "anonymous") == {"kind": "maintain"}
