"""What should be in the tables: a plain in-memory model of changes, and the deliveries that carry them.

Each source owns its keys, so the order of its own events is the only order that matters. A delivery is a run
of a source's events; some are sent again, whole or cut differently, and all are shuffled within a window.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import orjson

WINDOW = 6  # deliveries of a source overtake each other by at most so many
REPEATED = 0.25
FIRST_MS = 1_700_000_000_000

Row = tuple[int, int, str, str | None]  # id, v, name, note
Logged = tuple[str, int, int | None, str | None, str | None]  # operation, id, v, name, note


@dataclass(frozen=True, slots=True)
class Size:
    """How much is sent, and how often each part of the pipeline is killed while it is."""

    changes: int
    tables: int
    kills: int
    sources: int = 3
    keys: int = 40  # of one source in one table
    batch: int = 100


@dataclass(frozen=True, slots=True)
class Delivery:
    """`events` is a JSON list. No delivery of a phase is sent before the phase has begun."""

    source: str
    number: int
    events: bytes
    phase: int


@dataclass(slots=True)
class World:
    """The model. `mirror` and `changes` are what the tables have to hold at the end."""

    space: str
    size: Size
    seed: int
    phases: int  # the deliveries of each source are shared among them
    mirror: dict[str, dict[int, Row]] = field(default_factory=dict)
    changes: dict[str, dict[str, Logged]] = field(default_factory=dict)

    @property
    def tables(self) -> list[str]:
        return [f"t{number}" for number in range(self.size.tables)]

    @property
    def sources(self) -> list[str]:
        return [f"{self.space}-s{number}" for number in range(self.size.sources)]

    def deliveries(self) -> dict[str, list[Delivery]]:
        """Of each source, in the order in which its connections take them. Fills the model."""
        self.mirror = {table: {} for table in self.tables}
        self.changes = {table: {} for table in self.tables}
        return {source: self._of_source(place) for place, source in enumerate(self.sources)}

    def _of_source(self, place: int) -> list[Delivery]:
        rng = random.Random(f"{self.seed}-{place}")
        count = self.size.changes // self.size.sources
        count += place < self.size.changes % self.size.sources
        runs: list[tuple[float, list[bytes]]] = []
        waiting: list[bytes] = []
        former: list[bytes] = []
        for event in self._events(rng, place, count):
            waiting.append(event)
            if len(waiting) >= self.size.batch:
                runs += self._sent(rng, len(runs), waiting, former)
                former, waiting = waiting, []
        if waiting:
            runs += self._sent(rng, len(runs), waiting, former)
        runs.sort(key=lambda run: run[0])
        return [
            Delivery(self.sources[place], n, b"[" + b",".join(run) + b"]", n * self.phases // len(runs))
            for n, (_, run) in enumerate(runs)
        ]

    def _sent(
        self, rng: random.Random, at: int, run: list[bytes], former: list[bytes]
    ) -> Iterator[tuple[float, list[bytes]]]:
        yield at + rng.uniform(0, WINDOW), run
        if rng.random() < REPEATED:
            # As it was; or as a producer that starts again from an older place cuts it.
            half = len(former) // 2
            again = run if rng.random() < 0.5 else former[half:] + run[: len(run) - half]
            yield at + rng.uniform(0, 2 * WINDOW), again

    def _events(self, rng: random.Random, place: int, count: int) -> Iterator[bytes]:
        source = self.sources[place]
        for sequence in range(1, count + 1):
            table = rng.choice(self.tables)
            key = rng.randrange(self.size.keys) * self.size.sources + place
            before = self.mirror[table].get(key)
            after: Row | None = (key, sequence, f"{source}:{sequence}", rng.choice((None, "é", "x" * 20)))
            if before is None:
                operation = "insert"
            elif rng.random() < 0.3:
                operation, after = "delete", None
            else:
                operation = "update"
            if after is None:
                del self.mirror[table][key]
            else:
                self.mirror[table][key] = after
            kept = after[1:] if after is not None else (None, None, None)
            self.changes[table][f"{source}:{sequence}"] = (operation, key, *kept)
            yield orjson.dumps(
                {
                    "sequence": sequence,
                    "timestamp": FIRST_MS + sequence,
                    "operation": operation.upper(),
                    "table": f"{self.space}.{table}",
                    "rowId": str(key),
                    "before": _named(before) if operation == "delete" else None,
                    "after": _named(after),
                }
            )


def _named(row: Row | None) -> dict[str, Any] | None:
    return dict(zip(("id", "v", "name", "note"), row, strict=True)) if row is not None else None
