"""Sources with another history: failovers, restored databases, sources that were made anew; journals too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from click.testing import CliRunner

from calve.bootstrap import journal_mismatches
from calve.cli.journal import command
from calve.startup import StartupError
from catalog.errors import Conflict
from tests.contract.ingest.staging_lake import WAREHOUSE, StagingLake, opened
from tests.harness.postgres import PostgresServer

HOUR = 3_600_000


@pytest.fixture(params=("sqlite", "postgres"))
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StagingLake]:
    settings: dict[str, Any] = {}
    if request.param == "postgres":
        postgres: PostgresServer = request.getfixturevalue("postgres")
        settings["database"] = settings["journal"] = postgres.database()
    with opened(tmp_path, **settings) as found:
        yield found


def mysql(file: int, server: int, row: dict[str, Any], time_ms: int = 1) -> dict[str, Any]:
    source = {
        "name": "my",
        "connector": "mysql",
        "db": "shop",
        "table": "t",
        "file": f"bin.{file:06d}",
        "pos": 4,
        "row": 0,
        "server_id": server,
        "ts_ms": time_ms,
    }
    return {"op": "u", "before": None, "after": row, "source": source}


def postgres(lsn: int, row: dict[str, Any], time_ms: int) -> dict[str, Any]:
    source = {"name": "pg", "schema": "shop", "table": "t", "lsn": lsn, "ts_ms": time_ms}
    return {"op": "u", "before": None, "after": row, "source": source | {"connector": "postgresql"}}


def native(number: int, row: dict[str, Any], time_ms: int) -> dict[str, Any]:
    return {
        "sequence": number,
        "timestamp": time_ms,
        "operation": "INSERT",
        "table": "shop.t",
        "rowId": str(row["id"]),
        "after": row,
    }


def names(lake: StagingLake) -> list[str]:
    return [row["name"] for row in lake.rows()]


def test_the_mirror_follows_a_promoted_mysql_replica(lake: StagingLake) -> None:
    """Its binary log has a lower number. What the old primary sent is not applied again."""
    sent = ((9, 1, "a"), (3, 2, "b"), (9, 1, "a"), (4, 2, "c"), (10, 1, "d"))
    shown = []
    for file, server, name in sent:
        lake.post(mysql(file, server, {"id": 1, "name": name}), key=("id",))
        if lake.ingest.journal.pending(WAREHOUSE):
            lake.land()
        shown += names(lake)
    assert shown == ["a", "b", "b", "c", "d"]
    [(source, state, _)] = lake.ingest.journal.sources(WAREHOUSE)
    assert (source, state.epoch, len(state.history)) == ("my", 2, 2)


def test_a_restored_postgresql_is_held_until_an_epoch_begins(lake: StagingLake) -> None:
    lake.post(postgres(100, {"id": 1, "name": "a"}, HOUR), key=("id",))
    lake.land()
    restored = postgres(50, {"id": 1, "name": "b"}, 2 * HOUR)
    for _ in range(2):
        with pytest.raises(Conflict, match="X-Source-Epoch"):
            lake.post(restored, key=("id",))
    held = lake.call("GET", "/status").json()["heldSources"]["pg"]
    assert "is before" in held["reason"]
    source = lake.call("GET", "/lake/v1/main/sources/pg/epoch").json()
    assert (source["source"], source["epoch"], source["held"]) == ("pg", 0, held["reason"])
    begun = lake.call("POST", "/lake/v1/main/sources/pg/epoch", {"reason": "restored"}).json()
    assert (begun["epoch"], begun["held"], begun["epochs"][0]["reason"]) == (1, None, "restored")
    lake.post(restored, key=("id",))
    lake.land()
    assert names(lake) == ["b"]
    assert lake.call("GET", "/status").json()["heldSources"] == {}


def test_an_epoch_that_a_person_begins_has_identities_of_its_own(lake: StagingLake) -> None:
    """A MySQL server whose log was reset writes other changes at the positions of old ones."""
    lake.post(mysql(1, 7, {"id": 1, "name": "a"}, HOUR), key=("id",))
    lake.post(mysql(2, 7, {"id": 2, "name": "b"}, HOUR), key=("id",))
    lake.land()
    reset = mysql(1, 7, {"id": 1, "name": "c"}, 2 * HOUR)
    with pytest.raises(Conflict):
        lake.post(reset, key=("id",))
    lake.call("POST", "/lake/v1/main/sources/my/epoch", {"reason": "RESET MASTER"})
    assert lake.post(reset, key=("id",)).first is not None
    assert lake.post(reset, key=("id",)).first is None
    lake.land()
    assert names(lake) == ["c", "b"]


def test_a_person_may_say_that_the_history_is_the_same(lake: StagingLake) -> None:
    lake.post(postgres(100, {"id": 1, "name": "a"}, HOUR), key=("id",))
    lake.land()
    late = postgres(50, {"id": 2, "name": "b"}, 2 * HOUR)
    with pytest.raises(Conflict):
        lake.post(late, key=("id",))
    same = lake.call("POST", "/lake/v1/main/sources/pg/epoch", {"same-history": True}).json()
    assert (same["epoch"], same["same-history"]) == (0, True)
    lake.post(late, key=("id",))
    lake.land()
    assert names(lake) == ["a", "b"]
    assert lake.call("POST", "/lake/v1/main/sources/nobody/epoch", {}).status_code == 404


def test_a_source_that_restarts_at_one_is_not_a_duplicate(lake: StagingLake) -> None:
    for number in (1, 2):
        lake.post(native(number, {"id": number, "name": "a"}, number), source="app", key=("id",))
    again = native(1, {"id": 1, "name": "b"}, 3)
    with pytest.raises(Conflict, match="X-Source-Epoch"):
        lake.post(again, source="app", key=("id",))
    assert lake.post(again, source="app", key=("id",), epoch="second").first is not None
    assert lake.post(again, source="app", key=("id",), epoch="second").first is None
    lake.land()
    assert names(lake) == ["b", "a"]


# -- the journal


def _row(number: int) -> dict[str, Any]:
    return native(number, {"id": number, "name": "a"}, number)


def _post(lake: StagingLake, number: int) -> None:
    lake.post(_row(number), source=f"s{number}", key=("id",))


def test_requests_of_a_source_may_arrive_in_another_order_than_its_numbers(lake: StagingLake) -> None:
    """Two threads of a producer: the request with the lower number comes later, and has a later time."""
    lake.post(native(2, {"id": 2, "name": "b"}, 1000), source="app")
    lake.post(native(1, {"id": 1, "name": "a"}, 1001), source="app")
    lake.land()
    assert sorted(names(lake)) == ["a", "b"]


def test_a_lost_journal_counts_on_behind_what_has_landed(tmp_path: Path) -> None:
    with opened(tmp_path) as lake:
        for number in range(1, 4):
            _post(lake, number)
        lake.land()
        head = lake.ingest.journal.head(WAREHOUSE)
    for file in (tmp_path / "lake").glob("journal.db*"):
        file.unlink()
    with opened(tmp_path) as lake:
        assert lake.ingest.journal.head(WAREHOUSE) >= head
        _post(lake, 9)
        lake.ingest.housekeeping.once()
        assert [row.events for row in lake.ingest.journal.pending(WAREHOUSE)] == [1]
        lake.land()
        assert [row["id"] for row in lake.rows()] == [9]


def test_an_older_copy_of_the_journal_is_refused_until_it_is_adopted(tmp_path: Path) -> None:
    folder = tmp_path / "lake"
    with opened(tmp_path) as lake:
        _post(lake, 1)
        lake.land()
    copy = (folder / "journal.db").read_bytes()
    with opened(tmp_path) as lake:
        for number in range(2, 6):
            _post(lake, number)
        lake.land()
        head = lake.ingest.journal.head(WAREHOUSE)
    (folder / "journal.db").write_bytes(copy)
    with pytest.raises(StartupError, match="calve journal adopt"), opened(tmp_path):
        pass
    adopted = CliRunner().invoke(command, ["adopt", "--home", str(folder)])
    assert adopted.exit_code == 0, adopted.output
    with opened(tmp_path) as lake:
        assert lake.ingest.journal.head(WAREHOUSE) >= head
        _post(lake, 9)
        lake.land()
        assert [row["id"] for row in lake.rows()] == [9]


def test_changes_of_another_journal_land_when_it_is_adopted(tmp_path: Path) -> None:
    for name, rows in (("mine", 3), ("other", 1)):
        with opened(tmp_path / name) as lake:
            for number in range(1, 1 + rows):
                _post(lake, number)
            if name == "mine":
                lake.land()
    for file in (tmp_path / "mine" / "lake").glob("journal.db*"):
        file.unlink()
    (tmp_path / "other" / "lake" / "journal.db").rename(tmp_path / "mine" / "lake" / "journal.db")
    with pytest.raises(StartupError, match="another one, and holds 1 changes"), opened(tmp_path / "mine"):
        pass
    adopted = CliRunner().invoke(command, ["adopt", "--home", str(tmp_path / "mine" / "lake")])
    assert adopted.exit_code == 0, adopted.output
    with opened(tmp_path / "mine") as lake:
        lake.ingest.housekeeping.once()
        lake.land()
        assert [row["id"] for row in lake.rows()] == [1]


def test_an_older_copy_of_the_database_is_noticed(tmp_path: Path) -> None:
    with opened(tmp_path) as lake:
        _post(lake, 1)
        lake.land()
        assert journal_mismatches(lake.catalog, lake.ingest.journal) == []

        def age(connection: sa.Connection) -> None:
            connection.execute(sa.text("UPDATE landing_tables SET landed_id = 0"))
            connection.execute(sa.text("UPDATE landing_journals SET head = 0"))

        lake.catalog.database.write(age)
        [found] = journal_mismatches(lake.catalog, lake.ingest.journal)
        assert "the catalog's database is an older copy" in found.reason
