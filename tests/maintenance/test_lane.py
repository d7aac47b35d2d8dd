"""Jobs of maintenance beside batches, with a worker of a few calls: in the lane, step by step, in turn."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest

from calve.bootstrap import Ingest, open_catalog, open_ingest
from calve.maintaining import open_maintenance
from calve.settings import Settings
from catalog.api.transactions import table_commit
from catalog.errors import Invalid
from catalog.identity.open import OpenIdentity
from catalog.names import Identifier, Namespace, WarehouseRef
from catalog.services import commits, namespaces, tables
from catalog.services.catalog import Catalog
from catalog.services.writes import WriteContext
from ingest.api.jobs import SentCommits
from ingest.change import RequestContext
from ingest.formats.detect import parse
from maintenance.archive import ARCHIVE, DAY_MS
from maintenance.jobs import STEP_BYTES_MAX
from maintenance.service import Maintenance
from tests.harness.documents import SCHEMA
from tests.harness.rest import append_body

SPACE = Namespace(("shop",))
OTHER = Identifier(SPACE, "other")
SMALL_FILES = 100
LOOKS_AT_EACH_LEASE = True
Job = dict[str, Any]


@dataclass
class Lake:
    catalog: Catalog
    ingest: Ingest
    maintenance: Maintenance
    sequence: int = 0

    def append(self, **columns: Any) -> None:
        self.sequence += 1
        event = {
            "sequence": self.sequence,
            "operation": "INSERT",
            "table": "shop.t",
            "rowId": str(self.sequence),
        }
        body = {"events": [{**event, "timestamp": 1, "after": {"id": self.sequence, **columns}}]}
        parsed = parse(orjson.dumps(body), RequestContext(source="s"))
        self.ingest.journal.submit("main", parsed, priority=1).result()

    def lease(self, about: str | None = "also") -> Job | None:
        if LOOKS_AT_EACH_LEASE:
            self.maintenance.jobs._looked_s = 0.0  # else it looks for tables that are due once a second
        said = {"maintenance": about} if about else {}
        return self.ingest.job_service.lease("w", ["main"], said, "anonymous")

    def leased(self, about: str = "also") -> Job:
        until_s = time.monotonic() + 60
        while time.monotonic() < until_s:
            if (job := self.lease(about)) is not None:
                return job
            time.sleep(0.05)
        raise AssertionError("no job within 60 s")

    def publish(self, job: Job, files: int = SMALL_FILES) -> None:
        """Land a batch. The tables have so many small files then."""
        changes = []
        for table in job["tables"]:
            for name, state in table["states"].items():
                body = append_body(state["metadata"])
                body["updates"][0]["snapshot"]["summary"]["total-data-files"] = str(files)
                is_new = {"type": "assert-create"} in state["requirements"]
                changes.append(
                    {
                        "identifier": {"namespace": table["namespace"], "name": name},
                        "requirements": [*state["requirements"], *([] if is_new else body["requirements"])],
                        "updates": [*state["updates"], *body["updates"]],
                    }
                )
        work = SentCommits([table_commit(change) for change in changes])
        self.ingest.job_service.publish(job["id"], job["epoch"], work, "anonymous", {})

    def complete(self, job: Job, **facts: Any) -> None:
        found = self.maintenance.job(job["id"])
        assert found is not None
        given = {name.replace("_", "-"): value for name, value in facts.items()}
        self.maintenance.complete(found, job["epoch"], given)

    def shown(self, name: str) -> dict[str, Any]:
        return self.maintenance.of_table("main", Identifier(SPACE, name))


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lake]:
    # However slow the machine is, no table has waited so long for maintenance that it goes before a batch.
    monkeypatch.setattr("ingest.landing.job_service.MAINTENANCE_EVERY_S", float("inf"))
    settings = Settings(home=tmp_path / "lake", flush_events=1)
    catalog = open_catalog(settings)
    ingest = open_ingest(settings, catalog, OpenIdentity())
    maintenance = open_maintenance(settings, catalog, ingest)
    ingest.job_service.maintenance = maintenance.jobs  # without verification
    try:
        yield Lake(catalog, ingest, maintenance)
    finally:
        ingest.close()
        catalog.database.close()


def land(lake: Lake, files: int = SMALL_FILES, **columns: Any) -> Job:
    lake.append(**columns)
    job = lake.leased()
    assert job["kind"] == "commit"
    lake.publish(job, files)
    return job


def test_a_batch_that_arrives_during_a_step_is_leased_before_the_next_step(lake: Lake) -> None:
    land(lake)
    step = lake.leased()
    assert (step["kind"], step["actions"], step["step-bytes-max"]) == (
        "maintain",
        ["compact"],
        STEP_BYTES_MAX,
    )
    lake.append()
    assert lake.lease(None) is None, "the batch waits for the step"
    # Half of the files are left, so the table is due again. The step took too long.
    lake.complete(step, rewritten_data_files=50, rewritten_bytes=STEP_BYTES_MAX, files_after=0, ms=8_000)
    assert lake.shown(step["name"])["next"] == "compact"
    batch = lake.leased()
    assert (batch["kind"], batch["tables"][0]["name"]) == ("commit", "t")
    lake.publish(batch)
    after = lake.leased()
    assert (after["kind"], after["step-bytes-max"]) == ("maintain", STEP_BYTES_MAX // 8)


def test_no_step_begins_while_a_batch_of_the_table_is_landing(lake: Lake) -> None:
    land(lake)
    first = lake.leased()
    assert {first["name"]} <= {"t", "t__changes"}
    lake.complete(first)
    lake.append()
    batch = lake.leased()
    assert batch["kind"] == "commit"
    assert lake.lease("only") is None, "the mirror, its changes and its rejects share a lane"
    lake.publish(batch)
    assert lake.leased("only")["kind"] == "maintain"


def test_a_table_with_a_batch_at_all_times_is_maintained_between_two_of_them(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lane was not free when the server looked for tables that are due."""
    land(lake)
    lake.append()
    batch = lake.leased()
    assert batch["kind"] == "commit"
    monkeypatch.setattr("ingest.landing.job_service.MAINTENANCE_EVERY_S", 0.0)
    assert lake.lease() is None
    monkeypatch.setattr("maintenance.jobs.LOOK_EVERY_S", float("inf"))
    monkeypatch.setattr("tests.maintenance.test_lane.LOOKS_AT_EACH_LEASE", False)
    lake.append()
    lake.publish(batch)
    step = lake.lease()
    assert step is not None
    assert step["kind"] == "maintain"


def compacted(lake: Lake) -> None:
    """Both tables, so that no compaction is due any more."""
    for _ in range(2):
        job = lake.leased("only")
        assert job["actions"] == ["compact"]
        lake.complete(job, files_after=SMALL_FILES, rewritten_data_files=1)


def test_a_table_that_was_emptied_is_compacted_as_soon_as_a_new_one(lake: Lake) -> None:
    land(lake)
    compacted(lake)
    land(lake, files=1)
    assert lake.lease("only") is None
    land(lake, files=12)
    assert lake.lease("only") is None
    land(lake, files=13)
    step = lake.leased("only")
    assert step["why"] == ["12 new data files since the last compaction"]


def archived(lake: Lake) -> Job:
    """The next step of the archive."""
    job = lake.leased("only")
    assert job["actions"] == [ARCHIVE]
    return job


def test_changes_are_archived_step_by_step_once_for_each_day(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    land(lake)
    compacted(lake)
    today_ms = lake.catalog.now_ms() // DAY_MS * DAY_MS
    monkeypatch.setattr(lake.catalog, "now_ms", lambda: today_ms + 40 * DAY_MS)
    assert lake.maintenance.set_policy("main", {"archive_after_days": 30}, SPACE)["own"] == {
        "archive-after-days": 30
    }
    job = archived(lake)
    described = job["archive"]
    assert (job["name"], described["column"]) == ("t__changes", "_commit_timestamp")
    assert described["before-us"] == (today_ms + 10 * DAY_MS) * 1000
    assert described["sort"] == ["_commit_timestamp", "_order"]
    assert described["path"].endswith("/archive")
    assert described["properties"] == {}
    lake.complete(job, rewritten_data_files=3, rewritten_bytes=2**20, files_left=2, ms=500)
    found = lake.shown("t__changes")
    assert (found["next"], found["health"]["archived-before"]) == (ARCHIVE, None)
    assert found["last"][ARCHIVE]["rewritten-data-files"] == 3
    lake.complete(archived(lake), rewritten_data_files=2, rewritten_bytes=2**20, files_left=0, ms=500)
    found = lake.shown("t__changes")
    assert (found["next"], found["why"]) == (None, [])
    assert found["health"]["archived-before"] is not None
    assert lake.shown("t")["next"] is None, "a mirror has no archive"
    assert lake.lease("only") is None
    monkeypatch.setattr(lake.catalog, "now_ms", lambda: today_ms + 41 * DAY_MS)
    assert archived(lake)["archive"]["before-us"] == (today_ms + 11 * DAY_MS) * 1000


def test_an_archive_on_request_needs_a_policy_and_a_changes_table(lake: Lake) -> None:
    land(lake)
    changes, mirror = Identifier(SPACE, "t__changes"), Identifier(SPACE, "t")
    with pytest.raises(Invalid, match="archive-after-days"):
        lake.maintenance.request("main", changes, ARCHIVE, is_dry_run=False)
    root = lake.catalog.warehouse("main").root
    with pytest.raises(Invalid, match="outside the warehouse"):
        lake.maintenance.set_policy("main", {"archive-location": "file:///elsewhere"})
    lake.maintenance.set_policy("main", {"archive-after-days": 1, "archive-location": f"{root}/cold"})
    with pytest.raises(Invalid, match="name a changes table"):
        lake.maintenance.request("main", mirror, ARCHIVE, is_dry_run=False)
    said = lake.maintenance.request("main", changes, ARCHIVE, is_dry_run=True)
    assert said["state"] == "dry-run"
    assert said["detail"]["why"][0].startswith("changes before ")
    assert lake.maintenance.request("main", changes, ARCHIVE, is_dry_run=False)["state"] == "requested"
    described = archived(lake)["archive"]
    assert described["path"].startswith(f"{root}/cold/shop/t__changes-")
    assert described["properties"] == {"calve.archive.path": described["path"]}


def written_by_another_engine(lake: Lake) -> None:
    """A table that ingest does not own, with many small files."""
    state, context = lake.catalog.state(WarehouseRef("main")), WriteContext("engine")
    namespaces.create(lake.catalog, state, context, SPACE, {})
    made = tables.create(lake.catalog, state, context, OTHER, {"name": OTHER.name, "schema": SCHEMA})
    body = append_body(lake.catalog.documents.parsed(made))
    body["updates"][0]["snapshot"]["summary"]["total-data-files"] = str(SMALL_FILES)
    change = {"identifier": {"namespace": list(SPACE.levels), "name": OTHER.name}, **body}
    commits.commit_tables(lake.catalog, state, context, [table_commit(change)])


def test_a_table_of_another_writer_is_compacted_when_the_writer_is_idle(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rewrite of the files that a MERGE is about to change makes the MERGE fail."""
    written_by_another_engine(lake)
    shown = lake.shown(OTHER.name)
    assert (shown["next"], shown["not_before_ms"]) == ("compact", shown["health"]["written-ms"] + 600_000)
    assert lake.lease("only") is None
    later_ms = shown["not_before_ms"]
    monkeypatch.setattr(lake.catalog, "now_ms", lambda: later_ms)
    assert lake.leased("only")["name"] == OTHER.name


def test_a_table_that_waits_for_its_writer_is_not_read_at_each_look(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    written_by_another_engine(lake)
    assert lake.lease("only") is None
    read = lake.maintenance.jobs._entry
    monkeypatch.setattr(lake.maintenance.jobs, "_entry", lambda *_: pytest.fail("the table is read"))
    assert lake.lease("only") is None
    monkeypatch.setattr(lake.maintenance.jobs, "_entry", read)
    lake.maintenance.set_policy("main", {"quiet-minutes": 0}, SPACE)
    assert lake.leased("only")["name"] == OTHER.name


def test_a_policy_sets_how_long_a_writer_must_be_idle(lake: Lake) -> None:
    written_by_another_engine(lake)
    assert lake.lease("only") is None
    lake.maintenance.set_policy("main", {"quiet-minutes": 0}, SPACE)
    assert lake.leased("only")["name"] == OTHER.name


def test_a_compaction_on_request_waits_for_no_writer(lake: Lake) -> None:
    written_by_another_engine(lake)
    assert lake.lease("only") is None
    lake.maintenance.request("main", OTHER, "compact", is_dry_run=False)
    assert lake.leased("only")["name"] == OTHER.name


def test_rejects_are_sorted_by_their_own_time(lake: Lake) -> None:
    land(lake, n=1)
    land(lake, n={"not": "a number"})
    sorts: dict[str, list[str]] = {}
    while len(sorts) < 3:
        job = lake.leased("only")
        sorts[job["name"]] = job["sort"]
        lake.complete(job)
    assert sorts == {"t": [], "t__changes": ["_commit_timestamp"], "t__rejects": ["_rejected_at"]}
