"""The answer to `explain: true`: what a query read, and of how much."""

from __future__ import annotations

from typing import Any

from query.resolve import Plan


def described(profile: dict[str, Any], plan: Plan) -> dict[str, Any]:
    """The plan with DuckDB's figures, and the size of each table from the summary of its snapshot."""
    tables = []
    for read in plan.reads:
        summary = read.summary
        tables.append(
            {
                "table": read.shown,
                "snapshot_id": read.snapshot_id,
                "files_total": _whole(summary.get("total-data-files")),
                "bytes_total": _whole(summary.get("total-files-size")),
                "rows_total": _whole(summary.get("total-records")),
            }
        )
    return {"tables": tables, "plan": profile}


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() else None
