"""Metadata files of tables and views: names, encoding, and which files are outdated."""

from __future__ import annotations

import gzip
import io
import re
import uuid
from typing import Any

from catalog.errors import Invalid, TooLarge
from catalog.locations import Location
from catalog.metadata.document import deletes_old_metadata

READ_BYTES_MAX = 256 * 1024 * 1024
_NUMBERED = re.compile(r"/(\d{1,9})-[^/]*$").search
GZIP_CODEC = "gzip"


def next_metadata_location(metadata: dict[str, Any], previous: str | None) -> str:
    """A new file name in the table's metadata folder, with the number after that of the previous file."""
    properties = metadata.get("properties") or {}
    folder = properties.get("write.metadata.path") or metadata["location"].rstrip("/") + "/metadata"
    found = _NUMBERED(previous) if previous else None
    number = int(found[1]) + 1 if found else 0
    suffix = ".gz.metadata.json" if is_gzipped(properties) else ".metadata.json"
    return f"{folder.rstrip('/')}/{number:05d}-{uuid.uuid4()}{suffix}"


def is_gzipped(properties: dict[str, str]) -> bool:
    return str(properties.get("write.metadata.compression-codec", "none")).lower() == GZIP_CODEC


def encode_metadata(location: str, text: bytes) -> bytes:
    """The content of the file: gzipped if its name says so."""
    return gzip.compress(text, 6) if ".gz.metadata.json" in location or location.endswith(".gz") else text


def decode_metadata(location: str, data: bytes) -> bytes:
    """The JSON text of a metadata file. Gzip is detected by its first bytes, and its expansion is limited."""
    if data[:2] != b"\x1f\x8b":
        return data
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as unzipped:
            text = unzipped.read(READ_BYTES_MAX + 1)
    except (OSError, EOFError) as error:
        raise Invalid(f"The metadata file {location} is not a whole gzip file") from error
    if len(text) > READ_BYTES_MAX:
        raise TooLarge(f"The metadata file {location} expands to more than {READ_BYTES_MAX} bytes")
    return text


def outdated_files(before: dict[str, Any] | None, after: dict[str, Any]) -> list[str]:
    """Metadata files that were removed from the log, if the table has them deleted."""
    properties = after.get("properties") or {}
    if before is None or not deletes_old_metadata(properties):
        return []
    kept = {entry["metadata-file"] for entry in after.get("metadata-log") or []}
    had = [entry["metadata-file"] for entry in before.get("metadata-log") or []]
    own = [Location.parse(after["location"]), Location.parse(metadata_folder(after))]
    # The log of a registered file may contain files of other tables: these are not deleted.
    return [
        location
        for location in had
        if location not in kept and any(Location.parse_file(location).is_inside(folder) for folder in own)
    ]


def metadata_folder(metadata: dict[str, Any]) -> str:
    return str(Location.parse(next_metadata_location(metadata, None).rpartition("/")[0]))
