"""What the tables of the pipeline must hold, by plain Python: event by event, no folding, no join."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from spark_jobs.landing.late_values import CORRECTION
from tests.clients.pipeline_events import Event, Row

Key = tuple[Any, ...]


@dataclass
class Model:
    """`mirror` has one row of each key, `history` every event with its row as it then was."""

    columns: tuple[str, ...]
    key: tuple[str, ...]
    mirror: dict[Key, Row] = field(default_factory=dict)
    history: list[tuple[Event, Row]] = field(default_factory=list)

    def land(self, events: list[Event], *, late: bool = False) -> None:
        past = list(self.history)
        known = {(event.source, event.id) for event, _ in past}
        graves: dict[Key, Row] = {}
        has_truncates = any(event.operation == "truncate" for event in events)
        for event in events:
            if late and (event.source, event.id) in known:
                continue
            row = {column: event.row.get(column) for column in self.columns}
            if event.operation == "truncate":
                self._truncate(event, past if late else [])
                graves.clear()
            elif late and self._is_superseded(event, past):
                self.history.append((event, row))  # with the gaps it came with
                if not has_truncates:
                    self._correct(event, past)
                continue
            elif event.operation == "delete":
                gone = self.mirror.pop(self._key(event.row), None)
                if gone is not None:
                    graves[self._key(event.row)] = gone
            else:
                row = self._filled(event, row, graves)
                self.mirror[self._key(event.row)] = row
            self.history.append((event, row))

    def _key(self, row: Row) -> Key:
        return tuple(row[column] for column in self.key)

    def _filled(self, event: Event, row: Row, graves: dict[Key, Row]) -> Row:
        own = self._key(event.row)
        origin = own if event.root is None else self._key(event.root)
        base = self.mirror.get(origin)
        if base is None and origin != own:
            base = graves.get(origin)
        return row | {column: None if base is None else base[column] for column in event.absent}

    def _correct(self, event: Event, past: list[tuple[Event, Row]]) -> None:
        """Apply the columns of a late event that all newer ones of its row have left out."""
        newer = [
            other
            for other, _ in past
            if other.source == event.source
            and other.position > event.position
            and not other.id.endswith(CORRECTION)
            and (other.operation == "truncate" or self._key(other.row) == self._key(event.row))
        ]
        own = {column for column in self.columns if column not in (*event.absent, *self.key)}
        for other in newer:
            own &= set(other.absent) if other.operation == "update" else set()
        key = self._key(event.row)
        if event.operation == "delete" or not own or key not in self.mirror:
            return
        row = self.mirror[key] | {column: event.row.get(column) for column in own}
        self.mirror[key] = row
        position = max(other.position for other in newer)
        correction = Event("update", row, source=event.source, position=position, id=event.id + CORRECTION)
        self.history.append((correction, row))

    def _truncate(self, event: Event, past: list[tuple[Event, Row]]) -> None:
        """A late one leaves the rows that have a newer change."""
        newer = {
            self._key(other.row)
            for other, _ in past
            if event.position
            and other.source == event.source
            and other.position > event.position
            and other.operation != "truncate"
        }
        self.mirror = {key: row for key, row in self.mirror.items() if key in newer}

    def _is_superseded(self, event: Event, past: list[tuple[Event, Row]]) -> bool:
        return bool(event.position) and any(
            other.source == event.source
            and other.position > event.position
            and (other.operation == "truncate" or self._key(other.row) == self._key(event.row))
            for other, _ in past
        )
