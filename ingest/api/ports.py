"""Interfaces that the API uses and another package implements."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol


class Subscriptions(Protocol):
    """The change feed, for clients of /ws that subscribe."""

    async def run(
        self,
        message: Mapping[str, Any],
        warehouse: str,
        authorization: str | None,
        send: Callable[[list[dict[str, Any]]], Awaitable[None]],
    ) -> None:
        """Send the messages of a subscription until it is cancelled or ends. CatalogError if it is refused.

        Rights are checked here, and again while it runs.
        """
