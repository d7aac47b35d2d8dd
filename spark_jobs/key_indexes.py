"""The indexes that a worker keeps, each for one state of its table."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from spark_jobs.key_index import KeyIndex

BYTES_IN_ALL_MAX = 512 * 2**20


class KeyIndexes:
    """The indexes of this worker; those not used for long go first. From any thread."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, ...], tuple[Any, KeyIndex]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, table: tuple[str, ...], state: Any) -> KeyIndex | None:
        """The index of a table that is in this state: its uuid and snapshot, and what its key is."""
        with self._lock:
            found = self._known.get(table)
            if found is None or found[0] != state:
                return None
            self._known.move_to_end(table)
            return found[1]

    def put(self, table: tuple[str, ...], state: Any, index: KeyIndex) -> None:
        with self._lock:
            self._known[table] = (state, index)
            self._known.move_to_end(table)
            while len(self._known) > 1 and self._bytes() > BYTES_IN_ALL_MAX:
                self._known.popitem(last=False)

    def forget(self, table: tuple[str, ...]) -> None:
        with self._lock:
            self._known.pop(table, None)

    def _bytes(self) -> int:
        return sum(index.size_bytes for _, index in self._known.values())


def state_of(metadata: Mapping[str, Any]) -> tuple[str, int | None]:
    """What an index belongs to."""
    snapshot = metadata.get("current-snapshot-id")
    return (metadata["table-uuid"], None if snapshot in (None, -1) else snapshot)
