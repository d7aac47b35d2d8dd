"""Inserts under a guessed key that another row has."""

from __future__ import annotations

from typing import Any

from spark_jobs.messages import KeyFileSettings
from tests.clients.pipeline_events import Event, at, delete, insert, moved, truncate, update
from tests.unit.spark_jobs.task_table import TaskTable

COLUMNS = {"id": "long", "tenant": "string", "name": "string"}


def row(number: int, tenant: str, operation: str = "insert") -> Event:
    return Event(operation, {"id": number, "tenant": tenant, "name": "n"})


def clashes(folder: Any, *batches: list[Event], **more: Any) -> tuple[int, tuple[tuple[str, ...], ...]]:
    """Of the last batch, after the others have landed."""
    table = TaskTable(folder, COLUMNS)
    settings = KeyFileSettings(folder=str(folder / "keys"))
    for batch in batches[:-1]:
        table.land(*batch, key_files=settings)
    (result,) = table.land(*batches[-1], key_files=settings, guessed=True, **more)
    return result.clashes, result.differing


def test_an_insert_that_meets_a_living_row(tmp_path: Any) -> None:
    assert clashes(tmp_path, [row(1, "a")], [row(1, "b")]) == (1, (("tenant",),))
    assert clashes(tmp_path, [row(1, "a"), row(2, "a")], [row(3, "a"), row(3, "b")]) == (1, (("tenant",),))


def test_inserts_of_free_keys_and_repeats_are_no_clashes(tmp_path: Any) -> None:
    assert clashes(tmp_path, [row(1, "a")], [row(1, "a")]) == (0, ())
    assert clashes(tmp_path, [row(1, "a")], [delete(id=1), row(1, "b")]) == (0, ())
    assert clashes(tmp_path, [row(1, "a"), delete(id=1)], [row(1, "b"), update(id=1, tenant="c")]) == (0, ())
    assert clashes(tmp_path, [row(1, "a")], [truncate(), row(1, "b")]) == (0, ())
    swap = [delete(id=1), moved({"id": 1}, id=2, tenant="x", name="n")]
    assert clashes(tmp_path, [row(1, "a"), row(2, "a")], swap) == (0, ())


def test_a_row_that_was_deleted_softly_is_no_clash(tmp_path: Any) -> None:
    table = TaskTable(tmp_path, {**COLUMNS, "_is_deleted": "boolean"})
    gone = Event("insert", {"id": 1, "tenant": "a", "name": "n", "_is_deleted": True})
    again = Event("insert", {"id": 1, "tenant": "b", "name": "n", "_is_deleted": False})
    table.land(gone)
    (result,) = table.land(again, guessed=True)
    assert result.clashes == 0


def test_rows_that_are_read_again_clash_only_within_one_load(tmp_path: Any) -> None:
    assert clashes(tmp_path, [row(1, "a")], [row(1, "b", "read")]) == (0, ())
    assert clashes(tmp_path, [row(1, "a", "read")], [row(1, "b", "read")], first_load=True)[0] == 1
    assert clashes(tmp_path, [row(2, "a")], [row(1, "a", "read"), row(1, "b", "read")])[0] == 1


def test_nothing_is_compared_where_the_key_is_certain(tmp_path: Any) -> None:
    table = TaskTable(tmp_path, COLUMNS)
    table.land(insert(id=1, tenant="a"))
    (result,) = table.land(at(1, insert(id=1, tenant="b")))
    assert result.clashes == 0
