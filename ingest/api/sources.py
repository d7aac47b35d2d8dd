"""What this process has heard of each source, for /status. The oldest are forgotten; nothing hangs on it."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(slots=True)
class SourceState:
    batches: int = 0
    events: int = 0
    last_received_sequence: int = 0
    last_acked_sequence: int = 0
    last_received_ms: int = 0
    last_acked_ms: int = 0


class Sources:
    """By warehouse and name. Used from the event loop only."""

    def __init__(self, remembered_max: int) -> None:
        self._remembered_max = remembered_max
        self._states: OrderedDict[tuple[str, str], SourceState] = OrderedDict()

    def received(self, warehouse: str, source: str, sequence: int, events: int, now_ms: int) -> SourceState:
        key = (warehouse, source)
        state = self._states.get(key)
        if state is None:
            state = self._states[key] = SourceState()
            if len(self._states) > self._remembered_max:
                self._states.popitem(last=False)
        else:
            self._states.move_to_end(key)
        state.batches += 1
        state.events += events
        state.last_received_sequence = max(state.last_received_sequence, sequence)
        state.last_received_ms = now_ms
        return state

    def of(self, warehouse: str) -> list[dict[str, Any]]:
        return [
            {"id": source, **{_camel(name): value for name, value in asdict(state).items()}}
            for (where, source), state in self._states.items()
            if where == warehouse and source
        ]


def acked(state: SourceState, sequence: int, now_ms: int) -> None:
    state.last_acked_sequence = max(state.last_acked_sequence, sequence)
    state.last_acked_ms = now_ms


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.title() for part in rest)
