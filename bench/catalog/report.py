"""What was measured, as a table for people and as JSON for machines. Pure: samples in, text and dicts out."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from bench.catalog.rows import Row, Sample

START_AIM_S = 2.0
MEMORY_AIM = 1 / 3


@dataclass
class Side:
    """All that is known of one server."""

    name: str
    start_s: list[float] = field(default_factory=list)
    start_cpu_s: list[float] = field(default_factory=list)
    idle_mb: float = 0.0
    loaded_mb: float = 0.0
    samples: dict[tuple[str, int], list[Sample]] = field(default_factory=lambda: defaultdict(list))

    def median(self, key: tuple[str, int], value: Callable[[Sample], float]) -> float:
        return statistics.median(value(sample) for sample in self.samples[key])


@dataclass(frozen=True, slots=True)
class Line:
    title: str
    clients: int | None
    unit: str
    rival: float
    ours: float
    aim: str
    met: bool | None

    @property
    def ratio(self) -> float:
        return self.ours / self.rival if self.rival else float("nan")


def lines(rows: Iterable[Row], rival: Side, ours: Side, database: str | None) -> list[Line]:
    """`database` chooses the aims; None where there are none, because the rival is another commit."""
    found = []
    for row in rows:
        for clients in row.clients:
            found += _lines_of(row, clients, rival, ours, database)
    starts = statistics.median(rival.start_s), statistics.median(ours.start_s)
    met = starts[1] <= START_AIM_S
    found.append(Line("start-up", None, "s", *starts, aim=f"≤ {START_AIM_S:g} s", met=met))
    starts = statistics.median(rival.start_cpu_s), statistics.median(ours.start_cpu_s)
    found.append(Line("start-up, processor time", None, "s", *starts, aim="", met=None))
    found.append(Line("resident, idle", None, "MB", rival.idle_mb, ours.idle_mb, aim="", met=None))
    met = ours.loaded_mb <= MEMORY_AIM * rival.loaded_mb
    found.append(
        Line("resident, after load", None, "MB", rival.loaded_mb, ours.loaded_mb, aim="≤ 1/3", met=met)
    )
    return found


def _lines_of(row: Row, clients: int, rival: Side, ours: Side, database: str | None) -> list[Line]:
    key = (row.key, clients)
    rates = rival.median(key, _rate), ours.median(key, _rate)
    wanted = row.aims.get((database, clients)) if database else None
    met = None if wanted is None else rates[1] >= wanted * rates[0]
    aim = "" if wanted is None else f"≥ {wanted:g}x"
    found = [Line(row.title, clients, "/s", *rates, aim=aim, met=met)]
    if row.p99_aim is not None:
        p99s = rival.median(key, _p99_ms), ours.median(key, _p99_ms)
        met = p99s[1] <= row.p99_aim * p99s[0]
        found.append(Line(f"{row.title}, p99", clients, "ms", *p99s, aim=f"≤ {row.p99_aim:g}x", met=met))
    return found


def table(found: list[Line], rival: Side, ours: Side) -> str:
    rows = [["", "clients", "", rival.name, ours.name, "ratio", "aim", "met"]]
    for line in found:
        met = "" if line.met is None else "yes" if line.met else "NO"
        clients = "" if line.clients is None else str(line.clients)
        figures = [_figure(line.rival), _figure(line.ours), f"{line.ratio:.2f}x"]
        rows.append([line.title, clients, line.unit, *figures, line.aim, met])
    return _aligned(rows)


def where_the_time_goes(rows: Iterable[Row], rival: Side, ours: Side) -> str:
    """Wall and processor time of one operation of each row (the rest is waiting)."""
    head = ["µs for one operation", "clients"]
    for side in (rival, ours):
        head += [f"{side.name} wall", "cpu"]
    found = [[*head, "client cpu"]]
    for row in rows:
        for clients in row.clients:
            key = (row.key, clients)
            figures = []
            for side in (rival, ours):
                # Wall time of a client's operation; processor time of the server for it.
                figures += [side.median(key, lambda s: s.seconds * clients / s.operations * 1e6)]  # noqa: B023
                figures += [side.median(key, lambda s: s.server_cpu_s / s.operations * 1e6)]
            figures += [ours.median(key, lambda s: s.client_cpu_s / s.operations * 1e6)]
            found.append([row.title, str(clients), *(f"{figure:,.0f}" for figure in figures)])
    return _aligned(found)


def notes(rows: Iterable[Row], sides: Iterable[Side]) -> list[str]:
    """What happened beside success: conflicts are expected, the others are not."""
    found = []
    for side in sides:
        for row in rows:
            for clients in row.clients:
                samples = side.samples[row.key, clients]
                sums = {
                    name: sum(getattr(s, name) for s in samples) for name in ("conflicts", "unknown", "lost")
                }
                if any(sums.values()):
                    done = sum(s.operations for s in samples)
                    told = ", ".join(f"{count} {name}" for name, count in sums.items() if count)
                    found.append(f"{side.name}, {row.title}, {clients} clients: {told} in {done} operations")
    return found


def as_json(
    rows: Iterable[Row], found: list[Line], sides: Iterable[Side], about: dict[str, Any]
) -> dict[str, Any]:
    return {
        "about": about,
        "lines": [{**asdict(line), "ratio": line.ratio} for line in found],
        "sides": [_side(side, rows) for side in sides],
    }


def _side(side: Side, rows: Iterable[Row]) -> dict[str, Any]:
    measured = [
        {
            "row": row.key,
            "clients": clients,
            "samples": [asdict(sample) for sample in side.samples[row.key, clients]],
        }
        for row in rows
        for clients in row.clients
    ]
    return {
        "name": side.name,
        "start_s": side.start_s,
        "start_cpu_s": side.start_cpu_s,
        "idle_mb": side.idle_mb,
        "loaded_mb": side.loaded_mb,
        "rows": measured,
    }


def _rate(sample: Sample) -> float:
    return sample.rate


def _p99_ms(sample: Sample) -> float:
    return sample.p99_ms


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _aligned(rows: list[list[str]]) -> str:
    """A Markdown table, so that it can be read in a terminal and pasted into a page."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    written = []
    for number, row in enumerate(rows):
        cells = [
            cell.ljust(width) if column in (0, len(row) - 1) else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        written.append(f"| {' | '.join(cells)} |")
        if number == 0:
            written.append(f"|{'|'.join('-' * (width + 2) for width in widths)}|")
    return "\n".join(written)
