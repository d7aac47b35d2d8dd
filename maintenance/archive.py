"""The archive tier: old changes get a cheaper form, sorted files with a stronger compression. Pure functions.

A changes table is archived up to a day, all of whose changes are older than the policy says. The commit
timestamp of a change is the time of its publish, so no later batch adds changes before that day.

The worker finds the files (spark_jobs/maintenance/archive.py). A file is archived if it is in the folder of
the archive. That is `archive` in the location of the table. If the policy has an `archive-location`, it is
a folder below it, which the table names in its property `calve.archive.path`. So the rules for path
properties hold for it: no other table can have it, and a purge, the deletion of expired files and the removal
of orphans know it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from catalog.locations import ARCHIVE_PATH, slug
from catalog.names import Identifier
from maintenance.policies import TablePolicy
from maintenance.store import TableRecord

ARCHIVE = "archive"
THROUGH = "through-ms"  # in what the last step did: all changes before this time are archived
DAY_MS = 86_400_000


def before_ms(policy: TablePolicy, now_ms: int) -> int | None:
    """Changes before this time, the begin of a day, belong in the archive. None if the policy has none."""
    if not policy.archive_after_days:
        return None
    return max(0, now_ms // DAY_MS - policy.archive_after_days) * DAY_MS


def why(record: TableRecord, until_ms: int | None) -> list[str]:
    """Why a step is due; empty if it is not. `until_ms` comes from `before_ms`."""
    if until_ms is None or record.done.get(ARCHIVE, {}).get(THROUGH, 0) >= until_ms:
        return []
    return [f"changes before {day_text(until_ms)} are to be archived"]


def archived_before(record: TableRecord) -> str | None:
    """The day before which all changes are archived; None if that is not known."""
    through_ms = record.done.get(ARCHIVE, {}).get(THROUGH)
    return day_text(through_ms) if through_ms else None


def day_text(ms: int) -> str:
    """2026-11-15."""
    return datetime.fromtimestamp(ms / 1000, UTC).date().isoformat()


def folder(metadata: Mapping[str, Any], policy: TablePolicy, identifier: Identifier) -> str:
    """Where the archive of a table is. A table keeps the folder that its property names."""
    known = (metadata.get("properties") or {}).get(ARCHIVE_PATH)
    if known:
        return str(known).rstrip("/")
    if not policy.archive_location:
        return f"{str(metadata['location']).rstrip('/')}/archive"
    levels = [slug(level) for level in identifier.namespace.levels]
    own = f"{slug(identifier.name)}-{metadata['table-uuid']}"
    return "/".join((policy.archive_location.rstrip("/"), *levels, own))


def properties(metadata: Mapping[str, Any], path: str) -> dict[str, str]:
    """What the table must say of its archive: nothing, if it is in the table's own location."""
    inside = path.startswith(f"{str(metadata['location']).rstrip('/')}/")
    is_known = (metadata.get("properties") or {}).get(ARCHIVE_PATH) == path
    return {} if inside or is_known else {ARCHIVE_PATH: path}
