"""Tables of every kind in the pipeline: keys of all types, names, widths, modes, partitions, sizes."""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from spark_jobs.landing import planning
from spark_jobs.maintenance import steps as maintenance
from spark_jobs.messages import BadJob, parsed
from tests.clients.duckdb_client import DuckLake
from tests.clients.pipeline_events import Event, delete, insert, moved, truncate, update
from tests.clients.pipeline_fixtures import Checked, by_key, pipeline, pipeline_slots
from tests.clients.pipeline_lake import PipelineLake
from tests.clients.pipeline_staged import STAMP_US

__all__ = ["pipeline", "pipeline_slots"]
# PySpark leaves the socket that rows came through to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")

_DAY = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
# Four keys of each type, in order; the third is deleted, the second changed, the first moves to the fourth.
KEYS: dict[str, list[Any]] = {
    "int": [-(2**31), 0, 7, 2**31 - 1],
    "long": [-(2**63), -1, 0, 2**63 - 1],
    "decimal(10,2)": [Decimal("-99999999.99"), Decimal("0.00"), Decimal("0.01"), Decimal("12.50")],
    "decimal(38,0)": [Decimal(-(10**37)), Decimal(1), Decimal(2), Decimal(10**38 - 1)],
    "date": [dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(2026, 1, 1), dt.date(9999, 12, 31)],
    "timestamp": [(_DAY + dt.timedelta(microseconds=n)).replace(tzinfo=None) for n in (0, 1, 2, 3)],
    "timestamptz": [_DAY + dt.timedelta(days=n, microseconds=1) for n in (-40000, 0, 1, 99999)],
    "string": ["", "a'b\\c\"`", "ß€😀", "日本\n\t"],
    "uuid": sorted(str(uuid.UUID(int=n)) for n in (0, 2**64, 2**100, 2**128 - 1)),
    "binary": [b"", b"\x00", b"\x00\xff", b"\xff'"],
    "fixed[4]": [b"\x00\x00\x00\x00", b"abcd", b"abce", b"\xff\xff\xff\xff"],
    "boolean": [False, True],
}


def test_keys_of_all_types(pipeline: PipelineLake) -> None:
    """All tables in one job."""
    tables = {
        type_: Checked(
            pipeline.table({"k": type_, "name": "string", "big": "string"}, ("k",), has_changes=False)
        )
        for type_ in KEYS
    }
    first = {
        type_: [insert(k=key, name=f"name {n}", big=f"big {n}") for n, key in enumerate(keys)]
        for type_, keys in KEYS.items()
    }
    _land_all(pipeline, tables, first)
    second = {
        type_: [update("big", k=keys[1], name="changed"), *_third_and_move(keys)]
        for type_, keys in KEYS.items()
    }
    outcome = _land_all(pipeline, tables, second)
    assert {facts["by"] for facts in outcome.values()} == {"tasks"}


def _third_and_move(keys: list[Any]) -> list[Event]:
    if len(keys) < 4:
        return [delete(k=keys[0])]
    return [delete(k=keys[2]), delete(k=keys[0]), moved({"k": keys[0]}, "big", k=keys[3], name="moved")]


def _land_all(
    pipeline: PipelineLake, tables: dict[str, Checked], events: dict[str, list[Event]]
) -> dict[str, dict[str, Any]]:
    described = [table.table.described(events[type_]) for type_, table in tables.items()]
    outcome = pipeline.run(described)
    for type_, table in tables.items():
        table.table.made = True
        table.model.land(events[type_])
        found = _comparable(table.table.mirror())
        assert found == _comparable(list(table.model.mirror.values())), type_
    return outcome.tables


def _comparable(rows: list[dict[str, Any]]) -> list[str]:
    """A uuid is text on its way and a uuid at its end."""
    return sorted(repr(sorted((name, str(value)) for name, value in row.items())) for row in rows)


def test_composite_keys(pipeline: PipelineLake) -> None:
    columns = {"region": "string", "id": "long", "day": "date", "name": "string", "big": "string"}
    days = [dt.date(2026, 1, n) for n in (1, 2)]
    table = Checked(pipeline.table(columns, ("region", "id", "day")))
    rows = [
        {"region": region, "id": n, "day": day} for region in ("eu", "us") for n in (1, 2) for day in days
    ]
    table.land(*(insert(**row, name=f"{n}", big=f"big {n}") for n, row in enumerate(rows)))
    table.land(
        update("big", **rows[0], name="changed"),
        delete(**rows[1]),
        delete(**rows[2]),
        moved(rows[2], "big", region="eu", id=3, day=days[0], name="moved"),
        insert(region="us", id=9, day=days[1], name="new"),
    )


def test_names_that_are_hard_to_spell(pipeline: PipelineLake) -> None:
    columns = {
        "id": "long",
        "ID": "long",
        "Id": "string",
        "a.b": "string",
        "a`b": "string",
        "über é": "string",
    }
    table = Checked(pipeline.table({**columns, "order": "string", "t": "string"}, ("ID",)))
    table.land(
        Event("insert", {"id": 1, "ID": 1, "Id": "one", "a.b": "x", "a`b": "y", "über é": "z", "order": "o"}),
        Event("insert", {"id": 2, "ID": 2, "Id": "two", "t": "t"}),
    )
    table.land(
        Event("update", {"id": 9, "ID": 1, "Id": "uno"}, ("a.b", "a`b", "über é", "order", "t")),
        Event("delete", {"ID": 2}),
        Event("insert", {"id": 1, "ID": 3, "Id": "three"}),
    )


def test_five_hundred_columns(pipeline: PipelineLake) -> None:
    columns = {"id": "long"} | {f"column_{n}": "string" if n % 2 else "double" for n in range(499)}
    table = Checked(pipeline.table(columns))

    def row(key: int) -> dict[str, Any]:
        return {"id": key} | {f"column_{n}": f"{key} {n}" if n % 2 else float(n) for n in range(499)}

    table.land(*(insert(**row(key)) for key in range(20)))
    gaps = [f"column_{n}" for n in range(0, 499, 3)]
    table.land(
        *(
            update(*gaps, **{name: value for name, value in row(key + 1).items() if name not in gaps})
            for key in range(10, 25)
        ),
        delete(id=3),
    )


@pytest.mark.parametrize(("stack", "tasks"), [("embedded", 1), ("postgres-s3", 3)], indirect=["stack"])
def test_a_hundred_thousand_keys(pipeline: PipelineLake, monkeypatch: pytest.MonkeyPatch, tasks: int) -> None:
    monkeypatch.setattr(planning, "TASK_ROWS_MAX", -(-100_000 // tasks))
    table = pipeline.table({"id": "long", "name": "string"}, has_changes=False)
    keys = range(100_000)
    assert table.land(*(insert(id=key, name="first") for key in keys))["tasks"] == tasks
    facts = table.land(
        *(delete(id=key) if key % 10 == 0 else update(id=key, name="second") for key in range(50, 100_050))
    )
    assert (facts["tasks"], facts["rows"], facts["deleted"]) == (tasks, 100_000, 99_950)
    rows = by_key(table.mirror(), ("id",))
    assert len(rows) == 50 + 90_000
    assert rows[0,]["name"] == "first"
    assert rows[100_049,]["name"] == "second"
    assert (60,) not in rows


def test_append_only(pipeline: PipelineLake) -> None:
    table = pipeline.table({"id": "long", "name": "string"}, append_only=True)
    for _ in range(2):
        table.land(insert(id=1, name="a"), insert(id=1, name="a"), insert(id=None, name=None))
    assert sorted(table.mirror(), key=repr) == sorted(
        [{"id": 1, "name": "a"}] * 4 + [{"id": None, "name": None}] * 2, key=repr
    )
    assert len(table.changes()) == 6


def test_changes_only_and_mirror_only(pipeline: PipelineLake) -> None:
    columns = {"id": "long", "name": "string", "big": "string"}
    history = pipeline.table(columns, has_mirror=False)
    mirror = Checked(pipeline.table(columns, has_changes=False))
    events = [insert(id=1, name="a", big="A"), update("big", id=1, name="b"), delete(id=1)]
    history.land(*events)
    assert [row["big"] for row in sorted(history.changes(), key=lambda row: row["_event_id"])] == [
        "A",
        "A",
        None,
    ]
    # Nothing but the batch itself is known where there is no mirror.
    history.land(update("big", id=1, name="c"))
    assert len(history.changes()) == 4
    mirror.land(*events, insert(id=2, name="x", big="X"))
    mirror.land(update("big", id=2, name="y"))


def test_partitioned_mirrors(pipeline: PipelineLake) -> None:
    columns = {"id": "long", "name": "string", "day": "date"}
    parts = [{"source": "id", "transform": "bucket[4]"}, {"source": "day", "transform": "month"}]
    table = Checked(pipeline.table(columns, has_changes=False, partition=parts))
    days = [dt.date(2026, 1 + n % 12, 1) for n in range(30)]
    table.land(*(insert(id=n, name="a", day=day) for n, day in enumerate(days)))
    table.land(*(update(id=n, name="b", day=days[n - 1]) for n in range(5, 15)), delete(id=29))


def test_a_table_with_rejects(pipeline: PipelineLake) -> None:
    table = pipeline.table({"id": "long"})
    described = table.described([insert(id=1)])
    fields = [
        ("_rejected_at", "timestamptz", pa.timestamp("us", tz="UTC"), STAMP_US),
        ("_reason", "string", pa.string(), "why"),
        ("_code", "string", pa.string(), "unfit"),
        ("_source", "string", pa.string(), "pg"),
        ("_position", "string", pa.string(), "1"),
        ("_original", "binary", pa.binary(), b"{"),
        ("_dead_letter", "string", pa.string(), "letter"),
    ]
    rejects = pa.table({name: pa.array([value], type_) for name, _, type_, value in fields})
    schema = {
        "type": "struct",
        "fields": [
            {"id": n, "name": name, "type": kind, "required": False}
            for n, (name, kind, *_) in enumerate(fields, 1)
        ],
    }
    described["requests"].append({"table": "t__rejects", "create": {"name": "t__rejects", "schema": schema}})
    described["rejects"] = {"name": "t__rejects", "files": [pipeline.put(rejects)]}
    alone = {
        "namespace": [pipeline.namespace],
        "name": "other",
        "files": [],
        "events": 0,
        "mirror": None,
        "changes": None,
        "requests": [],
        "rejects": described["rejects"],
    }
    pipeline.run([described])
    pipeline.run([alone])
    found = table._read("t__rejects")
    assert [row["_reason"] for row in found] == ["why", "why"]
    assert found[0]["_original"] == b"{"


def test_a_key_that_is_null_is_no_reason_to_try_again(pipeline: PipelineLake) -> None:
    table = pipeline.table({"id": "long", "name": "string"})
    with pytest.raises(BadJob, match="is null"):
        table.land(insert(id=None, name="a"))


def test_a_key_may_have_a_fraction(pipeline: PipelineLake) -> None:
    """Tasks do not write such a table. -0.0 is the same key as 0.0, in one batch and in two."""
    table = Checked(pipeline.table({"id": "double", "name": "string"}))
    facts = table.land(insert(id=0.5, name="a"), insert(id=-0.0, name="b"), insert(id=1e22, name="c"))
    assert facts["by"] == "merge"
    table.land(update(id=0.0, name="d"), delete(id=0.5), insert(id=0.1, name="e"))
    table.land(update(id=0.0, name="f"), update(id=-0.0, name="g"), update("name", id=0.1))
    table.land(truncate(), insert(id=0.1, name="h"))


def test_the_columns_of_the_history_may_have_other_names(pipeline: PipelineLake) -> None:
    table = pipeline.table({"id": "long", "_operation": "string"})
    table.names = {**table.names, "operation": "_op", "event-id": "_id"}
    events = [insert(id=1, _operation="mine"), delete(id=1)]
    table.land(*events)
    found = {row["_id"]: (row["_op"], row["_operation"]) for row in table.changes()}
    assert found == {events[0].id: ("insert", "mine"), events[1].id: ("delete", None)}


@pytest.mark.parametrize(("stack", "batches"), [("embedded", 27), ("postgres-s3", 15)], indirect=["stack"])
def test_small_files_are_joined_between_batches(pipeline: PipelineLake, duck: DuckLake, batches: int) -> None:
    table = Checked(pipeline.table({"id": "long", "it's `odd`\\": "string"}))
    names = (table.table.name, f"{table.table.name}__changes")
    for number in range(1, batches + 1):
        table.land(
            update(id=number % 5, **{"it's `odd`\\": f"{number}"}),
            insert(id=100 + number),
            delete(id=90 + number),
        )
        if number % 12 == 0:
            for name in names:
                assert maintained(pipeline, name)["rewritten-data-files"] >= 12
    for name in names:
        summary = pipeline.rest.load(pipeline.namespace, name)["metadata"]["snapshots"][-1]["summary"]
        assert int(summary["total-data-files"]) <= 6
        assert int(summary["total-delete-files"]) <= 4
    table.check_by_duckdb(duck)


def maintained(
    pipeline: PipelineLake, name: str, *, small_files_min: int = 12, delete_files_max: int = 8
) -> dict[str, Any]:
    """A step of maintenance, as the server would describe it."""
    policy = {
        "small-files-min": small_files_min,
        "delete-files-max": delete_files_max,
        "delete-ratio": 0.2,
        "target-bytes": 128 * 2**20,
    }
    described = {"id": "j", "epoch": 1, "warehouse": "main", "namespace": [pipeline.namespace], "name": name}
    job = parsed(
        maintenance.MaintenanceJob,
        described | {"actions": ["compact"], "policy": policy, "step-bytes-max": 32 * 2**20, "sort": []},
    )
    return maintenance.MaintenanceStep(pipeline.slot.server, pipeline.slot.session).run(job)
