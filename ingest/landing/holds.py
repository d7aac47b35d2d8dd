"""Compute how far each table may land while others wait. Pure.

A source transaction becomes visible as a whole. If one of its tables waits, the transaction waits, and each
other table in it may land only what is before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from ingest.change import TableName


class Span(Protocol):
    """Source transactions between two ids contain these tables."""

    @property
    def tables(self) -> frozenset[TableName]: ...
    @property
    def first_id(self) -> int: ...
    @property
    def last_id(self) -> int: ...


def limits(held: Mapping[TableName, int], spans: Iterable[Span]) -> dict[TableName, int]:
    """Return the last journal id that each table may land; a table that is not in the result has no limit.

    `held` are the tables that wait, with the id up to which they may land.
    """
    found = dict(held)
    left = list(spans)
    while True:
        waiting = [one for one in left if _waits(one, found)]
        if not waiting:
            return found
        for one in waiting:
            for table in one.tables:
                found[table] = min(found.get(table, one.first_id - 1), one.first_id - 1)
        left = [one for one in left if one not in waiting]


def _waits(span: Span, found: Mapping[TableName, int]) -> bool:
    return any(found[table] < span.last_id for table in span.tables if table in found)
