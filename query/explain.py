"""Build the response to `explain: true`: which files, rows and bytes a query read, and of how many."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Any

from query.resolve import Plan, TableRead

Operator = dict[str, Any]
FILE_FIGURES = (
    *("partitions_read", "partitions_total", "partitions_pruned"),
    *("files_read", "files_total", "files_pruned"),
    *("bytes_read", "bytes_total"),
)


@dataclass(frozen=True, slots=True)
class SnapshotFiles:
    """The files of a snapshot, by path."""

    data_bytes: dict[str, int]
    delete_bytes: dict[str, int]
    partitions: dict[str, Hashable]  # of each data file; empty if the table is not partitioned


FilesOf = Callable[[TableRead], SnapshotFiles]


def described(measured: dict[str, Any], plan: Plan, files_of: FilesOf) -> dict[str, Any]:
    """Return what was read of each table, by DuckDB's profile, and how much it has, by its manifests."""
    profile = measured["profile"]
    scans = list(_scans(profile))
    read_bytes = {_path(name): count for name, count in measured["files"].items()}
    tables = [_table(read, scans) | _files(read, read_bytes, files_of) for read in plan.reads]
    return {
        "tables": tables,
        "bytes_read": sum(read_bytes.values()),
        "rows_scanned": profile.get("cumulative_rows_scanned"),
        "latency_ms": round(float(profile.get("latency", 0)) * 1000, 3),
        "plan": profile,
    }


def _table(read: TableRead, scans: list[Operator]) -> dict[str, Any]:
    of_table = [scan for scan in scans if any(name.startswith(read.location) for name in _names(scan))]
    return {
        "table": read.shown,
        "snapshot_id": read.snapshot_id,
        "rows_read": sum(int(scan.get("operator_cardinality", 0)) for scan in of_table),
        "rows_total": _whole(read.summary.get("total-records")),
        "partitioned_by": read.partitioned_by,
    }


def _files(read: TableRead, read_bytes: dict[str, int], files_of: FilesOf) -> dict[str, Any]:
    """Return partitions, files and bytes: read, and in total. Null if the SQL computes the snapshot."""
    if read.snapshot_id is None:
        return dict.fromkeys(FILE_FIGURES)
    files = files_of(read)
    data = {_path(name): size for name, size in files.data_bytes.items()}
    deletes = {_path(name): size for name, size in files.delete_bytes.items()}
    used = data.keys() & read_bytes.keys()
    partitions = {_path(name): partition for name, partition in files.partitions.items()}
    total = len(set(partitions.values())) if partitions else None
    visited = len({partitions[name] for name in used}) if partitions else None
    return {
        "partitions_read": visited,
        "partitions_total": total,
        "partitions_pruned": None if total is None or visited is None else total - visited,
        "files_read": len(used),
        "files_total": len(data),
        "files_pruned": len(data) - len(used),
        "bytes_read": sum(count for name, count in read_bytes.items() if name in data or name in deletes),
        "bytes_total": sum(data.values()) + sum(deletes.values()),
    }


def _scans(plan: Operator) -> Iterator[Operator]:
    """Return the operators that read tables."""
    pending = [plan]
    while pending:
        node = pending.pop()
        if str(node.get("operator_name", "")).strip() == "ICEBERG_SCAN":
            yield node
        pending.extend(node.get("children") or ())


def _names(scan: Operator) -> list[str]:
    """Return the names of files; DuckDB reports at least the first ones."""
    return [name.strip() for name in str(scan["extra_info"].get("Filename(s)", "")).split(",")]


def _path(name: str) -> str:
    """Return the path as in the manifests: DuckDB's log has local files without `file://`."""
    return name.removeprefix("file://")


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() else None
