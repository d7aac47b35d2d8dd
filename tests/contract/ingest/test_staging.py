"""What staging makes of acknowledged changes, from the bytes of a request to the staged rows."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
import sqlalchemy as sa

from catalog.errors import CommitFailed
from ingest.api.dead_letters import _changes_of, _context, replay
from ingest.change import Change, Declared
from ingest.landing import housekeeping
from ingest.sources.hiding import hide
from ingest.sources.rules import TableRules
from ingest.store.jobs import LostLease
from ingest.store.schema import jobs, landing_tables
from ingest.store.tables import TableAdvance, land
from tests.contract.ingest.staging_lake import WAREHOUSE, StagingLake, opened, staged_rows
from tests.harness.postgres import PostgresServer


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[StagingLake]:
    with opened(tmp_path) as found:
        yield found


@pytest.fixture(params=("sqlite", "postgres"))
def any_lake(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StagingLake]:
    settings: dict[str, Any] = {}
    if request.param == "postgres":
        postgres: PostgresServer = request.getfixturevalue("postgres")
        settings["database"] = settings["journal"] = postgres.database()
    with opened(tmp_path, **settings) as found:
        yield found


def debezium(operation: str, after: dict[str, Any] | None, **more: Any) -> dict[str, Any]:
    source = {"name": "pg", "db": "d", "schema": "shop", "table": "t", **more.pop("source", {})}
    return {"op": operation, "before": None, "after": after, "source": source, "ts_ms": 1, **more}


def test_a_source_and_a_position_with_nul_land_in_either_database(any_lake: StagingLake) -> None:
    log = {"name": "my\0sql", "connector": "mysql", "file": "bin\0log", "pos": 4, "row": 0}
    any_lake.post(debezium("c", {"id": 1}, source=log), key=("id",))
    any_lake.post(debezium("r", {"id": 2}, source=log | {"table": "u"}), key=("id",))
    any_lake.land()
    [mark, *_] = any_lake.ingest.tables.watermarks(WAREHOUSE)
    assert mark.position.startswith("bin\N{SYMBOL FOR NULL}log/")
    any_lake.post(debezium("u", {"id": 1, "x": "new"}, source=log | {"pos": 5}), key=("id",))
    any_lake.post(debezium("u", {"id": 1, "x": "old"}, source=log | {"pos": 3}), key=("id",))
    job = any_lake.land()
    assert [row["x"] for row in staged_rows(job, "t")] == ["old", "new"]
    assert job["tables"][0]["late"] is True


# -- late and repeated changes


def native(sequence: int, row: dict[str, Any], operation: str = "UPDATE") -> dict[str, Any]:
    event = {"sequence": sequence, "timestamp": 1_763_280_000_000 + sequence, "operation": operation}
    return event | {"table": "shop.t", "rowId": str(row["id"]), "after": row}


def test_a_late_change_gives_the_values_that_newer_ones_left_out(lake: StagingLake) -> None:
    """Here a dead letter: it set a large value, and the update after it did not send it again."""
    lake.post(native(1, {"id": 1, "n": 1, "big": "old"}, "INSERT"), source="s")
    lake.post(native(2, {"id": 1, "n": "many", "big": "new"}), source="s")
    lake.post(native(3, {"id": 1, "n": 3}), source="s")
    while lake.ingest.journal.pending(WAREHOUSE):
        lake.land()
    assert lake.rows("t") == [{"id": 1, "n": 3, "big": "old"}]
    [letter] = lake.letters()
    event = orjson.loads(letter.original)
    event["after"]["n"] = 2
    lake.ingest.journal.dead_letters.fix(letter.id, orjson.dumps(event))
    assert replay(lake.ingest.journal, WAREHOUSE, lake.letters()) == 1
    assert lake.land()["tables"][0]["late"] is True
    assert lake.rows("t") == [{"id": 1, "n": 3, "big": "new"}]


def test_a_row_does_not_get_a_large_value_of_the_row_that_took_its_key(lake: StagingLake) -> None:
    """Row 7 gets the key of row 1, and lands before the earlier change that freed it."""
    rows = ({"id": 1, "name": "y", "big": "Y"}, {"id": 7, "name": "x", "big": "X"})
    lake.post(*(native(number, row, "INSERT") for number, row in enumerate(rows, 1)), source="s")
    lake.land()
    lake.post({**native(4, {"id": 1, "name": "x"}), "before": {"id": 7}}, source="s")
    lake.land()
    assert lake.rows("t") == [{"id": 1, "name": "x", "big": "X"}]
    url = f"/lake/v1/{WAREHOUSE}/namespaces/shop/tables/t/ingest"
    assert lake.call("GET", url).json()["state"]["doubt"] is None
    lake.post({**native(3, {"id": 3, "name": "y"}), "before": {"id": 1}}, source="s")
    lake.land()
    assert lake.rows("t") == [{"id": 1, "name": "x", "big": "X"}, {"id": 3, "name": "y", "big": None}]
    assert "are not known any more" in lake.call("GET", url).json()["state"]["doubt"]


def test_a_mirror_is_in_doubt_when_a_large_value_came_too_late_to_be_known(lake: StagingLake) -> None:
    """Row 1 gets the key 2. This comes after a change of row 2 that did not send the large value either."""
    lake.post(native(1, {"id": 1, "name": "y", "big": "Y"}, "INSERT"), source="s")
    lake.land()
    lake.post(native(4, {"id": 2, "name": "y4"}), source="s")
    lake.land()
    lake.post({**native(3, {"id": 2, "name": "y3"}), "before": {"id": 1}}, source="s")
    lake.land()
    assert lake.rows("t") == [{"id": 2, "name": "y4", "big": None}]
    url = f"/lake/v1/{WAREHOUSE}/namespaces/shop/tables/t/ingest"
    assert "are not known any more" in lake.call("GET", url).json()["state"]["doubt"]


def test_a_row_that_a_late_truncate_leaves_keeps_its_large_value(lake: StagingLake) -> None:
    lake.post(native(1, {"id": 1, "n": 1, "big": "x"}, "INSERT"), source="s")
    lake.post(native(3, {"id": 2, "n": 1, "big": "y"}, "INSERT"), source="s")
    while lake.ingest.journal.pending(WAREHOUSE):
        lake.land()
    truncate = {**native(2, {"id": ""}, "TRUNCATE"), "after": None}
    lake.post(truncate, native(4, {"id": 2, "n": 2}), native(5, {"id": 1, "n": 2}), source="s")
    lake.land()
    assert lake.rows("t") == [{"id": 1, "n": 2, "big": None}, {"id": 2, "n": 2, "big": "y"}]


def test_a_late_change_moves_no_watermark_back(lake: StagingLake) -> None:
    """So a second late change is recognised as late, too."""
    shown = []
    for number in (3, 2, 1):
        lake.post(native(number, {"id": 1, "n": number}), source="s")
        lake.land()
        shown += [row["n"] for row in lake.rows("t")]
    assert shown == [3, 3, 3]
    [watermark] = lake.ingest.tables.watermarks(WAREHOUSE)
    assert int(watermark.position, 16) == 3


def test_a_batch_does_not_land_on_a_table_that_has_moved_on(lake: StagingLake) -> None:
    lake.post(native(1, {"id": 1}), source="s")
    lake.land()
    lake.post(native(2, {"id": 1}), source="s")
    job = lake.lease()
    ahead = sa.update(landing_tables).values(landed_id=landing_tables.c.landed_id + 1)
    lake.catalog.database.write(lambda connection: connection.execute(ahead))
    with pytest.raises(CommitFailed, match="has landed beyond"):
        lake.publish(job)


def test_a_worker_without_its_lease_cannot_give_the_job_back(lake: StagingLake) -> None:
    lake.post(native(1, {"id": 1}), source="s")
    first = lake.lease()
    over = sa.update(jobs).values(lease_ends_ms=0)
    lake.catalog.database.write(lambda connection: connection.execute(over))
    second = lake.lease()
    assert (second["id"], second["epoch"]) == (first["id"], first["epoch"] + 1)
    with pytest.raises(LostLease):
        lake.ingest.job_service.fail(first["id"], first["epoch"], "too late", retry=False)
    lake.publish(second)


def test_a_repeat_without_a_position_is_recognised_when_its_identity_was_forgotten(tmp_path: Path) -> None:
    with opened(tmp_path, deduplication_window_ms=0) as lake:
        for event in (native(1, {"id": 1, "x": "old"}), native(2, {"id": 1, "x": "new"})):
            lake.post(event)
            lake.land()
        lake.post(native(1, {"id": 1, "x": "old"}))
        assert lake.land()["tables"][0]["late"] is True
        assert lake.rows("t") == [{"id": 1, "x": "new"}]


def test_a_mirror_without_changes_is_in_doubt_when_changes_come_late(lake: StagingLake) -> None:
    url = f"/lake/v1/{WAREHOUSE}/namespaces/shop/tables/t/ingest"
    assert lake.call("PUT", url, {"mode": "mirror"}).is_success
    for sequence in (2, 3):
        lake.post(native(sequence, {"id": 1, "x": sequence}), source="s")
        lake.land()
    assert lake.call("GET", url).json()["state"]["doubt"] is None
    lake.post(native(1, {"id": 1, "x": 1}), source="s")
    lake.land()
    assert "keeps no changes table" in lake.call("GET", url).json()["state"]["doubt"]
    lake.post(native(4, {"id": 1, "x": 4}), source="s")
    lake.land()
    assert lake.call("GET", url).json()["state"]["doubt"] is not None
    assert "in-doubt" in lake.ingest.landing_status.status(WAREHOUSE)["tables"]["shop.t"]


def test_a_column_that_cannot_be_stored_is_named_in_the_status(lake: StagingLake) -> None:
    lake.post(native(1, {"id": 1, "_position": 7, "_file": "x", "n": 1}), source="s")
    lake.land()
    assert lake.rows("t") == [{"id": 1, "n": 1}]
    notice = lake.ingest.landing_status.status(WAREHOUSE)["tables"]["shop.t"]["notice"]
    assert notice.startswith('not stored: column "_file": ')
    assert 'column "_position": ' in notice
    lake.post(native(2, {"id": 1, "n": 2}), source="s")
    lake.land()
    assert "notice" not in lake.ingest.landing_status.status(WAREHOUSE)["tables"]["shop.t"]


# -- defaults of new columns


def declared(lsn: int, row: dict[str, Any], **columns: Any) -> dict[str, Any]:
    """Debezium's event with the schema of its row: for each column a type, or a type and a default."""
    fields = []
    for name, given in columns.items():
        type_, *default = given if isinstance(given, tuple) else (given,)
        field = {"field": name, "type": type_, "optional": True}
        fields.append(field | ({"default": default[0]} if default else {}))
    schema = {"type": "struct", "fields": [{"field": "after", "type": "struct", "fields": fields}]}
    envelope = debezium("c", row, source={"lsn": lsn, "connector": "postgresql"})
    return {"schema": schema, "payload": envelope}


@pytest.mark.parametrize("version", [2, 3])
def test_old_rows_have_the_default_of_a_new_column_in_format_3(lake: StagingLake, version: int) -> None:
    url = f"/lake/v1/{WAREHOUSE}/namespaces/shop/tables/t/ingest"
    assert lake.call("PUT", url, {"format-version": version}).is_success
    lake.post(declared(1, {"id": 1, "a": 1}, id="int64", a=("int32", 5)), key=("id",))
    lake.land()
    new = {"n": ("int32", 7), "x": ("string", "none"), "ratio": ("double", 1), "plain": "string"}
    row = {"id": 2, "a": 1, "n": 8, "x": "y", "ratio": 2.5, "plain": "z"}
    lake.post(declared(2, row, id="int64", a="int32", **new), key=("id",))
    lake.land()
    for table in ("t", "t__changes"):
        metadata = lake.call("GET", f"/v1/{WAREHOUSE}/namespaces/shop/tables/{table}").json()["metadata"]
        schema = next(s for s in metadata["schemas"] if s["schema-id"] == metadata["current-schema-id"])
        found = {
            field["name"]: (field["initial-default"], field["write-default"])
            for field in schema["fields"]
            if "initial-default" in field
        }
        assert found == ({"n": (7, 7), "x": ("none",) * 2, "ratio": (1.0, 1.0)} if version == 3 else {})


def test_defaults_of_hidden_columns_are_not_stored() -> None:
    rules = TableRules(("shop", "t"), is_excluded=False, dropped=frozenset({"a"}), hashed=frozenset({"b"}))
    types = dict.fromkeys(("id", "a", "b", "c"), "string")
    change = Change(0, ("shop", "t"), "insert", after={"id": "1", "a": "x", "b": "y", "c": "z"})
    change.declared = Declared(types, defaults=dict.fromkeys(types, "secret"))
    hidden = hide(change, rules, b"salt")
    assert hidden.declared is not None
    assert set(hidden.declared.defaults) == {"id", "c"}


# -- dead letters

SCHEMA = {
    "type": "struct",
    "fields": [
        {
            "field": "after",
            "type": "struct",
            "fields": [
                {"field": "id", "type": "int64", "optional": False},
                {"field": "at", "type": "int64", "name": "io.debezium.time.MicroTime"},
                {"field": "bits", "type": "bytes", "name": "io.debezium.data.Bits"},
                {"field": "n", "type": "int32"},
            ],
        }
    ],
}


def typed(row: dict[str, Any], lsn: int) -> dict[str, Any]:
    envelope = debezium("u", row, source={"lsn": lsn, "connector": "postgresql"})
    return {"schema": SCHEMA, "payload": envelope}


def test_a_replay_gives_what_the_first_try_would_have_given(any_lake: StagingLake) -> None:
    """The types that the producer declared stay with the letter, also when the event is fixed by hand."""
    row = {"id": 1, "at": 45_296_789_012, "bits": "AwI=", "n": 1}
    any_lake.post(typed(row, 10), key=("id",))
    good = staged_rows(any_lake.land(), "t")[0]
    any_lake.post(typed({**row, "n": "many"}, 11), typed({**row, "n": "none"}, 12), key=("id",))
    any_lake.land()
    unchanged, fixed = any_lake.letters()
    event = orjson.loads(fixed.original)
    event["after"]["n"] = 3
    any_lake.ingest.journal.dead_letters.fix(fixed.id, orjson.dumps(event))
    assert [change.declared is not None for change in _changes_of(unchanged)] == [True]
    assert replay(any_lake.ingest.journal, WAREHOUSE, any_lake.letters()[1:]) == 1
    [again] = staged_rows(any_lake.land(), "t")
    assert {name: again[name] for name in ("id", "at", "bits")} == {
        name: good[name] for name in ("id", "at", "bits")
    }
    assert again["n"] == 3


def test_dead_letters_are_open_when_their_batch_is_published(any_lake: StagingLake) -> None:
    row = {"id": 1, "n": 1}
    any_lake.post(typed(row, 10), typed({"id": None}, 11), key=("id",))
    job = any_lake.lease()
    assert any_lake.letters() == []
    any_lake.ingest.job_service.fail(job["id"], job["epoch"], "no", retry=False)
    assert any_lake.ingest.journal.dead_letters.staged() == []
    any_lake.land()
    assert [letter.state for letter in any_lake.letters()] == ["open"]


def test_letters_of_a_publish_that_a_crash_interrupted_are_opened(
    lake: StagingLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.post(typed({"id": None}, 11), key=("id",))
    with monkeypatch.context() as patched:
        patched.setattr(lake.ingest.job_service, "_after", lambda job, landing: None)
        lake.land()
    assert lake.letters() == []
    lake.ingest.housekeeping.once()
    assert [letter.state for letter in lake.letters()] == ["open"]
    lake.post(typed({"id": None}, 12), key=("id",))
    job = lake.lease()
    lake.ingest.jobs.discard(lake.ingest.job_service.get(job["id"]))  # and the letters stay behind
    lake.ingest.housekeeping.once()
    assert lake.ingest.journal.dead_letters.staged() == []
    assert len(lake.letters()) == 1


def test_a_replay_reads_the_event_as_the_request_was_read(lake: StagingLake) -> None:
    """`{"id": 1, "table": ...}` looks like another format, but the request said that these are rows."""
    row = {"table": "x", "operation": "o", "rowId": "1"}
    lake.post(row, format="rows", namespace=("other",), key=("rowId",))
    lake.land()
    [letter] = lake.letters()
    assert letter.context is not None
    context = _context(letter, is_fixed=False)
    assert (context.format, context.key, context.namespace) == ("rows", ("rowId",), ("other",))


def test_a_batch_of_rejects_alone_keeps_the_snapshot_of_the_mirror(lake: StagingLake) -> None:
    def work(connection: sa.Connection) -> None:
        step = TableAdvance(("shop", "t"), 0, 0, 1, 0, None, None, {})
        land(connection, WAREHOUSE, step, number=1, commit_us=1, snapshots=(7, 8))

    lake.catalog.database.write(work)
    lake.post({"op": "unknown", "source": {"schema": "shop", "table": "t"}})
    lake.land()
    row = lake.ingest.tables.one(WAREHOUSE, ("shop", "t"))
    assert (row.rejects, row.mirror_snapshot_id, row.changes_snapshot_id) == (1, 7, 8)


def test_housekeeping_continues_after_an_error(lake: StagingLake, monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = threading.Semaphore(0)

    def fail() -> None:
        rounds.release()
        raise KeyError("a mistake")

    monkeypatch.setattr(housekeeping, "EVERY_S", 0.01)
    monkeypatch.setattr(lake.ingest.housekeeping, "once", fail)
    lake.ingest.housekeeping.start()
    assert all(rounds.acquire(timeout=30) for _ in range(2))


# -- equal rows


def test_equal_rows_of_a_table_without_a_key_all_land(lake: StagingLake) -> None:
    """One to a request: first-load rows that differ in their time, and rows of one COPY."""
    log = {"connector": "postgresql", "lsn": 5, "sequence": '["4","5"]'}
    load = [debezium("r", {"name": "x"}, source=log, ts_ns=n) for n in (1, 2)]
    copied = [
        debezium("c", {"name": "x"}, source=log, transaction={"id": "9:5", "total_order": n})
        for n in (1, 2, 3)
    ]
    for event in (*load, *copied, load[1], copied[2]):
        lake.post(event)
    lake.post({"status": "END", "id": "9:5", "event_count": 3})
    assert len(staged_rows(lake.land(), "t")) == 5


def test_a_keyed_event_that_is_counted_anew_is_one_event(lake: StagingLake) -> None:
    log = {"connector": "postgresql", "lsn": 5, "sequence": '["4","5"]'}
    for order in (7, 1):
        event = debezium("c", {"id": 1}, source=log, transaction={"id": "9:5", "total_order": order})
        lake.post(event, key=("id",))
    assert len(staged_rows(lake.land(), "t")) == 1
    event = debezium("c", {"id": 1}, source=log, transaction={"id": "9:5", "total_order": 3})
    assert lake.post(event, key=("id",)).first is None  # also after it has landed


# -- mirrors that others have changed


def _land(lake: StagingLake, number: int) -> None:
    log = {"connector": "postgresql", "lsn": number, "sequence": f'["{number}","{number}"]'}
    lake.post(debezium("c", {"id": number}, source=log), key=("id",))
    lake.land()


def _post(lake: StagingLake, number: int) -> None:
    log = {"connector": "postgresql", "lsn": number, "sequence": f'["{number}","{number}"]'}
    lake.post(debezium("c", {"id": number}, source=log), key=("id",))


def _stalled(lake: StagingLake) -> str:
    assert lake.ingest.job_service.lease("w", [WAREHOUSE], {}, "anonymous") is None
    return str(lake.ingest.landing_status.status(WAREHOUSE)["tables"]["shop.t"]["stalled"])


def _mirror(lake: StagingLake) -> dict[str, Any]:
    found: dict[str, Any] = lake.call("GET", "/v1/main/namespaces/shop/tables/t").json()["metadata"]
    return found


def test_a_mirror_that_was_rolled_back_is_not_landed_into(lake: StagingLake) -> None:
    _land(lake, 1)
    first = _mirror(lake)["current-snapshot-id"]
    _land(lake, 2)
    newest = _mirror(lake)["current-snapshot-id"]

    def set_main(snapshot: int) -> None:
        update = {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": snapshot}
        body = {"requirements": [], "updates": [update]}
        answer = lake.call("POST", "/v1/main/namespaces/shop/tables/t", body)
        assert answer.is_success, answer.text

    set_main(first)
    _post(lake, 3)
    assert "rolled back" in _stalled(lake)
    set_main(newest)
    lake.land()
    set_main(first)
    _post(lake, 4)
    path = "/lake/v1/main/namespaces/shop/tables/t/ingest"
    assert lake.call("PUT", path, {"mirror-changed": "accept"}).is_success
    lake.land()
    assert [row["id"] for row in lake.rows()] == [1, 2, 3, 4]


def test_a_mirror_that_was_dropped_alone_is_not_made_anew(lake: StagingLake) -> None:
    _land(lake, 1)
    assert lake.call("DELETE", "/v1/main/namespaces/shop/tables/t").is_success
    _post(lake, 2)
    assert "was dropped" in _stalled(lake)
    assert lake.call("DELETE", "/v1/main/namespaces/shop/tables/t__changes").is_success
    lake.land()  # both are gone: it begins anew
    assert _mirror(lake)["current-snapshot-id"] is not None
