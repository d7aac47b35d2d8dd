"""The metrics of the change feed and of webhooks."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Literal

from prometheus_client import Counter, Gauge, Histogram

from query.feed.events import Message

Transport = Literal["sse", "ws", "poll", "webhook"]

LAG_S = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 3600.0, 86_400.0)

subscriptions = Gauge(
    "calve_feed_subscriptions", "Subscriptions that are open.", ("transport",), multiprocess_mode="livesum"
)
_changes = Counter("calve_feed_changes_total", "Changes that were sent to subscribers.", ("transport",))
_lags = Histogram(
    "calve_feed_lag_seconds",
    "Time from a commit until all of its changes were sent to a subscriber.",
    ("transport",),
    buckets=LAG_S,
)
_ended = Counter(
    "calve_feed_failures_total",
    "Subscriptions that the server ended: must-refetch, slow-consumer or error.",
    ("transport", "reason"),
)
_requests = Counter("calve_webhook_requests_total", "Requests to receivers of webhooks.", ("result",))
_webhooks = Gauge(
    "calve_webhooks",
    "Webhooks by state: active, failing (the last request was not accepted), dead.",
    ("state",),
    multiprocess_mode="mostrecent",
)
_webhook_lag = Gauge(
    "calve_webhook_lag_seconds",
    "Time since the webhook that is furthest behind was up to date; 0 if none fails.",
    multiprocess_mode="mostrecent",
)


def sent(transport: Transport, messages: Sequence[Message]) -> None:
    """Count messages that were sent to a subscriber."""
    count = sum(message.kind == "change" for message in messages)
    if count:
        _changes.labels(transport).inc(count)
    for message in messages:
        if message.kind == "progress" and message.data["changes"]:
            _lags.labels(transport).observe(max(0.0, time.time() - message.cursor.time_ms / 1000))
        elif message.kind in ("must-refetch", "slow-consumer", "error") and "table" not in message.data:
            _ended.labels(transport, message.kind).inc()


def posted(*, is_accepted: bool, is_final: bool) -> None:
    """Count a request to the receiver of a webhook."""
    _requests.labels("accepted" if is_accepted else "refused for good" if is_final else "failed").inc()


def webhooks_are(counts: Mapping[str, int], lag_s: float) -> None:
    for state, count in counts.items():
        _webhooks.labels(state).set(count)
    _webhook_lag.set(lag_s)
