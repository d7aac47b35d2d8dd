"""Metrics reports of engines: kept for a while, newest first.

A report never fails a client over its content.
"""

from __future__ import annotations

from typing import Any

import orjson

from catalog.errors import Invalid
from catalog.names import Identifier
from catalog.service.catalog import Catalog
from catalog.service.states import State
from catalog.service.tables import require

REPORT_TYPES = ("scan-report", "commit-report")


def keep(
    catalog: Catalog, state: State, principal: str, identifier: Identifier, report: dict[str, Any]
) -> None:
    entry = require(state, identifier)
    if report.get("report-type") not in REPORT_TYPES:
        raise Invalid(f"report-type must be one of {', '.join(REPORT_TYPES)}")
    now_ms = catalog.now_ms()
    values = {
        "warehouse": state.warehouse.name,
        "namespace": entry.namespace,
        "name": entry.name,
        "uuid": entry.uuid,
        "received_ms": now_ms,
        "principal": principal,
        "report": orjson.dumps(report).decode(),
    }
    catalog.records.add_report(values, now_ms - catalog.limits.report_retention_s * 1000)


def listed(
    catalog: Catalog, state: State, identifier: Identifier, before: int, limit: int
) -> list[dict[str, Any]]:
    """Reports of a table, newest first, with ids below `before`."""
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
