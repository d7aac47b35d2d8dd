"""Decide from landed changes whether a guessed key is wrong, and which key is right. Pure.

Two rows that were inserted with the same guessed key, without a delete between them, and that differ in other
columns, contradict the guess: a clash. So do deletes that name another column and never the guessed one: they
delete no row of the mirror. The right key follows from the rows before deletes, if the producer sends only
the key: under PostgreSQL's default replica identity, Debezium fills the other columns with null, with a value
of their type (0, "", 1970) or with their DEFAULT. So a column belongs to the key if it has a value in each of
several such rows, and not always the same. A column that always has the same value may belong to it or not:
then the evidence is not complete.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ingest.change import Change, fingerprint

EXAMPLE_CHARACTERS = 12
DELETES_MIN = 3  # rows before deletes that are needed to choose a key
CLASHES_KEPT = 20
_DEFAULTS = frozenset(
    {"", "0", "AA==", "1970-01-01T00:00:00Z", "1970-01-01T00:00:00.000000Z", "00:00:00Z", "00:00:00.000000Z"}
)
_SET_KEY = (
    "it is probably not the key. Set the key with PUT "
    "/lake/v1/{warehouse}/namespaces/{namespace}/tables/{table}/ingest, and the mirror is rebuilt"
)


class Values(NamedTuple):
    """The values of a column in rows before deletes: in how many rows it has one, in how many one that is
    not a default, a hash of one of the latter, and whether others differ from it.
    """

    known: int = 0
    not_default: int = 0
    example: str = ""
    varies: bool = False

    def plus(self, other: Values) -> Values:
        differ = bool(self.example and other.example) and self.example != other.example
        return Values(
            self.known + other.known,
            self.not_default + other.not_default,
            self.example or other.example,
            self.varies or other.varies or differ,
        )


@dataclass(frozen=True, slots=True)
class Evidence:
    """`columns` are the values in rows before deletes. `clashes` are the columns that differ in some
    clashes.
    """

    deletes: int = 0
    columns: Mapping[str, Values] = field(default_factory=dict)
    clashes: tuple[tuple[str, ...], ...] = ()
    clash_count: int = 0

    def __add__(self, other: Evidence) -> Evidence:
        names = [*self.columns, *(name for name in other.columns if name not in self.columns)]
        return Evidence(
            self.deletes + other.deletes,
            {n: self.columns.get(n, Values()).plus(other.columns.get(n, Values())) for n in names},
            (*self.clashes, *other.clashes)[:CLASHES_KEPT],
            self.clash_count + other.clash_count,
        )

    def as_json(self) -> dict[str, Any]:
        return {
            "deletes": self.deletes,
            "columns": {name: list(values) for name, values in self.columns.items()},
            "clashes": [list(columns) for columns in self.clashes],
            "clash-count": self.clash_count,
        }

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Evidence:
        return cls(
            int(given.get("deletes", 0)),
            # Those of older versions are two counts.
            {name: Values(*values) for name, values in given.get("columns", {}).items()},
            tuple(tuple(map(str, columns)) for columns in given.get("clashes", ())),
            int(given.get("clash-count", 0)),
        )


def of_changes(changes: Sequence[Change]) -> Evidence:
    """Return the evidence in the rows before deletes."""
    deletes = [change for change in changes if change.operation == "delete" and change.before]
    found: dict[str, Values] = {}
    for change in deletes:
        defaults = change.declared.defaults if change.declared is not None else {}
        for name, value in (change.before or {}).items():
            one = Values(int(value is not None))
            if _is_not_default(value) and (name not in defaults or defaults[name] != value):
                one = Values(1, 1, fingerprint(value)[:EXAMPLE_CHARACTERS])
            found[name] = found.get(name, Values()).plus(one)
    return Evidence(len(deletes), found)


def _is_not_default(value: Any) -> bool:
    """Return whether a value is none of those that Debezium fills in by the type of a column."""
    if isinstance(value, dict):
        return any(map(_is_not_default, value.values()))
    return bool(value) and not (isinstance(value, str) and value in _DEFAULTS)


@dataclass(frozen=True, slots=True)
class Contradiction:
    """The right key, if the evidence is complete; otherwise only the reason against the guess."""

    reason: str
    key: tuple[str, ...] = ()


def find_contradiction(
    guess: Sequence[str], evidence: Evidence, columns: Collection[str]
) -> Contradiction | None:
    """Return None while nothing contradicts the guess. `columns` are the columns of the table."""
    found = _key_in(evidence, columns)
    distinguishes = all(set(differing) & set(found) for differing in evidence.clashes)
    named = _named_instead(guess, evidence, columns)
    if named:
        reason = f"{evidence.deletes} deletes name {', '.join(named)} and no {', '.join(guess)}"
        if found and distinguishes:
            return Contradiction(f"evidence: {reason}", found)
        return Contradiction(f"{reason}, which is the guessed key: {_SET_KEY}")
    if not evidence.clash_count:
        return None
    clash_text = (
        f"{evidence.clash_count} rows were inserted under a guessed key ({', '.join(guess)}) that others had"
    )
    if set(found) > set(guess) and distinguishes:
        key = (*(name for name in found if name not in guess), *guess)
        return Contradiction(f"evidence: {clash_text}; {evidence.deletes} deletes name {', '.join(key)}", key)
    example = ", ".join(evidence.clashes[0]) if evidence.clashes else ""
    return Contradiction(f"{clash_text}, with other values of {example}: {_SET_KEY}")


def _named_instead(guess: Sequence[str], evidence: Evidence, columns: Collection[str]) -> tuple[str, ...]:
    """Return the columns that have their own value in every row before a delete, if the guess never has."""
    if not evidence.deletes or any(evidence.columns.get(name, Values()).not_default for name in guess):
        return ()
    return tuple(
        name
        for name, values in evidence.columns.items()
        if name in columns and values.not_default == evidence.deletes
    )


def _key_in(evidence: Evidence, columns: Collection[str]) -> tuple[str, ...]:
    """Return the columns that rows before deletes always have; () if these rows are whole, or if a column may
    belong to the key or not.
    """
    if evidence.deletes < DELETES_MIN:
        return ()
    if any(one.not_default and one.known < evidence.deletes for one in evidence.columns.values()):
        return ()  # other columns have values of their own
    if any(one.not_default == evidence.deletes and not one.varies for one in evidence.columns.values()):
        return ()
    found = tuple(name for name, values in evidence.columns.items() if name in columns and values.not_default)
    return found if len(found) < len(columns) else ()
