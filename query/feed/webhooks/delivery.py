"""Deliver webhooks: one task for each webhook that this server process has claimed.

The changes after the token of a webhook are posted in order, one request after the other. The token advances
when the receiver has accepted a request, so after a crash the last request is repeated, under the same
`webhook-id`. A request that fails is repeated with growing pauses; after that the webhook is dead, until it
is resumed or deleted.
"""

from __future__ import annotations

import asyncio
import logging
import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from catalog.errors import CatalogError, Unavailable
from catalog.shutdown import stopping
from query.feed import measures
from query.feed.cursors import Cursor
from query.feed.events import Message
from query.feed.feed import Feed
from query.feed.rights import Rights
from query.feed.subscription import Subscription
from query.feed.webhooks.posting import Poster
from query.feed.webhooks.store import Webhook, WebhookStore

POLL_S = 1.0
LEASE_MS = 30_000
RENEW_S = 10.0
CLAIMED_AT_ONCE = 20
EVENTS_MAX = 100  # of one request
BYTES_MAX = 256 * 1024
# Pauses after failures, in seconds; after the last one the webhook is dead. Together more than a day.
PAUSES_S = (5, 30, 120, 600, 1800, 3600, 7200, 14_400, 28_800, 43_200)
SWEEP_EVERY_S = 3600.0
MEASURE_EVERY_S = 5.0
DEAD_FOR_MS = 30 * 24 * 3600 * 1000

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Piece:
    """The content of one request."""

    messages: list[Message]
    end: Cursor


class Deliverer:
    """The deliveries of a server process."""

    def __init__(
        self,
        feed: Feed,
        store: WebhookStore,
        poster: Poster,
        rights: Callable[[str, str], Rights],
        *,
        pauses_s: tuple[float, ...] = PAUSES_S,
    ) -> None:
        """`rights` returns the rights of a principal in a warehouse."""
        self._feed = feed
        self._store = store
        self._poster = poster
        self._rights = rights
        self._pauses_s = pauses_s
        self._claim = uuid.uuid4().hex
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._main: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._main = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Release the claims, so that another process continues."""
        tasks = [task for task in (self._main, *self._tasks.values()) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._poster.close()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        swept_s = measured_s = float("-inf")
        while not stopping.is_set():
            try:
                if loop.time() - swept_s > SWEEP_EVERY_S:
                    swept_s = loop.time()
                    before_ms = self._feed.now_ms() - DEAD_FOR_MS
                    await self._feed.run(lambda last=before_ms: self._store.delete_dead(last))  # type: ignore[misc]
                if loop.time() - measured_s > MEASURE_EVERY_S:
                    measured_s = loop.time()
                    await self._feed.run(self._measure)
                await self._claim_due()
            except CatalogError as error:
                log.warning("webhooks have to wait", extra={"reason": error.message})
            except Exception:
                log.exception("webhooks have to wait")
            await asyncio.sleep(POLL_S)

    def _measure(self) -> None:
        counts, oldest_ms = self._store.states()
        lag_ms = 0 if oldest_ms is None else max(0, self._feed.now_ms() - oldest_ms)
        measures.webhooks_are(counts, lag_ms / 1000)

    async def _claim_due(self) -> None:
        for id_ in await self._feed.run(lambda: self._store.due(CLAIMED_AT_ONCE)):
            if id_ in self._tasks:
                continue
            found = await self._feed.run(lambda one=id_: self._store.claim(one, self._claim, LEASE_MS))  # type: ignore[misc]
            if found is not None:
                task = asyncio.get_running_loop().create_task(self._serve(found))
                self._tasks[id_] = task
                task.add_done_callback(lambda _, one=id_: self._tasks.pop(one, None))  # type: ignore[misc]

    async def _serve(self, webhook: Webhook) -> None:
        """Deliver until a failure, or until the claim is lost."""
        try:
            await self._deliver(webhook)
        except asyncio.CancelledError:
            await asyncio.shield(self._feed.run(lambda: self._store.release(webhook.id, self._claim)))
            raise
        except Unavailable as error:
            log.warning("a webhook has to wait", extra={"webhook": webhook.id, "reason": error.message})
        except CatalogError as error:
            # The token is too old, or the owner may no longer read the warehouse: no further attempt can
            # succeed.
            await self._failed(webhook, 0, f"{error.type}: {error.message}", is_final=True)
        except Exception:
            log.exception("a webhook failed", extra={"webhook": webhook.id})
            await self._failed(webhook, webhook.attempts + 1, "the server failed; its log says why")

    async def _deliver(self, webhook: Webhook) -> None:
        rights = self._rights(webhook.principal, webhook.warehouse)
        subscription = await self._feed.open_with(webhook.request(), rights)
        attempts, token = webhook.attempts, webhook.token
        while not stopping.is_set():
            piece = await _next_piece(subscription)
            if piece is not None:
                result = await self._poster.post(webhook, piece.messages, token, piece.end.token)
                measures.posted(is_accepted=result.is_accepted, is_final=result.is_final)
                if not result.is_accepted:
                    await self._failed(webhook, attempts + 1, result.text, is_final=result.is_final)
                    return
                measures.sent("webhook", piece.messages)
                attempts, token = 0, piece.end.token
            else:
                token = subscription.cursor.token
            if not await self._keep(webhook, token, is_delivered=piece is not None):
                return
            if piece is None:
                await subscription.wait(RENEW_S)
        # This server stops. Without this, the next one would wait until the claim expires.
        await self._feed.run(lambda: self._store.release(webhook.id, self._claim))

    async def _keep(self, webhook: Webhook, token: str, *, is_delivered: bool) -> bool:
        return await self._feed.run(
            lambda: self._store.keep(webhook.id, self._claim, LEASE_MS, token, is_delivered=is_delivered)
        )

    async def _failed(self, webhook: Webhook, attempts: int, text: str, *, is_final: bool = False) -> None:
        is_final = is_final or attempts > len(self._pauses_s)
        pause_s = 0.0 if is_final else self._pauses_s[attempts - 1] * random.uniform(0.8, 1.2)  # noqa: S311
        wait_ms = None if is_final else int(pause_s * 1000)
        log.warning(
            "a webhook is dead" if is_final else "a webhook was not accepted",
            extra={"webhook": webhook.id, "attempts": attempts, "reason": text},
        )
        await self._feed.run(
            lambda: self._store.failed(webhook.id, self._claim, text[:1000], attempts, wait_ms)
        )


async def _next_piece(subscription: Subscription) -> Piece | None:
    """Return the next messages, at most as many as one request may have; None if there is none now."""
    found: list[Message] = []
    size = 0
    pending = subscription.pending()
    try:
        async for message in pending:
            if message.kind in ("change", "must-refetch"):
                found.append(message)
                size += len(message.frame)
            if found and message.kind == "progress":
                found.append(message)  # it is not posted, and shows how late the commit is
                break
            if len(found) >= EVENTS_MAX or size >= BYTES_MAX:
                break
    finally:
        await pending.aclose()  # type: ignore[attr-defined]
    return Piece(found, subscription.cursor) if found else None
