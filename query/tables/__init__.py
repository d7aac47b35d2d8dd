"""Table functions under `/lake/v1`: snapshots, history, differences, rows, schema, partitions, files."""

from __future__ import annotations

from fastapi import APIRouter

from query.tables import (
    changes,
    diff,
    files,
    partitions,
    refs,
    rows,
    schema,
    snapshots,
    warehouse_diff,
)


def tables_router() -> APIRouter:
    router = APIRouter(prefix="/lake/v1", tags=["Table functions"])
    for part in (snapshots, refs, changes, diff, warehouse_diff, rows, schema, partitions, files):
        router.include_router(part.router)
    return router
