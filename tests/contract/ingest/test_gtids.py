"""Sources with GTIDs: the log of a new primary has changes of the old one at other positions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from catalog.errors import Conflict
from tests.contract.ingest.staging_lake import WAREHOUSE, StagingLake, opened

MYSQL = ("aaaaaaaa-0000-0000-0000-000000000001:{}", "bbbbbbbb-0000-0000-0000-000000000002:{}")
MARIADB = ("0-1-{}", "0-2-{}")


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[StagingLake]:
    with opened(tmp_path) as found:
        yield found


def change(gtid: str, file: int, pos: int, name: str, server: int = 1, **more: Any) -> dict[str, Any]:
    """An update of one row, as Debezium sends it. `server` is the one that made the change first."""
    source = {
        "name": "my",
        "connector": "mariadb" if gtid.startswith("0-") else "mysql",
        "db": "shop",
        "table": "t",
        "server_id": server,
        "gtid": gtid,
        "file": f"bin.{file:06d}",
        "pos": pos,
        "row": 0,
        "ts_ms": 1_000,
    }
    return {"op": "u", "before": None, "after": {"id": 1, "name": name}, "source": source | more}


def names(lake: StagingLake) -> list[str]:
    if lake.ingest.journal.pending(WAREHOUSE):
        lake.land()
    return [row["name"] for row in lake.rows()]


@pytest.mark.parametrize(("first", "second"), [MARIADB, MYSQL], ids=["mariadb", "mysql"])
def test_changes_of_the_old_primary_in_the_log_of_the_new_one(
    lake: StagingLake, first: str, second: str
) -> None:
    """A replica writes what it receives into its own log, with the id of the server that made the change."""
    lake.post(change(first.format(1), 9, 100, "a"), key=("id",))
    assert names(lake) == ["a"]
    lake.post(change(first.format(2), 1, 500, "b"), key=("id",))
    assert names(lake) == ["b"]
    lake.post(change(second.format(3), 1, 700, "c", server=2), key=("id",))
    assert names(lake) == ["c"]
    [(source, state, _)] = lake.ingest.journal.sources(WAREHOUSE)
    assert (source, state.epoch, len(state.history)) == ("my", 1, 1)


@pytest.mark.parametrize(("first", "second"), [MARIADB, MYSQL], ids=["mariadb", "mysql"])
def test_another_change_at_the_same_place_of_another_log(lake: StagingLake, first: str, second: str) -> None:
    """Logs of a primary and its replica are nearly the same: a file and a position are no identity."""
    lake.post(change(first.format(1), 1, 100, "a"), key=("id",))
    assert lake.post(change(first.format(2), 1, 100, "b"), key=("id",)).duplicates == frozenset()
    assert names(lake) == ["b"]
    assert lake.post(change(first.format(2), 1, 100, "b"), key=("id",)).duplicates == {0}


@pytest.mark.parametrize(("first", "second"), [MARIADB, MYSQL], ids=["mariadb", "mysql"])
def test_what_the_old_primary_sent_is_not_newer_when_it_comes_again(
    lake: StagingLake, first: str, second: str
) -> None:
    lake.post(change(first.format(1), 9, 100, "a"), key=("id",))
    lake.post(change(second.format(2), 1, 100, "b", server=2), key=("id",))
    assert names(lake) == ["b"]
    lake.post(change(first.format(1), 9, 100, "a"), key=("id",))
    assert names(lake) == ["b"]
    lake.post(change(first.format(1), 1, 50, "a"), key=("id",))  # the same from the log of the new primary
    assert names(lake) == ["b"]
    lake.post(change(second.format(3), 1, 300, "c", server=2), key=("id",))
    assert names(lake) == ["c"]
    assert lake.ingest.journal.sources(WAREHOUSE)[0][1].epoch == 1


@pytest.mark.parametrize(("first", "second"), [MARIADB, MYSQL], ids=["mariadb", "mysql"])
def test_a_request_with_changes_of_both_logs(lake: StagingLake, first: str, second: str) -> None:
    """Debezium connects to the new primary by itself, if an address stands for both."""
    lake.post(
        change(first.format(1), 9, 100, "a"),
        change(first.format(2), 1, 500, "b"),
        change(second.format(3), 1, 700, "c", server=2),
        key=("id",),
    )
    assert names(lake) == ["c"]


def test_back_to_the_first_server(lake: StagingLake) -> None:
    sent = [("0-1-1", 9, 1, "a"), ("0-2-2", 3, 2, "b"), ("0-1-3", 10, 1, "c"), ("0-1-4", 11, 1, "d")]
    for gtid, file, server, name in sent:
        lake.post(change(gtid, file, 100, name, server=server), key=("id",))
        assert names(lake) == [name]


@pytest.mark.parametrize(("first", "second"), [MARIADB, MYSQL], ids=["mariadb", "mysql"])
def test_a_transaction_that_goes_on_in_another_log(lake: StagingLake, first: str, second: str) -> None:
    """Debezium had sent a part of it when both it and the primary died."""
    lake.post(change(first.format(1), 9, 100, "a"), key=("id",))
    lake.post(change(first.format(2), 9, 200, "b"), key=("id",))
    assert names(lake) == ["b"]
    lake.post(change(first.format(2), 1, 300, "c"), key=("id",))
    assert names(lake) == ["c"]


@pytest.mark.parametrize(("first", "second"), [MARIADB, MYSQL], ids=["mariadb", "mysql"])
def test_a_restart_at_the_same_server_begins_no_epoch(lake: StagingLake, first: str, second: str) -> None:
    sent = [change(first.format(number), 9, 100 * number, str(number)) for number in range(1, 7)]
    for batch in (sent[:3], sent[1:3], sent[2:4], sent[:5], sent[5:]):
        lake.post(*batch, key=("id",))
    assert names(lake) == ["6"]
    assert lake.ingest.journal.sources(WAREHOUSE)[0][1].epoch == 0


def test_a_new_primary_that_lacks_changes_is_held(lake: StagingLake) -> None:
    """The servers of a domain of MariaDB count together: the number 2 was used for another change."""
    lake.post(change("0-1-1", 9, 100, "a"), change("0-1-2", 9, 200, "lost"), key=("id",))
    assert names(lake) == ["lost"]
    other = change("0-2-2", 1, 100, "b", server=2)
    with pytest.raises(Conflict, match="lacks changes"):
        lake.post(other, key=("id",))
    assert "0-2-2" in lake.call("GET", "/status").json()["heldSources"]["my"]["reason"]
    lake.call("POST", "/lake/v1/main/sources/my/epoch", {"reason": "failover"})
    lake.post(other, key=("id",))
    assert names(lake) == ["b"]


def test_a_truncate_does_not_wait_for_the_end_of_its_transaction(lake: StagingLake) -> None:
    """Debezium announces its beginning and never its end. A truncate is a transaction of its own."""
    lake.post(change("0-1-1", 1, 100, "a"), key=("id",))
    assert names(lake) == ["a"]
    lake.post({"status": "BEGIN", "id": "0-1-2", "event_count": None, "data_collections": None, "ts_ms": 1})
    truncate = change("0-1-2", 1, 200, "")
    transaction = {"id": "0-1-2", "total_order": 1, "data_collection_order": 1}
    lake.post(truncate | {"op": "t", "after": None, "transaction": transaction}, key=("id",))
    status = lake.call("GET", "/status").json()["landing"]
    assert names(lake) == [], status
