"""Where missing values come from, case by case."""

from __future__ import annotations

from spark_jobs.landing.value_sources import Key, Sources, sources

Step = tuple[str, str, tuple[str, ...], str | None]  # operation, key, absent columns, root


def _sources(*steps: Step, mirror: bool = True) -> Sources:
    return sources(
        [step[0] for step in steps],
        [step[1] for step in steps],
        [step[3] for step in steps],
        [step[2] or None for step in steps],
        mirror=mirror,
    )


def _place(found: Sources, column: str, row: int) -> int | Key | None:
    """A row of the batch, or the key of a row of the mirror, or None."""
    place = found.of[column][row]
    return found.bases[-1 - place] if place is not None and place < 0 else place


def _insert(key: str) -> Step:
    return ("insert", key, (), None)


def _update(key: str, *absent: str) -> Step:
    return ("update", key, absent, None)


def _delete(key: str) -> Step:
    return ("delete", key, (), None)


def _moved(root: str, key: str, *absent: str) -> Step:
    return ("insert", key, absent, root)


_TRUNCATE: Step = ("truncate", "", (), None)


def test_a_value_comes_from_the_event_before() -> None:
    found = _sources(_insert("a"), _update("a", "x"), _update("a", "x", "y"))
    assert found.of == {"x": {1: 0, 2: 0}, "y": {2: 1}}
    assert found.bases == []


def test_a_value_comes_from_the_mirror_if_the_batch_has_none() -> None:
    found = _sources(_update("a", "x"), _update("b", "x"), _update("a", "x", "y"))
    assert [_place(found, "x", row) for row in range(3)] == ["a", "b", "a"]
    assert _place(found, "y", 2) == 0
    assert found.bases == ["a", "b"]


def test_without_a_mirror_it_comes_from_nowhere() -> None:
    found = _sources(_update("a", "x"), mirror=False)
    assert found.of == {"x": {0: None}}


def test_a_deleted_row_leaves_nothing_to_its_key() -> None:
    found = _sources(_insert("a"), _delete("a"), _update("a", "x"))
    assert _place(found, "x", 2) is None
    found = _sources(_delete("a"), _update("a", "x"))
    assert _place(found, "x", 1) is None
    assert found.bases == []


def test_a_moved_row_takes_from_the_row_just_deleted() -> None:
    found = _sources(_insert("a"), _delete("a"), _moved("a", "b", "x"))
    assert _place(found, "x", 2) == 0
    found = _sources(_delete("a"), _moved("a", "b", "x"))
    assert _place(found, "x", 1) == "a"


def test_a_value_travels_over_many_key_changes() -> None:
    found = _sources(
        _delete("a"),
        _moved("a", "b", "x", "y"),
        _update("b", "x"),
        _delete("b"),
        _moved("b", "c", "x", "y"),
        _delete("c"),
        _moved("c", "a", "x", "y"),
        _update("a", "y"),
    )
    assert [_place(found, "x", row) for row in (1, 2, 4, 6)] == ["a", "a", "a", "a"]
    assert [_place(found, "y", row) for row in (1, 4, 6, 7)] == ["a", 2, 2, 2]


def test_the_new_row_of_an_old_key_is_another_row() -> None:
    found = _sources(_delete("a"), _moved("a", "b", "x"), _insert("a"), _update("b", "x"), _update("a", "x"))
    assert _place(found, "x", 1) == "a"
    assert _place(found, "x", 3) == "a"
    assert _place(found, "x", 4) == 2


def test_rows_that_change_places_keep_their_values() -> None:
    """id = id + 1, from the end."""
    found = _sources(
        _delete("c"), _moved("c", "d", "x"), _delete("b"), _moved("b", "c", "x"), _update("c", "x")
    )
    assert [_place(found, "x", row) for row in (1, 3, 4)] == ["c", "b", "b"]


def test_a_delete_that_comes_twice_forgets_nothing() -> None:
    found = _sources(_insert("a"), _delete("a"), _delete("a"), _moved("a", "b", "x"))
    assert _place(found, "x", 3) == 0


def test_a_move_whose_delete_is_missing_takes_from_the_row_that_lives() -> None:
    found = _sources(_insert("a"), _moved("a", "b", "x"))
    assert _place(found, "x", 1) == 0


def test_after_a_truncate_nothing_is_left() -> None:
    found = _sources(_insert("a"), _delete("c"), _TRUNCATE, _update("a", "x"), _moved("c", "d", "x"))
    assert [_place(found, "x", row) for row in (3, 4)] == [None, None]
    found = _sources(_update("a", "x"), _TRUNCATE, _update("a", "x"))
    assert [_place(found, "x", row) for row in (0, 2)] == ["a", None]


def _in_one_transaction(*steps: Step, living: frozenset[Key]) -> Sources:
    return sources(
        [step[0] for step in steps],
        [step[1] for step in steps],
        [step[3] for step in steps],
        [step[2] or None for step in steps],
        mirror=True,
        transactions=[("pg", "1")] * len(steps),
        living=living,
    )


def test_rows_that_swap_their_keys() -> None:
    steps = (_delete("a"), _moved("a", "b", "x"), _delete("b"), _moved("b", "a", "x"), _update("b", "x"))
    found = _in_one_transaction(*steps, living=frozenset("b"))
    assert found.hidden == {2: 1}
    assert [_place(found, "x", row) for row in (1, 3, 4)] == ["a", "b", "a"]


def test_a_row_that_passes_through_a_free_key_leaves_it() -> None:
    steps = (_delete("a"), _moved("a", "b", "x"), _delete("b"), _moved("b", "c", "x"))
    found = _in_one_transaction(*steps, living=frozenset())
    assert found.hidden == {}
    assert [_place(found, "x", row) for row in (1, 3)] == ["a", "a"]
