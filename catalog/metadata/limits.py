"""Every bound of the metadata engine, in one place.

A request beyond one of these is refused with `Invalid` before it changes anything. They are far above what
any engine sends, and low enough that one request cannot hold a server or make a table unreadable.
"""

from __future__ import annotations

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1

FORMAT_VERSION_MIN = 1
FORMAT_VERSION_MAX = 3
FORMAT_VERSION_DEFAULT = 2

# The spec keeps the highest 200 ids for metadata columns; a column there would also leave no id for the next.
FIELD_ID_MAX = INT_MAX - 201

UPDATES_MAX = 10_000
REQUIREMENTS_MAX = 1_000
SCHEMA_FIELDS_MAX = 20_000
SCHEMA_DEPTH_MAX = 64
SPEC_FIELDS_MAX = 1_000
TYPE_TEXT_CHARS_MAX = 1_000

# orjson writes at most 254 levels, and the document adds a few around what a client sends.
JSON_DEPTH_MAX = 200

# Java readers refuse a document whose logs go back by more than this.
CLOCK_SKEW_MS_MAX = 60_000

METADATA_LOG_ENTRIES_DEFAULT = 100
