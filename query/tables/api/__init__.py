"""The routes of the table functions and their models.

A route imports the module of `query/tables/` that does its work inside the function: PyIceberg takes seconds
to import and 200 MB of memory, which a server without such requests does not need.
"""

from __future__ import annotations

from fastapi import APIRouter

from query.tables.api import (
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
