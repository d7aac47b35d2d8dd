"""The names and media types of result formats, and the end of a result that fails in the middle.

The server needs only these. `query/formats.py`, which imports Arrow, writes results in query processes.
"""

from __future__ import annotations

from typing import Any

import orjson

MEDIA_TYPES = {
    "json": "application/json",
    "compact": "application/json",
    "ndjson": "application/x-ndjson",
    "csv": "text/csv; charset=utf-8",
    "arrow": "application/vnd.apache.arrow.stream",
    "parquet": "application/vnd.apache.parquet",
}
FORMATS = tuple(MEDIA_TYPES)
COMPACT_MEDIA_TYPES = (MEDIA_TYPES["arrow"], MEDIA_TYPES["parquet"])  # gzip would gain little


def broken_off(name: str, error: dict[str, Any]) -> bytes | None:
    """Return the end of a result that fails in the middle; None if the format cannot contain an error."""
    if name in ("json", "compact"):
        return b'],"error":' + orjson.dumps(error) + b"}\n"
    return orjson.dumps({"error": error}) + b"\n" if name == "ndjson" else None
