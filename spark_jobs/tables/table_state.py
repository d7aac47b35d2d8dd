"""Describe the tables of a batch for the tasks, from their metadata and manifests.

The driver reads metadata only. A manifest never changes, so its content is cached.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyiceberg.avro.file import AvroFile
from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    DATA_FILE_TYPE,
    MANIFEST_ENTRY_SCHEMAS,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    _inherit_from_manifest,
)
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.types import DoubleType, FloatType, NestedField, PrimitiveType

from spark_jobs.messages import LiveDeletes, LiveFile, TableJob, TableState
from spark_jobs.tables.data_files import FILE_PATH_ID, field_of, partition_json

MANIFESTS_KEPT = 2000
_INDEX_OF = {found.name: index for index, found in enumerate(DATA_FILE_TYPE[3].fields)}
# Fields that tasks do not need and that grow with the age of a table.
_HISTORY = ("snapshots", "snapshot-log", "metadata-log", "refs", "statistics", "partition-statistics")
# Properties that PyIceberg's writer does not follow.
_NOT_FOLLOWED = ("write.parquet.bloom-filter-enabled.column.", "write.location-provider.impl", "encryption.")


class NotServed(Exception):
    """Tasks cannot write this table, so MERGE does; the message says why."""


@dataclass(frozen=True, slots=True)
class _Files:
    data: tuple[LiveFile, ...] = ()
    deletes: tuple[LiveDeletes, ...] = ()
    refusal: str | None = None


class TableStates:
    """Describes tables for tasks; shared by all worker slots."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, int], _Files] = OrderedDict()
        self._lock = threading.Lock()

    def mirror(self, name: str, document: Mapping[str, Any], io: FileIO, job: TableJob) -> TableState:
        """Describe a mirror. NotServed if only MERGE can change the table."""
        metadata = _parsed(document)
        if job.append_only:
            return TableState(name=name, metadata=_without_history(document))
        check_key(metadata.schema(), job.key)
        files = self._files(metadata, io, field_of(metadata.schema(), job.key[0]).field_id)
        if files.refusal is not None:
            raise NotServed(files.refusal)
        return TableState(
            name=name,
            metadata=_without_history(document),
            format_version=metadata.format_version,
            files=files.data,
            deletes=files.deletes,
        )

    def appended(self, name: str, document: Mapping[str, Any], *, is_read: bool = False) -> TableState:
        """Describe a table that is only appended to. With `is_read`, tasks can scan it."""
        _parsed(document)
        return TableState(name=name, metadata=json.dumps(document) if is_read else _without_history(document))

    def _files(self, metadata: TableMetadata, io: FileIO, key_id: int) -> _Files:
        snapshot = metadata.current_snapshot()
        if snapshot is None:
            return _Files()
        parts = [self._of_manifest(manifest, metadata, io, key_id) for manifest in snapshot.manifests(io)]
        return _Files(
            tuple(file for part in parts for file in part.data),
            tuple(file for part in parts for file in part.deletes),
            next((part.refusal for part in parts if part.refusal is not None), None),
        )

    def _of_manifest(
        self, manifest: ManifestFile, metadata: TableMetadata, io: FileIO, key_id: int
    ) -> _Files:
        mark = (manifest.manifest_path, key_id)
        with self._lock:
            if mark in self._known:
                self._known.move_to_end(mark)
                return self._known[mark]
        found = _described(_entries(manifest, io), metadata, manifest.partition_spec_id, key_id)
        with self._lock:
            self._known[mark] = found
            if len(self._known) > MANIFESTS_KEPT:
                self._known.popitem(last=False)
        return found


def _entries(manifest: ManifestFile, io: FileIO) -> list[ManifestEntry]:
    """Return the live files of a manifest. PyIceberg's own reader leaves out the offset of a deletion
    vector.
    """
    with AvroFile[ManifestEntry](
        io.new_input(manifest.manifest_path),
        MANIFEST_ENTRY_SCHEMAS[3],
        read_types={-1: ManifestEntry, 2: DataFile},
        read_enums={0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent},
    ) as reader:
        return [
            _inherit_from_manifest(entry, manifest)
            for entry in reader
            if entry.status != ManifestEntryStatus.DELETED
        ]


def _described(
    entries: Sequence[ManifestEntry], metadata: TableMetadata, spec_id: int, key_id: int
) -> _Files:
    spec, schema = metadata.specs()[spec_id], metadata.schema()
    data, deletes = [], []
    for entry in entries:
        file, sequence = entry.data_file, entry.sequence_number or 0
        if file.content == DataFileContent.EQUALITY_DELETES:
            return _Files(refusal="the table has equality deletes of another writer")
        if file.content == DataFileContent.POSITION_DELETES and file.file_format == FileFormat.PUFFIN:
            deletes.append(
                LiveDeletes(
                    path=file.file_path,
                    sequence=sequence,
                    referenced=file[_INDEX_OF["referenced_data_file"]],
                    offset=file[_INDEX_OF["content_offset"]],
                    bytes=file[_INDEX_OF["content_size_in_bytes"]],
                    rows=file.record_count,
                    file_bytes=file.file_size_in_bytes,
                )
            )
            continue
        if file.file_format != FileFormat.PARQUET:
            return _Files(refusal=f"the table has files of the format {file.file_format.value.lower()}")
        if file.content == DataFileContent.POSITION_DELETES:
            lower, upper = (
                _bound(file, "lower_bounds", FILE_PATH_ID),
                _bound(file, "upper_bounds", FILE_PATH_ID),
            )
            deletes.append(LiveDeletes(path=file.file_path, sequence=sequence, lower=lower, upper=upper))
            continue
        data.append(
            LiveFile(
                path=file.file_path,
                sequence=sequence,
                spec_id=spec_id,
                partition=tuple(partition_json(file, spec, schema)),
                lower=_bound(file, "lower_bounds", key_id),
                upper=_bound(file, "upper_bounds", key_id),
            )
        )
    return _Files(tuple(data), tuple(deletes))


def _bound(file: DataFile, which: str, field_id: int) -> str | None:
    value = (getattr(file, which) or {}).get(field_id)
    return value.hex() if value is not None else None


def _parsed(document: Mapping[str, Any]) -> TableMetadata:
    properties = document.get("properties") or {}
    format_ = properties.get("write.format.default", "parquet")
    if format_ != "parquet":
        raise NotServed(f"its files are written in the format {format_}")
    for name in properties:
        if name.startswith(_NOT_FOLLOWED):
            raise NotServed(f"its property {name} is not followed by PyIceberg's writer")
    try:
        return TableMetadataUtil.parse_obj(dict(document))
    except (ValueError, TypeError, KeyError) as error:
        raise NotServed(f"PyIceberg cannot read its metadata: {str(error)[:200]}") from error


def _without_history(document: Mapping[str, Any]) -> str:
    kept = {name: value for name, value in document.items() if name not in _HISTORY}
    kept.pop("current-snapshot-id", None)
    return json.dumps(kept)


def check_key(schema: Schema, key: Sequence[str]) -> None:
    for column in key:
        found: NestedField = field_of(schema, column)
        if not isinstance(found.field_type, PrimitiveType) or isinstance(
            found.field_type, FloatType | DoubleType
        ):
            raise NotServed(f"its key column {column} has the type {found.field_type}")
