"""Limits for one connection, one source and one address. Pure: the caller passes the time.

The counts are those of one server process.
"""

from __future__ import annotations

import ipaddress
import threading
from collections import Counter
from dataclasses import dataclass
from typing import Literal

from ingest.settings import ApiSettings

Refusal = Literal["rate_limited", "connection_limit", "ip_limit"]
WINDOW_S = 1.0


@dataclass(frozen=True, slots=True)
class Rate:
    """The state of a limit, as it is sent to clients."""

    limit: int
    remaining: int
    reset_at_s: int  # Unix seconds

    def as_json(self) -> dict[str, int]:
        return {"limit": self.limit, "remaining": self.remaining, "resetAt": self.reset_at_s}

    def as_headers(self) -> list[tuple[bytes, bytes]]:
        return [
            (b"x-ratelimit-limit", str(self.limit).encode()),
            (b"x-ratelimit-remaining", str(self.remaining).encode()),
            (b"x-ratelimit-reset", str(self.reset_at_s).encode()),
        ]


class MessageLimit:
    """A token bucket: a number of messages a second, and more for bursts, which refills slowly."""

    __slots__ = ("_burst_max", "_count", "_limit", "_refill_per_s", "_refilled_s", "_window_s", "burst")

    def __init__(self, settings: ApiSettings, now_s: float) -> None:
        self._limit = settings.messages_per_s
        self._burst_max = settings.messages_burst
        self._refill_per_s = settings.messages_refill_per_s
        self._window_s = self._refilled_s = now_s
        self._count = 0
        self.burst = float(settings.messages_burst)

    def take(self, now_s: float) -> bool:
        """Count a message. Returns False if it exceeds the limit."""
        if now_s - self._window_s >= WINDOW_S:
            self._window_s, self._count = now_s, 0
        gained = (now_s - self._refilled_s) * self._refill_per_s
        self.burst, self._refilled_s = min(float(self._burst_max), self.burst + gained), now_s
        if self._count < self._limit:
            self._count += 1
            return True
        if self.burst >= 1:
            self.burst -= 1
            return True
        return False

    def wait_ms(self, now_s: float) -> int:
        """Return how long until a message is accepted again."""
        return max(1, int((self._window_s + WINDOW_S - now_s) * 1000) + 1)

    def rate(self, now_s: float, clock_s: float) -> Rate:
        """Return the state of the limit. `clock_s` is the time of day that corresponds to `now_s`."""
        reset_s = clock_s + max(0.0, self._window_s + WINDOW_S - now_s)
        return Rate(self._limit, self._limit - self._count, int(reset_s) + 1)


class Connections:
    """Counts open connections by address, by subnet and by source."""

    def __init__(self, settings: ApiSettings) -> None:
        self._settings = settings
        self._addresses: Counter[str] = Counter()
        self._subnets: Counter[str] = Counter()
        self._sources: Counter[str] = Counter()
        self._lock = threading.Lock()  # protects the sources: large messages are parsed in threads
        self._window_s = 0.0
        self._new = 0
        self.open = 0
        self.peak = 0

    @property
    def sources(self) -> int:
        return len(self._sources)

    def enter(self, address: str, source: str | None, now_s: float) -> Refusal | None:
        """Count a new connection, or return the limit that it exceeds."""
        settings = self._settings
        if now_s - self._window_s >= WINDOW_S:
            self._window_s, self._new = now_s, 0
        subnet = subnet_of(address)
        subnet_max = max(settings.connections_per_subnet_max, settings.connections_per_address_max)
        if self._new >= settings.connections_per_s:
            return "rate_limited"
        if self._addresses[address] >= settings.connections_per_address_max:
            return "ip_limit"
        if self._subnets[subnet] >= subnet_max:
            return "ip_limit"
        if self.open >= settings.connections_max:
            return "connection_limit"
        if source is not None and not self.join(source):
            return "connection_limit"
        self._new += 1
        self._addresses[address] += 1
        self._subnets[subnet] += 1
        self.open += 1
        self.peak = max(self.peak, self.open)
        return None

    def leave(self, address: str, source: str | None) -> None:
        self.open -= 1
        _less(self._addresses, address)
        _less(self._subnets, subnet_of(address))
        if source is not None:
            self.part(source)

    def join(self, source: str) -> bool:
        """Count a connection for a source. Returns False if the source has too many."""
        with self._lock:
            count = self._sources.get(source, 0)
            if count >= self._settings.connections_per_source_max:
                return False
            self._sources[source] = count + 1
            return True

    def part(self, source: str) -> None:
        with self._lock:
            _less(self._sources, source)

    def rate(self, now_s: float, clock_s: float) -> Rate:
        limit = self._settings.connections_per_s
        reset_s = clock_s + max(0.0, self._window_s + WINDOW_S - now_s)
        return Rate(limit, max(0, limit - self._new), int(reset_s) + 1)


def subnet_of(address: str) -> str:
    """Return the /24 of an IPv4 address or the /64 of an IPv6 one; anything else unchanged."""
    if address.count(".") == 3 and ":" not in address:
        return address.rpartition(".")[0]
    try:
        packed = ipaddress.IPv6Address(address).packed
    except ValueError:
        return address
    return packed[:8].hex()


def _less(counts: Counter[str], key: str) -> None:
    counts[key] -= 1
    if counts[key] <= 0:
        del counts[key]
