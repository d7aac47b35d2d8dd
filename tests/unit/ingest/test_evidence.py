"""Evidence about a guessed key."""

from __future__ import annotations

from typing import Any

import pytest

from ingest.change import Change
from ingest.evidence import Evidence, find_contradiction, of_changes
from ingest.identity import GUESS, PRODUCER, SETTING, TABLE, Key, reasoned_key

COLUMNS = ("tenant", "id", "name", "note")
CLASH = Evidence(clashes=(("tenant", "name"),), clash_count=1)


def deletes(*rows: dict[str, Any]) -> Evidence:
    return of_changes([Change(0, ("ns", "t"), "delete", before=row) for row in rows])


def by_key(tenant: str, number: int) -> dict[str, Any]:
    """As under the default replica identity: other columns are null, or have an invented value."""
    return {"tenant": tenant, "id": number, "name": "", "note": None}


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
