"""Calve's own API under `/lake/v1`: warehouses, history and events, open transactions, dropped tables,
reports.
"""

from __future__ import annotations

from fastapi import APIRouter

from catalog.api.lake import history, tables, transactions, warehouses


def lake_router() -> APIRouter:
    router = APIRouter(prefix="/lake/v1")
    for part in (warehouses, history, transactions, tables):
        router.include_router(part.router)
    return router
