"""Post signed requests to the receivers of webhooks."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from catalog.errors import Invalid
from catalog.moments import AtTime
from query.feed.events import Message
from query.feed.feed import Feed
from query.feed.webhooks.addresses import Resolve, resolve, target_of
from query.feed.webhooks.sealing import Sealing
from query.feed.webhooks.signing import message_id, signed_headers
from query.feed.webhooks.store import Webhook

if TYPE_CHECKING:
    import httpx

TIMEOUT_S = 15.0
GONE = 410  # the receiver refuses further requests


@dataclass(frozen=True, slots=True)
class PostResult:
    is_accepted: bool
    status: int | None
    text: str  # the response of the receiver, or why there is none
    duration_ms: float
    is_final: bool = False  # no further attempt


class Poster:
    def __init__(
        self,
        feed: Feed,
        sealing: Sealing,
        *,
        private: bool,
        resolved: Resolve = resolve,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._feed = feed
        self._sealing = sealing
        self._private = private
        self._resolved = resolved
        self._now_ms = now_ms
        self._client: httpx.AsyncClient | None = None

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()

    async def post(
        self, webhook: Webhook, messages: Sequence[Message], token: str, next_token: str
    ) -> PostResult:
        """Post changes after a token. Every attempt has the same `webhook-id`."""
        data: dict[str, Any] = {
            "webhook": webhook.id,
            "warehouse": webhook.warehouse,
            "changes": [message.data for message in messages if message.kind == "change"],
            "must-refetch": [message.data for message in messages if message.kind == "must-refetch"],
            "token": next_token,
        }
        return await self._send(webhook, "changes", data, message_id(webhook.id, token))

    async def test(self, webhook: Webhook) -> PostResult:
        data = {"webhook": webhook.id, "warehouse": webhook.warehouse, "changes": [], "must-refetch": []}
        identity = message_id(webhook.id, f"test-{time.time_ns()}")
        return await self._send(webhook, "test", data, identity)

    async def _send(self, webhook: Webhook, type_: str, data: dict[str, Any], identity: str) -> PostResult:
        import httpx  # slow to import

        began_s = time.monotonic()
        now_ms = self._now_ms()
        body = orjson.dumps({"type": type_, "timestamp": str(AtTime(now_ms)), "data": data})
        status, text = None, ""
        try:
            target = await self._feed.run(
                lambda: target_of(webhook.url, private=self._private, resolved=self._resolved)
            )
            secret = self._sealing.opened(webhook.id, webhook.secret)
            headers = signed_headers(secret, identity, now_ms // 1000, body)
            async with self._open().stream(
                "POST",
                target.url,
                content=body,
                headers={**headers, "host": target.host},
                extensions={"sni_hostname": target.server_name},
            ) as response:
                status = response.status_code
                text = f"the receiver answered {status}"
        except Invalid as error:
            text = error.message
        except httpx.HTTPError as error:
            text = f"no answer: {type(error).__name__} {error}".rstrip()
        is_accepted = status is not None and 200 <= status < 300
        return PostResult(
            is_accepted, status, text, (time.monotonic() - began_s) * 1000, is_final=status == GONE
        )

    def _open(self) -> httpx.AsyncClient:
        import httpx

        if self._client is None:
            self._client = httpx.AsyncClient(timeout=TIMEOUT_S, follow_redirects=False, trust_env=False)
        return self._client
