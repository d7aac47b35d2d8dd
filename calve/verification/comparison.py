"""Compare a table of the lake with its source while both change.

Checksums of buckets are compared first, then those of finer buckets where they differ, then rows. The mirror
is read at one number, after everything that was acknowledged has landed. It may be behind the snapshot of the
source, or ahead of it. So a row that differs is looked at again: only if the source has the same row in two
snapshots, and the mirror between them has another one, do they differ. Rows that keep changing are not
judged.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from calve.verification.statements import FINE_DIGITS, Statements

KEYS_MAX = 100  # rows that are named with their columns
PAUSE_S = 0.5
_POSTGRES = re.compile(r"(?:.*~)?[0-9a-f]{16}/([0-9a-f]{16})/[0-9a-f]+")
Sums = dict[str, tuple[int, str]]  # bucket, or MD5 of a key -> rows, sum of their hashes


class Side(Protocol):
    """One of the two tables, at one moment."""

    def rows(self, statement: str) -> Sequence[Sequence[Any]]: ...


class SourceSnapshot(Side, Protocol):
    """The source at one moment. `position` is None if it cannot be compared with watermarks."""

    @property
    def position(self) -> int | None: ...

    @property
    def position_text(self) -> str: ...


@dataclass(slots=True)
class Difference:
    kind: str  # missing, unexpected, changed
    key: dict[str, str | None]
    columns: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Report:
    table: str
    source_table: str
    state: str = "equal"  # equal, differs
    rows: int = 0  # of the source, in the first snapshot
    number: int | None = None  # of the lake, at the last comparison
    position: str = ""  # of the source
    is_passed: bool = False  # whether the lake is known to have passed the position
    columns: list[str] = field(default_factory=list)
    not_compared: dict[str, str] = field(default_factory=dict)
    differences: int = 0
    keys: list[Difference] = field(default_factory=list)
    unsettled: int = 0  # rows that kept changing
    mend: str | None = None

    def as_json(self) -> dict[str, Any]:
        return {name.replace("_", "-"): value for name, value in asdict(self).items()}


@dataclass(frozen=True, slots=True)
class Tables:
    """How the two tables are read: a new snapshot of the source, the lake as it is, and its positions."""

    source: Callable[[], AbstractContextManager[SourceSnapshot]]
    lake: Callable[[], tuple[Side, int]]  # with the number
    watermarks: Callable[[], Collection[str]]
    at_source: Statements
    in_lake: Statements


def compare(tables: Tables, report: Report, wait_s: float) -> Report:
    """Fill in the report. Differences are believed at once where the lake has passed the position of the
    source; else they must last for `wait_s`.
    """
    until_s = time.monotonic() + wait_s
    with tables.source() as snapshot:
        report.position = snapshot.position_text
        sums = _sums(snapshot.rows(tables.at_source.buckets()))
        report.rows = sum(count for count, _ in sums.values())
        # An idle source has nothing to send behind the end of its log: equal rows need no position.
        report.is_passed = _wait_for(snapshot.position, tables.watermarks, 0)
        lake, report.number = tables.lake()
        coarse = _differing(sums, _sums(lake.rows(tables.in_lake.buckets())))
        if coarse and not report.is_passed:
            report.is_passed = _wait_for(snapshot.position, tables.watermarks, until_s)
            lake, report.number = tables.lake()
            coarse = _differing(sums, _sums(lake.rows(tables.in_lake.buckets())))
        if not coarse:
            return report
        fine = _differing(
            _sums(snapshot.rows(tables.at_source.buckets(FINE_DIGITS, coarse))),
            _sums(lake.rows(tables.in_lake.buckets(FINE_DIGITS, coarse))),
        )
        here = _sums(lake.rows(tables.in_lake.rows(FINE_DIGITS, fine)))
        there = _sums(snapshot.rows(tables.at_source.rows(FINE_DIGITS, fine)))
    return _settled(tables, report, _Round(fine, there, here), until_s)


@dataclass(slots=True)
class _Round:
    """Rows of the buckets that differ: of the source, and of the lake after that snapshot."""

    buckets: Collection[str]
    there: Sums
    here: Sums


def _settled(tables: Tables, report: Report, last: _Round, until_s: float) -> Report:
    candidates = {key for key in {*last.there, *last.here} if last.there.get(key) != last.here.get(key)}
    while candidates:
        with tables.source() as snapshot:
            there = _sums(snapshot.rows(tables.at_source.rows(FINE_DIGITS, last.buckets)))
            # The source had the same row before and after the lake was read.
            stable = {key for key in candidates if there.get(key) == last.there.get(key)}
            is_late = time.monotonic() >= until_s
            if (stable == candidates and report.is_passed) or is_late:
                report.unsettled = len(candidates - stable)
                return _described(tables, report, snapshot, stable)
            time.sleep(min(PAUSE_S, max(0.0, until_s - time.monotonic())))
            report.position = snapshot.position_text
            report.is_passed = _wait_for(snapshot.position, tables.watermarks, until_s)
            lake, report.number = tables.lake()
            here = _sums(lake.rows(tables.in_lake.rows(FINE_DIGITS, last.buckets)))
            last = _Round(last.buckets, there, here)
        candidates = {key for key in candidates if last.there.get(key) != last.here.get(key)}
    return report


def _described(tables: Tables, report: Report, snapshot: Side, keys: Collection[str]) -> Report:
    report.differences = len(keys)
    report.state = "differs" if keys else "equal"
    if not keys:
        return report
    lake, report.number = tables.lake()
    chosen = sorted(keys)[:KEYS_MAX]
    there = _texts(snapshot.rows(tables.at_source.texts(chosen)))
    here = _texts(lake.rows(tables.in_lake.texts(chosen)))
    report.keys = [_difference(tables.at_source, there.get(key), here.get(key)) for key in chosen]
    return report


def _difference(
    statements: Statements, there: Sequence[Any] | None, here: Sequence[Any] | None
) -> Difference:
    known = there if there is not None else here
    assert known is not None, "a row that differs is on one side at least"
    width = len(statements.key)
    key = {column.name: value for column, value in zip(statements.key, known[:width], strict=True)}
    if here is None or there is None:
        return Difference("missing" if here is None else "unexpected", key)
    values = zip(statements.columns, there[width:], here[width:], strict=True)
    return Difference("changed", key, [column.name for column, one, other in values if one != other])


def _wait_for(position: int | None, watermarks: Callable[[], Collection[str]], until_s: float) -> bool:
    """Whether the lake is known to have passed a position of PostgreSQL's log."""
    while position is not None:
        known = [int(found[1], 16) for mark in watermarks() if (found := _POSTGRES.fullmatch(mark))]
        if any(mark >= position for mark in known):
            return True
        if not known or time.monotonic() >= until_s:
            return False
        time.sleep(PAUSE_S)
    return False  # without such positions, only time tells


def _sums(rows: Sequence[Sequence[Any]]) -> Sums:
    return {str(bucket): (int(count), str(sum_)) for bucket, count, sum_ in rows}


def _texts(rows: Sequence[Sequence[Any]]) -> dict[str, Sequence[Any]]:
    return {str(row[0]): list(row[1:]) for row in rows}


def _differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> set[str]:
    return {name for name in {*one, *other} if one.get(name) != other.get(name)}
