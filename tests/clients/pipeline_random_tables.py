"""Random tables and random histories of them: keys of all types, composite keys, partitions."""

from __future__ import annotations

import datetime as dt
import random
import uuid
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from tests.clients.pipeline_events import Event, Row, delete, insert, moved, truncate, update

_DAY = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
VALUES: dict[str, list[Any]] = {
    "int": [-(2**31), -7, 0, 7, 2**31 - 1],
    "long": [-(2**63), -1, 0, 255, 256, 2**63 - 1],
    "decimal(10,2)": [Decimal(text) for text in ("-99999999.99", "0.00", "0.01", "12.50", "1.00")],
    "decimal(38,0)": [Decimal(-(10**37)), Decimal(1), Decimal(2), Decimal(10**38 - 1)],
    "date": [dt.date(1969, 12, 31), dt.date(2026, 1, 1), dt.date(2026, 2, 1), dt.date(9999, 12, 31)],
    "timestamp": [(_DAY + dt.timedelta(microseconds=n)).replace(tzinfo=None) for n in range(4)],
    "timestamptz": [_DAY + dt.timedelta(days=n, microseconds=1) for n in (-20000, 0, 1, 40)],
    "string": ["", "a", "a'b\\c\"`", "ß€😀", "日本\n\t", "1:a", "a" * 40],
    "uuid": [uuid.UUID(int=n) for n in (0, 2**64, 2**100, 2**128 - 1)],
    "binary": [b"", b"\x00", b"\x00\xff", b"\xff'"],
    "fixed[4]": [b"\x00\x00\x00\x00", b"abcd", b"abce", b"\xff\xff\xff\xff"],
    "boolean": [False, True],
}
TRANSFORMS: dict[str, list[str]] = {
    "int": ["identity", "bucket[3]", "truncate[10]"],
    "long": ["identity", "bucket[3]", "truncate[10]"],
    "decimal(10,2)": ["identity", "bucket[3]"],
    "date": ["identity", "year", "month", "day", "bucket[3]"],
    "timestamp": ["year", "month", "day", "hour"],
    "timestamptz": ["year", "month", "day", "hour"],
    "string": ["identity", "bucket[3]", "truncate[1]"],
    "uuid": ["bucket[3]"],
    "binary": ["bucket[3]"],
    "fixed[4]": ["bucket[3]"],
    "boolean": ["identity"],
}


@dataclass
class RandomTable:
    """What a table looks like, and its next changes. `partition` has source columns and transforms."""

    seed: int
    columns: dict[str, str] = field(default_factory=dict)
    key: tuple[str, ...] = ()
    partition: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        types = list(VALUES)
        # Each type is the key of some table: the first ones in turn.
        kinds = [types[self.seed % len(types)]]
        kinds += self.random.sample(types, self.random.choice([0, 0, 1, 2]))
        self.columns = {f"k{n}": type_ for n, type_ in enumerate(kinds)}
        self.key = tuple(self.columns)
        self.columns |= {"name": "string", "big": "string", "v": self.random.choice(types)}
        sources = [column for column in self.columns if column != "big" and self._transforms(column)]
        count = self.random.choice([0, 0, 1, 2])
        for column in self.random.sample(sources, min(count, len(sources))):
            self.partition.append((column, self.random.choice(self._transforms(column))))
        self._plain = [column for column in self.columns if column not in self.key]

    def _transforms(self, column: str) -> list[str]:
        return TRANSFORMS.get(self.columns[column], [])

    def batch(self, size: int) -> list[Event]:
        found: list[Event] = []
        while len(found) < size:
            found += self._step()
        return found

    def _step(self) -> list[Event]:
        key, kind = self._key(), self.random.random()
        absent = [column for column in self._plain if self.random.random() < 0.3]
        if kind < 0.35:
            return [insert(**key, **self._values())]
        if kind < 0.65:
            return [update(*absent, **key, **_without(self._values(), absent))]
        if kind < 0.82:
            return [delete(**key)]
        if kind < 0.98:
            return [delete(**key), moved(key, *absent, **self._key(), **_without(self._values(), absent))]
        return [truncate()]

    def _key(self) -> Row:
        return {column: self.random.choice(VALUES[self.columns[column]]) for column in self.key}

    def _values(self) -> Row:
        row: Row = {
            "name": f"name {self.random.randrange(1000)}",
            "big": f"big {self.random.randrange(1000)}",
        }
        row["v"] = None if self.random.random() < 0.2 else self.random.choice(VALUES[self.columns["v"]])
        return row


def _without(row: Row, names: list[str]) -> Row:
    return {name: value for name, value in row.items() if name not in names}
