"""Creates the change feed from the settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from calve.settings import Settings
from catalog.api.dependencies import visible_role
from catalog.identity.base import Identity
from catalog.services.catalog import Catalog
from query.feed.feed import Feed

if TYPE_CHECKING:
    from query.tables.access import TableOpener


def open_feed(settings: Settings, catalog: Catalog, identity: Identity, tables: TableOpener) -> Feed:
    """The feed of this server process. It has threads: call it after a fork."""

    def check(authorization: str | None, warehouse: str) -> None:
        visible_role(identity.identify(authorization), warehouse)  # the lowest role may read

    return Feed(catalog, lambda: tables, check, subscriptions_max=settings.subscriptions_max)
