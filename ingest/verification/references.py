"""Compare checksums that a producer has posted of its source at a position. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

WAITING = "waiting"
Buckets = Mapping[str, list[Any]]  # bucket -> rows, sum of their hashes as text


def is_due(reference: Mapping[str, Any] | None, positions: Mapping[str, str]) -> bool:
    """Return whether everything up to its position has landed, and it has not been compared yet."""
    if reference is None or reference["state"] != WAITING:
        return False
    return positions.get(reference["source"], "") >= str(reference["position"])


def compared(reference: Mapping[str, Any], here: Buckets) -> dict[str, Any]:
    """Return the reference with the result. `here` are the checksums of the table at its position."""
    rows = sum(int(bucket[0]) for bucket in here.values())
    hash_ = sum(int(bucket[1]) for bucket in here.values())
    differs = reference["count"] != rows
    if reference.get("hash") is not None:
        differs = differs or int(reference["hash"]) != hash_
    outcome: dict[str, Any] = {"rows-here": rows, "hash-here": str(hash_)}
    posted: Buckets | None = reference.get("buckets")
    if posted is not None:
        outcome["buckets-differing"] = sorted(
            name for name in {*posted, *here} if _pair(posted.get(name)) != _pair(here.get(name))
        )
        differs = differs or bool(outcome["buckets-differing"])
    return {**reference, **outcome, "state": "differs" if differs else "equal"}


def _pair(bucket: list[Any] | None) -> tuple[int, int]:
    return (int(bucket[0]), int(bucket[1])) if bucket is not None else (0, 0)
