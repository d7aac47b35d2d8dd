"""Creates the change feed and its webhooks from the settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from calve.settings import Settings
from catalog.api.context import visible_role
from catalog.errors import NotAuthorized
from catalog.identity.base import Identity
from catalog.identity.open import ANONYMOUS, OpenIdentity
from catalog.identity.principals import PrincipalStore
from catalog.models import Caller
from catalog.services.catalog import Catalog
from query.feed.feed import Feed
from query.feed.webhooks.sealing import key_in
from query.feed.webhooks.service import WebhookService

if TYPE_CHECKING:
    from query.tables.access import TableOpener


def open_feed(settings: Settings, catalog: Catalog, identity: Identity, tables: TableOpener) -> Feed:
    """The feed of this server process. It has threads: call it after a fork."""

    def check(authorization: str | None, warehouse: str) -> None:
        visible_role(identity.identify(authorization), warehouse)  # the lowest role may read

    return Feed(catalog, lambda: tables, check, subscriptions_max=settings.subscriptions_max)


def open_webhooks(settings: Settings, catalog: Catalog, identity: Identity, feed: Feed) -> WebhookService:
    """The webhooks of this server process. A webhook has the rights of the principal who created it."""
    principals = PrincipalStore(catalog.database)

    def caller(name: str) -> Caller:
        if isinstance(identity, OpenIdentity):
            return ANONYMOUS
        for principal in principals.list():
            if principal.name == name and not principal.disabled:
                return Caller(name, principal.roles)
        raise NotAuthorized(f"The principal {name} of the webhook is disabled or deleted")

    def check(name: str, warehouse: str) -> None:
        visible_role(caller(name), warehouse)

    def key_text() -> str | None:
        if settings.webhook_key is not None:
            return settings.webhook_key.get_secret_value()
        return key_in(settings.home) if settings.database.startswith("sqlite:") else None

    private = settings.webhook_private_addresses
    return WebhookService(feed, catalog, check, key_text=key_text, private=private)
