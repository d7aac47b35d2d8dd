"""Changes as the tests of the pipeline write them down."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]
_events = itertools.count()


@dataclass
class Event:
    """One change as it is staged. `root` is the key that the row had before."""

    operation: str
    row: Row
    absent: tuple[str, ...] = ()
    root: Row | None = None
    source: str = "pg"
    position: str = ""
    id: str = field(default_factory=lambda: f"e{next(_events)}")


def insert(**row: Any) -> Event:
    return Event("insert", row)


def update(*absent: str, **row: Any) -> Event:
    return Event("update", row, absent)


def delete(**key: Any) -> Event:
    return Event("delete", key)


def truncate() -> Event:
    return Event("truncate", {})


def moved(root: Row, *absent: str, **row: Any) -> Event:
    """The second half of a key change."""
    return Event("insert", row, absent, root)


def at(position: int, event: Event, *, source: str = "pg", event_id: str | None = None) -> Event:
    event.position = f"{position:016x}"
    event.source = source
    event.id = event_id or f"{source}-{position}"
    return event
