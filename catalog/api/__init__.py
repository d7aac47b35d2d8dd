"""The HTTP API: the operations of the Iceberg REST specification, Calve's own under `/lake/v1`, and health.

Each group of operations has one APIRouter. A handler parses the request, calls one function of
`catalog/services` and renders its result. It contains no rules of the catalog itself.
"""

from __future__ import annotations

from fastapi import APIRouter

from catalog.api import config, health, namespaces, oauth, tables, transactions, views
from catalog.api.lake import lake_router


def routers() -> list[APIRouter]:
    """Every router, in the order in which a request is matched: those with the most requests first."""
    modules = (tables, namespaces, views, transactions, config, oauth, health)
    return [*(module.router for module in modules), lake_router()]
