"""The API of maintenance: policies, health, expiry on request, orphans."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.clients import pyiceberg_client
from tests.harness.rest import Rest
from tests.harness.stacks import STACKS, Stack, StackName, Stacks

SCHEMA = pa.schema([("id", pa.int64())])
HOUR_S = 3600


@pytest.fixture
def rest(stack: Stack) -> Rest:
    return Rest(stack.url)


def table_path(namespace: str, table: str, rest: str) -> str:
    return f"main/namespaces/{namespace}/tables/{table}/{rest}"


def test_the_nearest_policy_holds(rest: Rest) -> None:
    namespace = rest.fresh_namespace()
    rest.create(namespace, "t")
    own = f"main/namespaces/{namespace}/maintenance"
    assert rest.lake("PUT", own, json={"small-files-min": 5, "compact": False}).status_code == 200
    set_here = rest.lake("PUT", table_path(namespace, "t", "maintenance"), json={"small-files-min": 3})
    assert set_here.json()["policy"]["small-files-min"] == 3
    found = rest.lake("GET", table_path(namespace, "t", "maintenance")).json()
    assert (found["policy"]["small-files-min"], found["policy"]["compact"]) == (3, False)
    assert found["own"] == {"small-files-min": 3}
    assert rest.lake("GET", own).json()["policy"]["small-files-min"] == 5


@pytest.mark.parametrize(
    "values",
    [
        {"nonsense": 1},
        {"small-files-min": 0},
        {"small-files-min": "12"},
        {"compact": 1},
        {"orphan-age-hours": 23},
        {"archive-after-days": -1},
        {"archive-compression-level": 99},
        {"archive-location": "file:///etc"},
        {"kept-moments": "all:10m"},
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(rest: Rest, values: dict[str, Any]) -> None:
    namespace = rest.fresh_namespace()
    answer = rest.lake("PUT", f"main/namespaces/{namespace}/maintenance", json=values)
    assert answer.status_code == 400, answer.text


def test_a_table_that_is_no_changes_table_has_no_archive(rest: Rest) -> None:
    namespace = rest.fresh_namespace()
    rest.create(namespace, "t")
    policy = rest.lake("PUT", f"main/namespaces/{namespace}/maintenance", json={"archive-after-days": 30})
    assert policy.json()["policy"]["archive-after-days"] == 30
    path = table_path(namespace, "t", "archive")
    shown = rest.lake("POST", path, params={"dry-run": "true"})
    assert (shown.status_code, shown.json()["state"], shown.json()["detail"]["why"]) == (200, "dry-run", [])
    refused = rest.lake("POST", path)
    assert refused.status_code == 400
    assert "name a changes table" in refused.json()["error"]["message"]
    assert rest.lake("GET", table_path(namespace, "t", "maintenance")).json()["next"] is None


def test_the_health_of_a_table_says_what_is_next_and_why(rest: Rest, stack: Stack) -> None:
    namespace = rest.fresh_namespace()
    table = pyiceberg_client.catalog(stack).create_table(f"{namespace}.t", SCHEMA)
    assert rest.lake("GET", table_path(namespace, "t", "maintenance")).json()["next"] is None
    rest.lake("PUT", table_path(namespace, "t", "maintenance"), json={"small-files-min": 2})
    for number in range(2):
        table.append(pa.table({"id": [number]}))
    found = rest.lake("GET", table_path(namespace, "t", "maintenance")).json()
    assert (found["next"], found["why"]) == ("compact", ["2 new data files since the last compaction"])
    assert found["health"]["data-files"] == 2
    everything = rest.lake("GET", "main/maintenance").json()
    assert [one for one in everything["tables"] if one["namespace"] == [namespace]] == [found]
    assert everything["kept-moments"]["policy"].startswith("all:")


def test_nothing_of_the_last_minutes_expires(rest: Rest) -> None:
    namespace = rest.fresh_namespace()
    rest.create(namespace, "t")
    for _ in range(3):
        rest.append(namespace, "t")
    answer = rest.lake("POST", table_path(namespace, "t", "expire"))
    assert answer.json() == {"state": "nothing-to-do", "detail": {}}
    assert len(rest.load(namespace, "t")["metadata"]["snapshots"]) == 3


def test_a_missing_table_is_404(rest: Rest) -> None:
    namespace = rest.fresh_namespace()
    for method, what in (
        ("GET", "maintenance"),
        ("POST", "compact"),
        ("POST", "expire"),
        ("POST", "remove-orphans"),
    ):
        assert rest.lake(method, table_path(namespace, "none", what)).status_code == 404
    assert rest.lake("GET", "main/namespaces/none/maintenance").status_code == 404


ORPHANS = {"CALVE_KEPT_MOMENTS": "all:1s, 1s:30d", "CALVE_MAINTENANCE_INTERVAL_S": "0.2"}


@pytest.mark.parametrize("stack_name", STACKS)
def test_orphans_go_and_every_live_file_stays(stack_name: StackName, stacks: Stacks, tmp_path: Path) -> None:
    """The files are local, so that their age can be set; the database is that of the stack."""
    settings = {"CALVE_WAREHOUSE_ROOT": f"file://{tmp_path}/warehouse", **ORPHANS}
    with stacks.started(stack_name, tmp_path, settings) as stack:
        run = OrphanRun(stack, tmp_path / "warehouse")
        run.by_itself(planted=1000)
        run.on_request(planted=30)


@pytest.mark.parametrize("kind", ["snap-*.avro", "*-m0.avro"])
def test_no_file_is_an_orphan_while_a_manifest_is_missing(stacks: Stacks, tmp_path: Path, kind: str) -> None:
    """It may be restored, and with it the files that only it names."""
    settings = {"CALVE_WAREHOUSE_ROOT": f"file://{tmp_path}/warehouse", **ORPHANS}
    with stacks.started("embedded", tmp_path, settings) as stack:
        run = OrphanRun(stack, tmp_path / "warehouse")
        orphans = run.plant(2)
        lost = [(path, tmp_path / path.name) for path in run.home.rglob(kind)]
        assert lost
        for path, away in lost:
            path.rename(away)
        refused = run.rest.lake(
            "POST", table_path("orphans", "t", "remove-orphans"), params={"dry-run": "false"}
        )
        assert refused.status_code == 409, refused.text
        assert "cannot be read" in refused.json()["error"]["message"]
        assert all(orphan.exists() for orphan in orphans)
        for path, away in lost:
            away.rename(path)
        assert all(file.exists() for file in run.live)
        run.on_request(planted=2)


class OrphanRun:
    """A table with every kind of live file, and orphans among them."""

    def __init__(self, stack: Stack, folder: Path) -> None:
        self.stack = stack
        self.folder = folder
        self.rest = Rest(stack.url)

        self.by_itself_is(on=False)
        self.live = self.live_files()
        self.home = next(path for path in self.folder.rglob("data") if path.is_dir()).parent

    def by_itself_is(self, *, on: bool) -> None:
        assert self.rest.lake("PUT", "main/maintenance", json={"remove-orphans": on}).status_code == 200

    def plant(self, count: int) -> list[Path]:
        folders = (self.home / "data", self.home / "metadata")
        orphans = [folders[number % 2] / f"orphan-{number}.parquet" for number in range(count)]
        for orphan in orphans:
            orphan.write_bytes(b"x" * 100)
        self.age(100 * 24 * HOUR_S)
        self.young = self.home / "data" / "young.parquet"
        self.young.write_bytes(b"young")
        return orphans

    def by_itself(self, planted: int) -> None:
        orphans = self.plant(planted)
        dry = self.rest.lake("POST", table_path("orphans", "t", "remove-orphans")).json()
        assert (dry["state"], dry["detail"]["orphans"]) == ("dry-run", planted), dry
        assert all(orphan.exists() for orphan in orphans)
        self.by_itself_is(on=True)
        path = table_path("orphans", "t", "maintenance")
        until_s = time.monotonic() + 120
        while "remove-orphans" not in (last := self.rest.lake("GET", path).json()["last"]):
            assert time.monotonic() < until_s, "the orphans were not removed in time"
            time.sleep(0.1)
        assert last["remove-orphans"]["deleted"] == planted, last
        self.only_orphans_are_gone(orphans)

    def on_request(self, planted: int) -> None:
        """A table is searched by itself once a day, so these orphans are left for the request."""
        orphans = self.plant(planted)
        path = table_path("orphans", "t", "remove-orphans")
        done = self.rest.lake("POST", path, params={"dry-run": "false"}).json()
        assert (done["state"], done["detail"]["deleted"]) == ("done", planted), done
        self.only_orphans_are_gone(orphans)

    def only_orphans_are_gone(self, orphans: list[Path]) -> None:
        assert not any(orphan.exists() for orphan in orphans)
        assert all(file.exists() for file in [*self.live, self.young])
        self.reads_everything()

    def live_files(self) -> list[Path]:
        catalog = pyiceberg_client.catalog(self.stack)
        catalog.create_namespace("orphans")
        self.table = catalog.create_table("orphans.t", SCHEMA)
        for number in range(3):
            self.table.append(pa.table({"id": [number]}))
        now = self.rest.call("GET", "/v1/config", params={"warehouse": "main@now"})  # the moment is pinned
        self.number = int(now.headers["Calve-Moment"])
        self.table.overwrite(pa.table({"id": [10]}))
        self.statistics()
        self.rest.open_transaction("inside")
        inside = pyiceberg_client.catalog(self.stack, "main~inside").load_table("orphans.t")
        inside.append(pa.table({"id": [99]}))
        return [path for path in self.folder.rglob("*") if path.is_file()]

    def statistics(self) -> None:
        """A statistics file that the table names."""
        metadata = self.rest.load("orphans", "t")["metadata"]
        file = self.folder / "orphans" / Path(metadata["location"]).name / "metadata" / "numbers.stats"
        file.write_bytes(b"PFA1" * 10)
        named = {
            "snapshot-id": metadata["current-snapshot-id"],
            "statistics-path": f"file://{file}",
            "file-size-in-bytes": 40,
            "file-footer-size-in-bytes": 4,
            "blob-metadata": [],
        }
        update = {"action": "set-statistics", "snapshot-id": named["snapshot-id"], "statistics": named}
        answer = self.rest.commit("orphans", "t", {"requirements": [], "updates": [update]})
        assert answer.status_code == 200, answer.text

    def age(self, seconds: float) -> None:
        then = time.time() - seconds
        for path in self.folder.rglob("*"):
            if path.is_file():
                os.utime(path, (then, then))

    def reads_everything(self) -> None:
        assert pyiceberg_client.rows(self.table.refresh()) == [(10,)]
        past = pyiceberg_client.catalog(self.stack, f"main@{self.number}").load_table("orphans.t")
        assert pyiceberg_client.rows(past) == [(0,), (1,), (2,)]
        inside = pyiceberg_client.catalog(self.stack, "main~inside").load_table("orphans.t")
        assert pyiceberg_client.rows(inside) == [(10,), (99,)]
