"""The four updates of statistics files: each snapshot has at most one of each kind."""

from __future__ import annotations

from catalog.metadata.draft import Draft
from catalog.metadata.limits import LONG_MAX
from catalog.metadata.shapes import (
    JsonObject,
    integers,
    long,
    mapping,
    objects,
    string_map,
    text,
    without_nulls,
)

STATISTICS = "statistics"
PARTITION_STATISTICS = "partition-statistics"


def set_statistics(draft: Draft, update: JsonObject) -> None:
    """The deprecated `snapshot-id` beside the file is not read: the file's own counts."""
    at = STATISTICS
    file = mapping(update, STATISTICS)
    _check_file(file, at)
    long(file, "file-footer-size-in-bytes", at)
    blobs = [
        _read_blob(blob, f"{at}.blob-metadata[{i}]")
        for i, blob in enumerate(objects(file, "blob-metadata", at))
    ]
    if blobs != file["blob-metadata"]:
        file = file | {"blob-metadata": blobs}
    _put(draft, STATISTICS, file)


def set_partition_statistics(draft: Draft, update: JsonObject) -> None:
    file = mapping(update, PARTITION_STATISTICS)
    _check_file(file, PARTITION_STATISTICS)
    _put(draft, PARTITION_STATISTICS, file)


def remove_statistics(draft: Draft, update: JsonObject) -> None:
    _remove(draft, STATISTICS, long(update, "snapshot-id", low=-LONG_MAX - 1))


def remove_partition_statistics(draft: Draft, update: JsonObject) -> None:
    _remove(draft, PARTITION_STATISTICS, long(update, "snapshot-id", low=-LONG_MAX - 1))


def _check_file(file: JsonObject, at: str) -> None:
    long(file, "snapshot-id", at)
    text(file, "statistics-path", at)
    long(file, "file-size-in-bytes", at)


def _read_blob(blob: JsonObject, at: str) -> JsonObject:
    text(blob, "type", at)
    long(blob, "snapshot-id", at)
    long(blob, "sequence-number", at)
    integers(blob, "fields", at)
    blob = without_nulls(blob, "properties")
    if "properties" in blob:
        string_map(blob, "properties", at)
    return blob


def _put(draft: Draft, key: str, file: JsonObject) -> None:
    """In the place of the earlier file of the same snapshot, if there is one."""
    files = draft.list_of(key)
    for place, known in enumerate(files):
        if known["snapshot-id"] == file["snapshot-id"]:
            files[place] = file
            return
    files.append(file)


def _remove(draft: Draft, key: str, snapshot_id: int) -> None:
    files = draft.document.get(key) or []
    kept = [file for file in files if file["snapshot-id"] != snapshot_id]
    if len(kept) < len(files):
        draft.put_list(key, kept)
