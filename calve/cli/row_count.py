"""How many rows a table has, without reading it where that is known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from calve.cli.table_facts import current_summary, rows_without_deletes
from calve.client import Lake
from calve.client.names import levels_of


def row_count(lake: Lake, name: str, metadata: dict[str, Any], landed: Mapping[str, Any]) -> int:
    """The rows of a table. `landed` is what `/status` says of tables: batches count the rows of mirrors."""
    rows = rows_without_deletes(current_summary(metadata))
    if rows is None:
        rows = kept_rows(landed.get(name, {}))
    if rows is None:
        quoted = ".".join('"' + level.replace('"', '""') + '"' for level in levels_of(name))
        rows = lake.query(f"SELECT count(*) AS n FROM {quoted}").rows[0]["n"]  # noqa: S608 - quoted
    return int(rows)


def landed_tables(lake: Lake) -> dict[str, Any]:
    found: dict[str, Any] = lake.status()["landing"]["tables"]
    return found


def kept_rows(table: Mapping[str, Any]) -> int | None:
    """The rows that batches left in a mirror; None if something else has written to it since."""
    kept = table.get("verification", {}).get("kept-checksums", {})
    return int(kept["rows"]) if kept.get("state") == "kept" else None
