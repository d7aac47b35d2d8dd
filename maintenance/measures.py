"""The metrics of maintenance."""

from __future__ import annotations

from typing import Any

from prometheus_client import Counter, Histogram

STEP_S = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)

moments_forgotten = Counter("calve_maintenance_moments_forgotten_total", "Moments that are no longer kept.")
snapshots_expired = Counter("calve_maintenance_snapshots_expired_total", "Snapshots removed from tables.")
history_rows_deleted = Counter("calve_maintenance_history_rows_deleted_total", "Rows of the history deleted.")
files_deleted = Counter("calve_maintenance_files_deleted_total", "Files of expired snapshots deleted.")
_files_rewritten = Counter("calve_maintenance_files_rewritten_total", "Data files that compaction replaced.")
_bytes_rewritten = Counter("calve_maintenance_bytes_rewritten_total", "Bytes that compaction rewrote.")
_steps = Histogram("calve_maintenance_step_seconds", "Time of a step on a table in a worker.", buckets=STEP_S)


def compacted(facts: dict[str, Any]) -> None:
    """A step of a worker, by what it reports."""
    _files_rewritten.inc(_count(facts, "rewritten-data-files"))
    _bytes_rewritten.inc(_count(facts, "rewritten-bytes"))
    _steps.observe(_count(facts, "ms") / 1000)


def _count(facts: dict[str, Any], name: str) -> float:
    value = facts.get(name, 0)
    return value if isinstance(value, int | float) and value >= 0 else 0
