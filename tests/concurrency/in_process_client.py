"""Requests to the routes of one catalog, without a server."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx

from calve.app import assemble
from calve.http.raw_path import RawPathMiddleware
from calve.settings import Settings
from catalog.identity.open import OpenIdentity
from catalog.services.catalog import Catalog
from tests.harness.operations import BY_ID


class InProcessClient:
    """The operations of the specification on one catalog."""

    def __init__(self, catalog: Catalog) -> None:
        app = assemble(Settings(home=Path("unused")), catalog, OpenIdentity())
        self._transport = httpx.ASGITransport(RawPathMiddleware(app), raise_app_exceptions=False)

    def call(
        self, operation_id: str, path: dict[str, str], body: Any = None, *, key: str | None = None
    ) -> httpx.Response:
        operation = BY_ID[operation_id]
        headers = {"Idempotency-Key": key} if key else {}
        address = operation.path.format(**{"prefix": "main", **path})

        async def send() -> httpx.Response:
            async with httpx.AsyncClient(transport=self._transport, base_url="http://calve") as client:
                return await client.request(operation.method, address, json=body, headers=headers)

        return asyncio.run(send())


def error(response: httpx.Response) -> tuple[int, str]:
    """Status and type of a refusal."""
    return response.status_code, response.json()["error"]["type"] if response.content else ""
