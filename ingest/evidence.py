"""Decide from landed changes whether a guessed key is wrong, and which key is right. Pure.

Two rows that were inserted with the same guessed key, without a delete between them, and that differ in other
columns, contradict the guess: a clash. The right key follows from the rows before deletes, if the producer
sends only the key: under PostgreSQL's default replica identity, Debezium fills the other columns with null or
with defaults (0, "", false). So a column belongs to the key if it has a value in each of several such rows,
and not always a default.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ingest.change import Change

DELETES_MIN = 3  # rows before deletes that are needed to choose a key
CLASHES_KEPT = 20
_DEFAULTS = ("", 0, False, "0", "AA==")


@dataclass(frozen=True, slots=True)
class Evidence:
    """`columns`: for each column, in how many rows before deletes it has a value, and in how many a value
    that is not a default. `clashes`: for some clashes, the columns that differ.
    """

    deletes: int = 0
    columns: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    clashes: tuple[tuple[str, ...], ...] = ()
    clash_count: int = 0

    def __add__(self, other: Evidence) -> Evidence:
        names = {*self.columns, *other.columns}
        counts = {name: (self.columns.get(name, (0, 0)), other.columns.get(name, (0, 0))) for name in names}
        return Evidence(
            self.deletes + other.deletes,
            {name: (one[0] + two[0], one[1] + two[1]) for name, (one, two) in counts.items()},
            (*self.clashes, *other.clashes)[:CLASHES_KEPT],
            self.clash_count + other.clash_count,
        )

    def as_json(self) -> dict[str, Any]:
        return {
            "deletes": self.deletes,
            "columns": {name: list(counts) for name, counts in self.columns.items()},
            "clashes": [list(columns) for columns in self.clashes],
            "clash-count": self.clash_count,
        }

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Evidence:
        return cls(
            int(given.get("deletes", 0)),
            {
                name: (int(known), int(not_default))
                for name, (known, not_default) in given.get("columns", {}).items()
            },
            tuple(tuple(map(str, columns)) for columns in given.get("clashes", ())),
            int(given.get("clash-count", 0)),
        )


def of_changes(changes: Sequence[Change]) -> Evidence:
    """Return the evidence in the rows before deletes."""
    rows = [change.before for change in changes if change.operation == "delete" and change.before]
    counts: dict[str, tuple[int, int]] = {}
    for row in rows:
        for name, value in row.items():
            known, not_default = counts.get(name, (0, 0))
            counts[name] = (known + (value is not None), not_default + _is_not_default(value))
    return Evidence(len(rows), counts)


def _is_not_default(value: Any) -> bool:
    return value is not None and not any(
        value == default and type(value) is type(default) for default in _DEFAULTS
    )


@dataclass(frozen=True, slots=True)
class Contradiction:
    """The right key, if the evidence is complete; otherwise only the reason against the guess."""

    reason: str
    key: tuple[str, ...] = ()


def find_contradiction(
    guess: Sequence[str], evidence: Evidence, columns: Collection[str]
) -> Contradiction | None:
    """Return None while nothing contradicts the guess. `columns` are the columns of the table."""
    if not evidence.clash_count:
        return None
    found = _key_in(evidence, columns)
    clash_text = (
        f"{evidence.clash_count} rows were inserted under a guessed key ({', '.join(guess)}) that others had"
    )
    distinguishes = all(set(differing) & set(found) for differing in evidence.clashes)
    if set(found) > set(guess) and distinguishes:
        key = (*(name for name in found if name not in guess), *guess)
        return Contradiction(f"evidence: {clash_text}; {evidence.deletes} deletes name {', '.join(key)}", key)
    example = ", ".join(evidence.clashes[0]) if evidence.clashes else ""
    return Contradiction(
        f"{clash_text}, with other values of {example}: it is probably not the key. Set the key with "
        "PUT /lake/v1/{warehouse}/namespaces/{namespace}/tables/{table}/ingest, and the mirror is rebuilt"
    )


def _key_in(evidence: Evidence, columns: Collection[str]) -> tuple[str, ...]:
    """Return the columns that rows before deletes always have; () if these rows are whole."""
    if evidence.deletes < DELETES_MIN:
        return ()
    if any(not_default > 0 and known < evidence.deletes for known, not_default in evidence.columns.values()):
        return ()  # other columns have values of their own
    found = tuple(
        name
        for name, (known, not_default) in evidence.columns.items()
        if name in columns and known == evidence.deletes and not_default
    )
    return found if len(found) < len(columns) else ()
