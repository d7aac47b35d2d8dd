"""Which snapshots and schemas of a table nothing needs any more. Pure functions.

A snapshot is needed if

- it is current, or the target of a branch or tag, at a kept moment;
- a branch or tag refers to it now, or the retention of a branch other than main keeps it;
- it was never current, and is younger than `unused_ms`: a writer may be about to use it. A snapshot with a
  `wap.id` (write, audit, publish) waits for five days.

All kept moments of a table therefore stay readable from its current document.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

MAIN = "main"
WAP_ID = "wap.id"
AGE_MS = 5 * 86_400_000  # Iceberg's own default age of expired snapshots
UNUSED_MS = 3600 * 1000

Metadata = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Version:
    """A table from one number to the next change: what its history row says."""

    number: int
    snapshot_ids: frozenset[int]
    schema_id: int | None = None


@dataclass(slots=True)
class Needed:
    snapshots: set[int] = field(default_factory=set)
    schemas: set[int] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Expiry:
    """What is removed from a document, and the files that the removed snapshots name."""

    snapshot_ids: list[int]
    schema_ids: list[int]
    manifest_lists: list[str]
    statistics: list[str]

    @property
    def updates(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        if self.snapshot_ids:
            found.append({"action": "remove-snapshots", "snapshot-ids": self.snapshot_ids})
        if self.schema_ids:
            found.append({"action": "remove-schemas", "schema-ids": self.schema_ids})
        return found


def is_kept(begin: int, end: int | None, numbers: Sequence[int], thinned_number: int) -> bool:
    """Whether a kept moment is in [begin, end). `numbers` are sorted, and go up to `thinned_number`."""
    if end is None or end > thinned_number + 1:
        return True
    index = bisect_left(numbers, begin)
    return index < len(numbers) and numbers[index] < end


def needed_at_kept_moments(
    versions: Sequence[Version], numbers: Sequence[int], thinned_number: int
) -> Needed:
    """What the versions that are visible at kept moments refer to. `versions` are in order."""
    needed = Needed()
    for index, version in enumerate(versions):
        end = versions[index + 1].number if index + 1 < len(versions) else None
        if is_kept(version.number, end, numbers, thinned_number):
            needed.snapshots |= version.snapshot_ids
            if version.schema_id is not None:
                needed.schemas.add(version.schema_id)
    return needed


def expiry(metadata: Metadata, needed: Needed, now_ms: int, *, unused_ms: int = UNUSED_MS) -> Expiry:
    """What can be removed from the current document of a table."""
    snapshots: dict[int, Metadata] = {one["snapshot-id"]: one for one in metadata.get("snapshots") or ()}
    keep = needed.snapshots | _of_refs(metadata, snapshots, now_ms)
    was_current = _ancestors(snapshots, keep) | {e["snapshot-id"] for e in metadata.get("snapshot-log") or ()}
    gone = [
        one
        for id_, one in snapshots.items()
        if id_ not in keep and (id_ in was_current or now_ms - one["timestamp-ms"] > _wait_ms(one, unused_ms))
    ]
    ids = {one["snapshot-id"] for one in gone}
    return Expiry(
        snapshot_ids=sorted(ids),
        schema_ids=_unneeded_schemas(metadata, needed, [s for id_, s in snapshots.items() if id_ not in ids]),
        manifest_lists=[one["manifest-list"] for one in gone if isinstance(one.get("manifest-list"), str)],
        statistics=_statistics_of(metadata, ids),
    )


def _wait_ms(snapshot: Metadata, unused_ms: int) -> int:
    return AGE_MS if WAP_ID in (snapshot.get("summary") or {}) else unused_ms


def _of_refs(metadata: Metadata, snapshots: dict[int, Metadata], now_ms: int) -> set[int]:
    """Snapshots of branches and tags. Of main, kept moments decide which ancestors stay, and its own
    `min-snapshots-to-keep`; of other branches, their retention or the table's.
    """
    properties = metadata.get("properties") or {}
    default_age_ms = _integer(properties.get("history.expire.max-snapshot-age-ms"), AGE_MS)
    default_min = _integer(properties.get("history.expire.min-snapshots-to-keep"), 1)
    current = metadata.get("current-snapshot-id")
    keep = {current} if isinstance(current, int) else set()
    for name, ref in (metadata.get("refs") or {}).items():
        keep.add(ref["snapshot-id"])
        if ref.get("type") != "branch":
            continue
        least = int(ref.get("min-snapshots-to-keep") or default_min)
        age_ms = 0 if name == MAIN else int(ref.get("max-snapshot-age-ms") or default_age_ms)
        id_: int | None = ref["snapshot-id"]
        count = 0
        while id_ in snapshots and (count < least or now_ms - snapshots[id_]["timestamp-ms"] <= age_ms):
            keep.add(id_)
            count += 1
            id_ = snapshots[id_].get("parent-snapshot-id")
    return keep


def _ancestors(snapshots: dict[int, Metadata], ids: Iterable[int]) -> set[int]:
    found: set[int] = set()
    for start in ids:
        id_: int | None = start
        while id_ in snapshots and id_ not in found:
            found.add(id_)
            id_ = snapshots[id_].get("parent-snapshot-id")
    return found


def _unneeded_schemas(metadata: Metadata, needed: Needed, remaining: Iterable[Metadata]) -> list[int]:
    keep = needed.schemas | {one.get("schema-id") for one in remaining} | {metadata.get("current-schema-id")}
    ids = [schema.get("schema-id") for schema in metadata.get("schemas") or ()]
    return [id_ for id_ in ids if isinstance(id_, int) and id_ not in keep]


def _statistics_of(metadata: Metadata, ids: set[int]) -> list[str]:
    entries = [*(metadata.get("statistics") or ()), *(metadata.get("partition-statistics") or ())]
    paths = (entry.get("statistics-path") for entry in entries if entry.get("snapshot-id") in ids)
    return [path for path in paths if isinstance(path, str)]


def _integer(text: object, default: int) -> int:
    return int(text) if isinstance(text, str) and text.isdigit() else default
