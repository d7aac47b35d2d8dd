"""Metrics reports of engines. The newest reports of each table are kept for a limited time.

A caller needs only the right to read a table to send reports, so their size and number are limited.
"""

from __future__ import annotations

from typing import Any

import orjson

from catalog.errors import Invalid
from catalog.names import Identifier
from catalog.services.catalog import Catalog
from catalog.services.tables import require
from catalog.services.warehouse_state import WarehouseState

REPORT_TYPES = ("scan-report", "commit-report")
REPORT_BYTES_MAX = 64 * 1024
REPORTS_A_TABLE_MAX = 1000


def keep(
    catalog: Catalog, state: WarehouseState, principal: str, identifier: Identifier, report: dict[str, Any]
) -> None:
    entry = require(state, identifier)
    if report.get("report-type") not in REPORT_TYPES:
        raise Invalid(f"report-type must be one of {', '.join(REPORT_TYPES)}")
    text = orjson.dumps(report)
    if len(text) > REPORT_BYTES_MAX:
        raise Invalid(f"The report has {len(text)} bytes, more than {REPORT_BYTES_MAX}")
    now_ms = catalog.now_ms()
    values = {
        "warehouse": state.warehouse.name,
        "namespace": entry.namespace,
        "name": entry.name,
        "uuid": entry.uuid,
        "received_ms": now_ms,
        "principal": principal,
        "report": text.decode(),
    }
    keep_after_ms = now_ms - catalog.limits.report_retention_s * 1000
    catalog.records.add_report(values, keep_after_ms, REPORTS_A_TABLE_MAX)


def listed(
    catalog: Catalog, state: WarehouseState, identifier: Identifier, before: int, limit: int
) -> list[dict[str, Any]]:
    """Reports of a table with ids below `before`, newest first."""
    entry = require(state, identifier)
    rows = catalog.records.reports(state.warehouse.name, entry.namespace, entry.name, before, limit)
    return [
        {
            "id": row[0],
            "received-ms": row[1],
            "principal": row[2],
            "table-uuid": row[3],
            "report": orjson.loads(row[4]),
        }
        for row in rows
    ]
