"""The metadata document of a table that is published to every second for a year stays below 1 MB."""

from __future__ import annotations

from typing import Any

import orjson

from catalog.metadata.commit import apply
from maintenance.expiry import Version, expiry, needed_at_kept_moments
from maintenance.kept_moments import DEFAULT, KeptMomentsPolicy, kept
from spark_jobs.tables.commit import short_summary
from tests.harness.documents import table

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
NOW_MS = 1_800_000_000_000
LOCATION = f"s3://a-bucket-of-a-company/warehouse/shop/orders-{'0' * 32}"
# An expiry is due a minute after a moment was forgotten: so many publishes more are there.
LATE_MS = MINUTE
# As Iceberg's library writes it into the snapshot of a batch, with large numbers.
SUMMARY = {
    "operation": "overwrite",
    "calve.batch-id": "0" * 32,
    "added-data-files": "2",
    "added-delete-files": "2",
    "added-position-delete-files": "2",
    "added-records": "50000",
    "added-files-size": "12345678",
    "added-position-deletes": "50000",
    "changed-partition-count": "1",
    "total-records": "1234567890",
    "total-files-size": "1234567890123",
    "total-data-files": "12345",
    "total-delete-files": "1234",
    "total-position-deletes": "12345678",
    "total-equality-deletes": "0",
    "manifests-created": "2",
    "manifests-kept": "20",
    "manifests-replaced": "0",
    "entries-processed": "0",
    "engine-name": "spark",
    "engine-version": "4.1.0",
    "app-id": "local-1700000000000",
    "iceberg-version": f"Apache Iceberg 1.12.0 (commit {'0' * 40})",
}
COMPACTION_EVERY = 12  # publishes; its summary has everything, because Iceberg's own procedure commits it


def year() -> list[int]:
    """The times of publishes: every second, where each publish counts; else enough for each kept moment."""
    found = {
        *range(NOW_MS - 10 * MINUTE - LATE_MS, NOW_MS, 1000),
        *range(NOW_MS - 7 * HOUR, NOW_MS, MINUTE // 3),
        *range(NOW_MS - 8 * DAY, NOW_MS, HOUR // 3),
        *range(NOW_MS - 400 * DAY, NOW_MS, DAY // 3),
    }
    return sorted(found)


def snapshot(number: int, time_ms: int) -> dict[str, Any]:
    id_ = 8_000_000_000_000_000_000 + number
    is_compaction = number % COMPACTION_EVERY == 0
    return {
        "sequence-number": 10_000_000 + number,
        "snapshot-id": id_,
        "parent-snapshot-id": id_ - 1,
        "timestamp-ms": time_ms,
        "summary": SUMMARY if is_compaction else short_summary(SUMMARY),
        "manifest-list": f"{LOCATION}/metadata/snap-{id_}.avro",
        "schema-id": 0,
    }


def test_the_document_stays_below_1_mb() -> None:
    times = year()
    snapshots = [snapshot(number, ms) for number, ms in enumerate(times, 1)]
    log = [{"timestamp-ms": one["timestamp-ms"], "snapshot-id": one["snapshot-id"]} for one in snapshots]
    files = [
        {"timestamp-ms": NOW_MS, "metadata-file": f"{LOCATION}/metadata/{n:085d}.json"} for n in range(20)
    ]
    newest = snapshots[-1]["snapshot-id"]
    metadata = table() | {
        "location": LOCATION,
        "snapshots": snapshots,
        "snapshot-log": log,
        "metadata-log": files,
        "current-snapshot-id": newest,
        "refs": {"main": {"snapshot-id": newest, "type": "branch"}},
        "last-sequence-number": snapshots[-1]["sequence-number"],
        "last-updated-ms": NOW_MS,
    }
    numbers = sorted(kept(list(enumerate(times, 1)), KeptMomentsPolicy.parse(DEFAULT), NOW_MS - LATE_MS))
    versions = [Version(n, frozenset({one["snapshot-id"]})) for n, one in enumerate(snapshots, 1)]
    thinned_number = sum(ms < NOW_MS - LATE_MS - 10 * MINUTE for ms in times)
    needed = needed_at_kept_moments(versions, numbers, thinned_number)
    after = apply(metadata, [], expiry(metadata, needed, NOW_MS).updates, now_ms=NOW_MS)
    assert 1_400 < len(after["snapshots"]) < 1_600
    assert after["snapshot-log"][-1]["snapshot-id"] == newest
    assert len(orjson.dumps(after)) < 1_000_000


def test_totals_and_the_operation_stay_in_a_summary() -> None:
    found = short_summary(SUMMARY)
    assert found.keys() == {
        "operation",
        "calve.batch-id",
        "added-records",
        "total-records",
        "total-files-size",
        "total-data-files",
        "total-delete-files",
        "total-position-deletes",
    }
    assert short_summary({"total-equality-deletes": "3"}) == {"total-equality-deletes": "3"}
