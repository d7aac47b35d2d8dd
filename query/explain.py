"""The answer to `explain: true`: what a query read, and of how much."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from query.resolve import Plan, TableRead

Operator = dict[str, Any]


def described(profile: dict[str, Any], plan: Plan) -> dict[str, Any]:
    """The files that were read of each table, by DuckDB's figures; how many there are, by its snapshot."""
    scans = list(_scans(profile))
    return {
        "tables": [_table(read, scans) for read in plan.reads],
        "bytes_read": profile.get("total_bytes_read"),
        "rows_scanned": profile.get("cumulative_rows_scanned"),
        "latency_ms": round(float(profile.get("latency", 0)) * 1000, 3),
        "plan": profile,
    }


def _table(read: TableRead, scans: list[Operator]) -> dict[str, Any]:
    of_table = [scan for scan in scans if any(name.startswith(read.location) for name in _files(scan))]
    files = sum(int(scan["extra_info"].get("Total Files Read", 0)) for scan in of_table)
    total = _whole(read.summary.get("total-data-files"))
    return {
        "table": read.shown,
        "snapshot_id": read.snapshot_id,
        "partitioned_by": read.partitioned_by,
        "files_read": files,
        "files_total": total,
        "files_pruned": None if total is None else max(0, total - files),
        "rows_read": sum(int(scan.get("operator_cardinality", 0)) for scan in of_table),
        "rows_total": _whole(read.summary.get("total-records")),
        "bytes_total": _whole(read.summary.get("total-files-size")),
    }


def _scans(plan: Operator) -> Iterator[Operator]:
    """The operators that read tables of the lake."""
    pending = [plan]
    while pending:
        node = pending.pop()
        if str(node.get("operator_name", "")).strip() == "ICEBERG_SCAN":
            yield node
        pending.extend(node.get("children") or ())


def _files(scan: Operator) -> list[str]:
    """DuckDB names at least the first ones."""
    return [name.strip() for name in str(scan["extra_info"].get("Filename(s)", "")).split(",")]


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() else None
