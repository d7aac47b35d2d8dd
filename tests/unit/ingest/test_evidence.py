"""Evidence about a guessed key."""

from __future__ import annotations

from typing import Any

import pytest

from ingest.change import Change, Declared
from ingest.evidence import Evidence, find_contradiction, of_changes
from ingest.identity import GUESS, PRODUCER, SETTING, TABLE, Key, reasoned_key

COLUMNS = ("tenant", "id", "name", "note")
CLASH = Evidence(clashes=(("tenant", "name"),), clash_count=1)


def deletes(*rows: dict[str, Any]) -> Evidence:
    return of_changes([Change(0, ("ns", "t"), "delete", before=row) for row in rows])


def by_key(tenant: str, number: int) -> dict[str, Any]:
    """As under the default replica identity: other columns are null, or have an invented value."""
    return {"tenant": tenant, "id": number, "name": "", "note": None}


# What Debezium 3.6 sends before a delete for NOT NULL columns that PostgreSQL has not logged: numbers, text,
# timestamps with and without a DEFAULT, times, decimals, arrays.
INVENTED: tuple[Any, ...] = (
    0, 0.0, False, "", "1970-01-01T00:00:00Z", "1970-01-01T00:00:00.000000Z", "00:00:00Z", "AA==",
    {"scale": 0, "value": "AA=="}, [],
)  # fmt: skip


@pytest.mark.parametrize("value", INVENTED, ids=repr)
def test_invented_values_are_no_part_of_the_key(value: Any) -> None:
    rows = [{"tenant": f"t{n}", "id": n, "name": value} for n in range(1, 5)]
    contradiction = find_contradiction(("id",), CLASH + deletes(*rows), ("tenant", "id", "name"))
    assert contradiction is not None
    assert contradiction.key == ("tenant", "id")


def test_the_default_of_a_column_is_no_part_of_the_key() -> None:
    """Debezium fills it in where PostgreSQL has not logged the value."""
    rows = [{"tenant": f"t{n}", "id": n, "name": "new"} for n in range(1, 5)]
    columns = ("tenant", "id", "name", "note")
    declared = Declared({}, defaults={"name": "new"})
    changes = [Change(0, ("ns", "t"), "delete", before=row, declared=declared) for row in rows]
    contradiction = find_contradiction(("id",), CLASH + of_changes(changes), columns)
    assert contradiction is not None
    assert contradiction.key == ("tenant", "id")
    undeclared = find_contradiction(("id",), CLASH + deletes(*rows), columns)
    assert undeclared is not None
    assert undeclared.key == ()


@pytest.mark.parametrize(("count", "key"), [(1, ()), (3, ("name",))])
def test_deletes_that_never_name_the_guess_contradict_it(count: int, key: tuple[str, ...]) -> None:
    rows = [{"tenant": "", "id": 0, "name": f"n{number}", "note": None} for number in range(count)]
    contradiction = find_contradiction(("id",), deletes(*rows), COLUMNS)
    assert contradiction is not None
    assert contradiction.key == key
    assert f"{count} deletes name name and no id" in contradiction.reason


def test_a_row_whose_id_is_zero_is_no_contradiction() -> None:
    whole = [{"tenant": "a", "id": number, "name": "x", "note": "y"} for number in (0, 1)]
    assert find_contradiction(("id",), deletes(*whole), COLUMNS) is None
    assert find_contradiction(("id",), deletes({"id": 0, "tenant": "", "name": ""}), COLUMNS) is None


def test_evidence_of_an_older_version_is_read() -> None:
    older = Evidence.of({"deletes": 3, "columns": {"tenant": [3, 3], "id": [3, 3]}, "clash-count": 1})
    contradiction = find_contradiction(("id",), older, COLUMNS)
    assert contradiction is not None
    assert contradiction.key == ()


def test_without_a_clash_a_guess_stands() -> None:
    assert find_contradiction(("id",), deletes(*(by_key("t", n) for n in range(5))), COLUMNS) is None


def test_deletes_that_name_more_columns_tell_the_key() -> None:
    contradiction = find_contradiction(
        ("id",), CLASH + deletes(by_key("a", 0), by_key("b", 1), by_key("b", 2)), COLUMNS
    )
    assert contradiction is not None
    assert contradiction.key == ("tenant", "id")
    assert contradiction.reason.startswith("evidence: ")


@pytest.mark.parametrize(
    "evidence",
    [
        deletes(),
        deletes(by_key("a", 1), by_key("b", 2)),
        deletes(*({"tenant": "a", "id": n, "name": f"x{n}", "note": "y"} for n in range(1, 5))),
        deletes(*({"tenant": "a", "id": n, "name": "x", "note": "y" if n > 1 else None} for n in range(5))),
        deletes(*({"tenant": "", "id": n, "name": "", "note": None} for n in range(5))),
        deletes(*({"id": n} for n in range(5))),
    ],
    ids=[
        "no deletes",
        "too few",
        "whole rows",
        "whole rows with nulls",
        "invented values",
        "the guess itself",
    ],
)
def test_evidence_that_is_not_complete_is_a_doubt(evidence: Evidence) -> None:
    contradiction = find_contradiction(("id",), CLASH + evidence, COLUMNS)
    assert contradiction is not None
    assert contradiction.key == ()
    assert "Set the key" in contradiction.reason


def test_a_key_that_does_not_tell_the_clashing_rows_apart_is_not_believed() -> None:
    clash = Evidence(clashes=(("name",),), clash_count=1)
    contradiction = find_contradiction(("id",), clash + deletes(*(by_key("a", n) for n in range(5))), COLUMNS)
    assert contradiction is not None
    assert contradiction.key == ()


def test_evidence_is_kept_as_json() -> None:
    evidence = CLASH + deletes(by_key("a", 1))
    assert Evidence.of(evidence.as_json()) == evidence


def test_the_producers_word_beats_a_guess_and_no_other_reason() -> None:
    said = [Change(0, ("ns", "t"), "insert", after={"a": 1, "id": 1}, key=("a", "id"))]
    schema = {"fields": [{"id": 1, "name": "id"}], "identifier-field-ids": [1]}
    assert reasoned_key(None, schema, said, Key(("id",), GUESS)) == Key(("a", "id"), PRODUCER)
    for reason in (SETTING, TABLE, PRODUCER, "evidence: …"):
        assert reasoned_key(None, schema, said, Key(("id",), reason)) == Key(("id",), reason)
    assert reasoned_key(None, schema, said, Key(("x",), PRODUCER)) == Key(("id",), TABLE)
