"""The folder in which the hand-written job finds its changes: files that are whole and durable, or absent."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from bench.ingest import events


def content(changes: Sequence[events.Event]) -> bytes:
    return b"".join(map(events.line, changes))


def put(folder: Path, number: int, data: bytes) -> None:
    """As durable as an acknowledgement is."""
    hidden = folder / f".{number:06}.json"
    with hidden.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    hidden.rename(folder / f"{number:06}.json")
