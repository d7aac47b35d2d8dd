"""Figures as a table for people. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Of one measurement, in milliseconds."""

    count: int
    p50_ms: float
    p95_ms: float
    p99_ms: float
    max_ms: float

    @classmethod
    def of(cls, values_ms: Iterable[float]) -> Percentiles:
        ranked = sorted(values_ms)
        if not ranked:
            nothing = float("nan")
            return cls(0, nothing, nothing, nothing, nothing)
        last = len(ranked) - 1
        p50, p95, p99 = (ranked[min(last, int(len(ranked) * part))] for part in (0.5, 0.95, 0.99))
        return cls(len(ranked), p50, p95, p99, ranked[-1])

    @classmethod
    def of_us(cls, values_us: Iterable[float]) -> Percentiles:
        return cls.of(value / 1000 for value in values_us)


def median_of(stages: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The median of each stage over several jobs, in the order in which they were told."""
    names = dict.fromkeys(name for one in stages for name in one)
    return {name: statistics.median(one[name] for one in stages if name in one) for name in names}


def told(stages: Mapping[str, float], unit: str = "ms") -> str:
    return ", ".join(f"{name} {figure(value)} {unit}" for name, value in stages.items())


def met(is_met: bool | None) -> str:
    return "" if is_met is None else "yes" if is_met else "NO"


def figure(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """In Markdown, so that it can be read in a terminal and pasted into a page; texts left, figures right."""
    cells = [list(head), *([*row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    written = []
    for number, row in enumerate(cells):
        aligned = [
            cell.ljust(width) if column in (0, len(row) - 1) else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        written.append(f"| {' | '.join(aligned)} |")
        if number == 0:
            written.append(f"|{'|'.join('-' * (width + 2) for width in widths)}|")
    return "\n".join(written)
