"""How large the journal may grow, who is refused first, and how long it remembers what it has seen."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 2**20


@dataclass(frozen=True, slots=True)
class JournalLimits:
    """`levels` are the parts of `bytes_max` at which priorities 3, 2 and 1 are refused; 0 is refused last,
    when the fallback bytes are used up too.
    """

    bytes_max: int = 128 * MIB
    fallback_bytes_max: int = 64 * MIB
    window_ms: int = 300_000  # how long an identity is known
    marks_max: int = 2_000_000  # identities in memory (about 100 bytes each); the oldest go first
    transaction_linger_ms: int = 1_000  # a source transaction that is silent for so long is over
    transaction_wait_ms: int = 300_000  # the same for one whose beginning was announced: its end will be
    deduplicate: bool = True
    levels: tuple[float, float, float] = (0.5, 0.7, 0.9)
    queue_bytes_max: int = 32 * MIB  # of requests in memory that wait for their COMMIT
    group_bytes_max: int = 8 * MIB  # of requests that share a COMMIT
    group_requests_max: int = 256

    def bound(self, priority: int) -> int:
        """How many bytes may be pending after a request of this priority."""
        if priority <= 0:
            return self.bytes_max + self.fallback_bytes_max
        low, middle, high = self.levels
        return int(self.bytes_max * {1: high, 2: middle}.get(priority, low))
