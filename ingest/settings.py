"""The settings of ingest: API, journal, batches, staged files. Times end in `_s` or `_ms`, sizes in
`_bytes_max`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiSettings:
    """Limits of connections and messages hold for each server process."""

    # Requests
    default_warehouse: str = "main"
    default_namespace: tuple[str, ...] = ("default",)  # of a table that an event names without one
    # On SQLite a body up to this size is parsed on the event loop: a thread would take a quarter longer.
    inline_bytes_max: int = 256 * 1024
    # Each thread has a connection to the journal and one to the catalog, where those are PostgreSQL.
    parse_threads_max: int = 4
    query_threads_max: int = 2
    parsing_bytes_max: int = 64 * 2**20  # of bodies that wait for a thread or are being parsed; then 429
    retry_after_s_max: int = 3  # Debezium Server stops after about four seconds of refusals
    commit_wait_s: float = 30.0  # of ?wait=commit, if the request does not say
    commit_wait_s_max: float = 55.0
    visibility_poll_ms: int = 50  # how often wait=commit asks what has landed
    # Sources whose unusable requests become dead letters instead of a 400; "*" means all.
    dead_letter_sources: frozenset[str] = frozenset()
    webhook_secret: str | None = None  # Standard Webhooks: whsec_ and base64
    webhook_tolerance_s: int = 300
    webhook_warehouse: str = "main"  # where a signature alone gives the role writer

    # WebSocket
    message_bytes_max: int = 4 * 2**20
    event_bytes_max: int = 2**20
    size_violations_max: int = 3  # then the connection is closed with 1008
    messages_per_s: int = 100
    messages_burst: int = 50  # beyond messages_per_s
    messages_refill_per_s: float = 10.0  # of the burst
    connections_max: int = 12_000
    connections_per_s: int = 20
    connections_per_source_max: int = 5
    connections_per_address_max: int = 30
    connections_per_subnet_max: int = 100  # a /24, or a /64 of IPv6; never below the limit of one address
    batches_in_flight_max: int = 32  # of one connection; then it is not read from until one is acknowledged
    sources_remembered_max: int = 10_000  # for /status

    # Load: how full the journal is, between 0 and 1
    buffered_level: float = 0.8  # an ack above it says `buffered`
    load_levels: tuple[float, float, float] = (0.5, 0.7, 0.9)  # elevated, high, critical
    buffer_full_delay_ms: int = 5_000  # what a nack asks a client to wait, at most
    freshness_target_ms: int = 1_000  # what acks announce as the time until the next cut

    def __post_init__(self) -> None:
        if not 0 < self.load_levels[0] <= self.load_levels[1] <= self.load_levels[2] <= 1:
            raise ValueError("load_levels must rise, between 0 and 1")
        for name in (
            "parse_threads_max",
            "query_threads_max",
            "messages_per_s",
            "connections_per_s",
            "batches_in_flight_max",
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1")


# -- the journal

MIB = 2**20


@dataclass(frozen=True, slots=True)
class JournalLimits:
    """`levels` are the parts of `bytes_max` at which priorities 3, 2 and 1 are refused; 0 is refused last,
    when the fallback bytes are used up too.
    """

    bytes_max: int = 128 * MIB
    fallback_bytes_max: int = 64 * MIB
    window_ms: int = 300_000  # how long an identity is known
    digests_max: int = 2_000_000  # identities in memory (about 100 bytes each); the oldest go first
    transaction_linger_ms: int = 1_000  # a source transaction that is silent for so long is over
    transaction_wait_ms: int = 300_000  # the same for one whose beginning was announced: its end will be
    deduplicate: bool = True
    levels: tuple[float, float, float] = (0.5, 0.7, 0.9)
    queue_bytes_max: int = 32 * MIB  # of requests in memory that wait for their COMMIT
    group_bytes_max: int = 8 * MIB  # of requests that share a COMMIT
    group_requests_max: int = 256


@dataclass(frozen=True, slots=True)
class StagedOptions:
    row_group_rows: int = 100_000
    compression: str = "zstd"


@dataclass(frozen=True, slots=True)
class Thresholds:
    """When a batch is cut, and how much goes into one job."""

    events: int = 10_000
    stored_bytes: int = 32 * 2**20
    freshness_ms: int = 500
    batch_events_max: int = 200_000
    batch_bytes_max: int = 64 * 2**20  # as the journal stores them
    small_events: int = 5_000  # lanes of this size may share a job
    tables_max: int = 16
