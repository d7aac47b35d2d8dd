"""The webhooks of a server process: their rows, requests and deliveries."""

from __future__ import annotations

from collections.abc import Callable

from catalog.services.catalog import Catalog
from query.feed.feed import Feed
from query.feed.rights import Rights, RightsChecks
from query.feed.webhooks.delivery import Deliverer
from query.feed.webhooks.posting import Poster
from query.feed.webhooks.sealing import KeyText, Sealing
from query.feed.webhooks.store import WebhookStore


class WebhookService:
    def __init__(
        self,
        feed: Feed,
        catalog: Catalog,
        check: Callable[[str, str], object],
        *,
        key_text: KeyText,
        private: bool,
    ) -> None:
        """`check` raises unless a principal may read a warehouse. `key_text` returns the key for the secrets
        in SQL.
        """
        self.feed = feed
        self.private = private
        sealing = Sealing(key_text)
        self.store = WebhookStore(catalog.database, catalog.now_ms, sealing)
        self.poster = Poster(feed, sealing, private=private)
        self._checks = RightsChecks(lambda name, warehouse: check(name or "", warehouse), feed.threads)
        self._deliverer = Deliverer(feed, self.store, self.poster, self.rights)

    def rights(self, principal: str, warehouse: str) -> Rights:
        return Rights(self._checks, principal, warehouse)

    def start(self) -> None:
        self._deliverer.start()

    async def stop(self) -> None:
        await self._deliverer.stop()
