"""The health of a table, and what is due: from the summary of its current snapshot, and what was done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from maintenance import archive
from maintenance.policies import TablePolicy
from maintenance.store import TableRecord

COMPACT = "compact"
MINUTE_MS = 60_000
DELETES_MIN = 1000  # fewer cost readers nothing, and small tables would be rewritten with every batch


@dataclass(frozen=True, slots=True)
class Health:
    data_files: int = 0
    delete_files: int = 0
    position_deletes: int = 0
    rows: int = 0
    data_bytes: int = 0
    snapshots: int = 0
    schemas: int = 0
    written_ms: int = 0  # the newest snapshot that is not a compaction

    @property
    def deleted_ratio(self) -> float:
        return self.position_deletes / self.rows if self.rows else 0.0

    def as_json(self) -> dict[str, Any]:
        values = {name.replace("_", "-"): value for name, value in asdict(self).items()}
        return values | {"deleted-ratio": round(self.deleted_ratio, 4)}


def health(metadata: dict[str, Any]) -> Health:
    snapshots = metadata.get("snapshots") or ()
    current = metadata.get("current-snapshot-id")
    summary = next((one.get("summary") or {} for one in snapshots if one["snapshot-id"] == current), {})

    def total(name: str) -> int:
        text = summary.get(name, "0")
        return int(text) if isinstance(text, str) and text.isdigit() else 0

    data_files, delete_files = total("total-data-files"), total("total-delete-files")
    if int(metadata.get("format-version") or 1) > 2:
        # A deletion vector belongs to its data file, and goes with it: a table may have one for each.
        delete_files = max(0, delete_files - data_files)
    return Health(
        data_files=data_files,
        delete_files=delete_files,
        position_deletes=total("total-position-deletes"),
        rows=total("total-records"),
        data_bytes=total("total-files-size"),
        snapshots=len(snapshots),
        schemas=len(metadata.get("schemas") or ()),
        written_ms=max((one["timestamp-ms"] for one in snapshots if not _is_rewrite(one)), default=0),
    )


def _is_rewrite(snapshot: Mapping[str, Any]) -> bool:
    return bool((snapshot.get("summary") or {}).get("operation") == "replace")


def quiet_ms(found: Health, policy: TablePolicy) -> int:
    """The time from which the writer of a table counts as idle."""
    return found.written_ms + policy.quiet_minutes * MINUTE_MS


def reasons(found: Health, record: TableRecord, policy: TablePolicy) -> list[str]:
    """Why a compaction is due; empty if it is not."""
    due = [f"{action} was requested" for action in sorted(record.requested)]
    if not policy.compact:
        return due
    new_files = found.data_files - min(record.files_after, found.data_files)
    if new_files >= policy.small_files_min:
        due.append(f"{new_files} new data files since the last compaction")
    if found.delete_files >= policy.delete_files_max:
        due.append(f"{found.delete_files} delete files")
    if found.position_deletes >= DELETES_MIN and found.deleted_ratio >= policy.delete_ratio:
        due.append(f"{found.deleted_ratio:.0%} of the rows are deleted")
    return due


def due(
    found: Health, record: TableRecord, policy: TablePolicy, archive_before_ms: int | None = None
) -> tuple[str | None, list[str]]:
    """The action that is due, and why. `archive_before_ms` is None for a table that has no archive."""
    why = reasons(found, record, policy)
    if why:
        return min(record.requested, default=COMPACT), why
    why = archive.why(record, archive_before_ms)
    return (archive.ARCHIVE, why) if why else (None, [])
