"""The numbers of the server, for Prometheus.

    requests = metrics.histogram("calve_request_duration_seconds", "Time to answer.", ("operation", "status"))
    requests.labels("loadTable", "2xx").observe(0.0004)
    metrics.render()        # the text of /metrics, over all server processes

Families are declared once, before the server starts. `labels` finds a child by a dictionary look-up; callers
on a hot path may keep the child. With several processes, `share` comes before the first fork and `attach`
after each; counters and histograms are added up over all processes that ever ran, gauges over those alive.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Literal

from calve.telemetry import process
from calve.telemetry.cells import Memory, Series, Slot

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
LATENCY_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)

Kind = Literal["counter", "gauge", "histogram"]


class Child:
    """One series of this process. Every change is safe from any thread."""

    __slots__ = ("_bounds", "_cells", "_first", "_lock")

    def __init__(self, bounds: Sequence[float], lock: threading.Lock) -> None:
        self._bounds = bounds
        self._lock = lock
        self._first = 0
        self._cells = memoryview(bytearray(8 * (len(bounds) + 2))).cast("d")

    def place(self, cells: memoryview[float], first: int) -> None:
        """From now on the numbers are kept there."""
        self._cells, self._first = cells, first

    def add(self, amount: float = 1) -> None:
        """For a counter (never negative) or a gauge."""
        with self._lock:
            self._cells[self._first] += amount

    def set(self, value: float) -> None:
        """For a gauge."""
        with self._lock:
            self._cells[self._first] = value

    def observe(self, value: float) -> None:
        """For a histogram. The cells: one for each bound, one for what lies above, the sum."""
        bounds, cells, first = self._bounds, self._cells, self._first
        at = first + bisect_left(bounds, value)
        with self._lock:
            cells[at] += 1
            cells[first + len(bounds) + 1] += value


class Family:
    """A metric with its labels."""

    def __init__(
        self, name: str, doc: str, labels: tuple[str, ...], kind: Kind, bounds: Sequence[float]
    ) -> None:
        self.name, self.doc, self.label_names, self.kind, self.bounds = name, doc, labels, kind, bounds
        self._children: dict[tuple[str, ...], Child] = {}
        self._lock = threading.Lock()
        self._slot: Slot | None = None

    @property
    def size(self) -> int:
        """Cells that one series takes."""
        return len(self.bounds) + 2 if self.kind == "histogram" else 1

    def labels(self, *values: str) -> Child:
        """The series with these label values."""
        child = self._children.get(values)
        return child if child is not None else self._new(values)

    def attach(self, slot: Slot) -> None:
        """Keep the numbers of all series in this slot from now on."""
        with self._lock:
            self._slot = slot
            for values, child in self._children.items():
                self._place(child, values)

    def _new(self, values: tuple[str, ...]) -> Child:
        assert len(values) == len(self.label_names), f"{self.name} has the labels {self.label_names}"
        with self._lock:
            child = self._children.get(values)
            if child is None:
                child = Child(self.bounds, self._lock)
                self._place(child, values)
                self._children[values] = child
            return child

    def _place(self, child: Child, values: tuple[str, ...]) -> None:
        first = self._slot.allocate(self.name, values, self.size) if self._slot is not None else None
        if self._slot is None or first is None:
            return  # a slot that is full: the series is counted for nobody, and the server goes on
        if self.kind == "gauge":
            self._slot.cells[first] = 0  # what a dead process had in hand is gone with it
        child.place(self._slot.cells, first)


class Metrics:
    """All families of a server."""

    def __init__(self) -> None:
        self._families: dict[str, Family] = {}
        self._memory = Memory(1)
        self._slot = self._memory.slot(0)
        self._slot.take()

    def counter(self, name: str, doc: str, labels: tuple[str, ...] = ()) -> Family:
        return self._declare(Family(name, doc, labels, "counter", ()))

    def gauge(self, name: str, doc: str, labels: tuple[str, ...] = ()) -> Family:
        return self._declare(Family(name, doc, labels, "gauge", ()))

    def histogram(
        self, name: str, doc: str, labels: tuple[str, ...] = (), bounds: Sequence[float] = LATENCY_S
    ) -> Family:
        return self._declare(Family(name, doc, labels, "histogram", bounds))

    def share(self, processes: int) -> None:
        """Make room for so many processes. In the parent, before it forks."""
        self._memory = Memory(processes)

    def attach(self, number: int) -> None:
        """Be the process with this number."""
        self._slot = self._memory.slot(number)
        self._slot.take()
        for family in self._families.values():
            family.attach(self._slot)

    def render(self) -> bytes:
        """The text that Prometheus reads."""
        slots = self._memory.slots()
        alive = [slot for slot in slots if process.is_alive(slot.pid)]
        lines: list[str] = []
        for family in self._families.values():
            counted = alive if family.kind == "gauge" else slots
            lines += _family_lines(family, _added(family, counted))
        lines += process.lines([slot.pid for slot in alive])
        return ("\n".join(lines) + "\n").encode()

    def _declare(self, family: Family) -> Family:
        known = self._families.setdefault(family.name, family)
        assert (known.kind, known.label_names) == (family.kind, family.label_names), (
            f"two kinds of {family.name}"
        )
        known.attach(self._slot)
        return known


def _added(family: Family, slots: Iterable[Slot]) -> dict[tuple[str, ...], list[float]]:
    """The cells of each series of the family, summed over the slots."""
    found: defaultdict[tuple[str, ...], list[Series]] = defaultdict(list)
    for slot in slots:
        for series in slot.read():
            if series.name == family.name:
                found[series.labels].append(series)
    return {
        labels: [sum(column) for column in zip(*(one.values for one in series), strict=True)]
        for labels, series in sorted(found.items())
    }


def _family_lines(family: Family, series: dict[tuple[str, ...], list[float]]) -> list[str]:
    lines = [f"# HELP {family.name} {_escaped(family.doc)}", f"# TYPE {family.name} {family.kind}"]
    for values, cells in series.items():
        labels = [
            f'{name}="{_quoted(value)}"' for name, value in zip(family.label_names, values, strict=True)
        ]
        if family.kind == "histogram":
            lines += _histogram_lines(family, labels, cells)
        else:
            lines.append(f"{family.name}{_braced(labels)} {_number(cells[0])}")
    return lines


def _histogram_lines(family: Family, labels: list[str], cells: list[float]) -> list[str]:
    lines, running = [], 0.0
    for bound, count in zip([*map(_number, family.bounds), "+Inf"], cells, strict=False):
        running += count
        bucket = _braced([*labels, f'le="{bound}"'])
        lines.append(f"{family.name}_bucket{bucket} {_number(running)}")
    lines.append(f"{family.name}_sum{_braced(labels)} {_number(cells[-1])}")
    lines.append(f"{family.name}_count{_braced(labels)} {_number(running)}")
    return lines


def _braced(labels: list[str]) -> str:
    return "{" + ",".join(labels) + "}" if labels else ""


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _quoted(text: str) -> str:
    return _escaped(text).replace('"', '\\"')


metrics = Metrics()
