"""The settings of the front door for changes, the journal, batches and the Spark worker."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from calve.declared import DERIVED, about

Compression = Literal["zstd", "snappy", "gzip", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestSettings:
    """Part of `Settings`. Times end in `_ms` or `_s`, sizes in `_bytes` or `_bytes_max`."""

    journal: str = field(
        default=DERIVED,
        repr=False,  # may hold a password
        metadata=about(
            "Where acknowledged changes wait until they land; an SQLite file of its own, or the database.",
            derived=lambda s: (
                f"sqlite:///{s.home}/journal.db" if s.database.startswith("sqlite:") else s.database
            ),
            shown="sqlite:///HOME/journal.db, or the PostgreSQL of `database`",
        ),
    )
    buffer_bytes_max: int = field(
        default=128 * 2**20,
        metadata=about(
            "Stored bytes that may wait in the journal; then producers are told to wait.", least=2**16
        ),
    )
    fallback_bytes_max: int = field(
        default=64 * 2**20,
        metadata=about("Further bytes for producers of the highest priority.", least=0),
    )
    deduplication: bool = field(
        default=True, metadata=about("Recognise changes that are sent again, and take them once.")
    )
    deduplication_window_ms: int = field(
        default=300_000,
        metadata=about(
            "How long the identity of a change of a source without numbers is remembered.", least=0
        ),
    )
    transaction_linger_ms: int = field(
        default=1_000,
        metadata=about("A source transaction without an end is whole after so much silence.", least=0),
    )
    transaction_wait_ms: int = field(
        default=300_000,
        metadata=about(
            "The same where the source has announced the beginning, so that the end is sure to come.", least=0
        ),
    )

    freshness_target_ms: int = field(
        default=1_000,
        metadata=about("A change waits so long for others before its batch is cut.", least=0),
    )
    flush_events: int = field(
        default=10_000, metadata=about("A batch is cut at once when so many changes wait.", least=1)
    )
    flush_bytes: int = field(
        default=32 * 2**20, metadata=about("A batch is cut at once when so many bytes wait.", least=1024)
    )
    flush_age_ms_max: int = field(
        default=60_000, metadata=about("No change waits longer than this for its batch.", least=1)
    )
    flush_interval_ms: int = field(
        default=30_000, metadata=about("Batches of a table with changes are at most so far apart.", least=1)
    )
    batch_events_max: int = field(
        default=200_000, metadata=about("Most changes of one table in one batch.", least=1)
    )
    parquet_row_group_rows: int = field(
        default=100_000, metadata=about("Rows in a row group of a staged file.", least=1)
    )
    parquet_compression: Compression = field(default="zstd", metadata=about("Compression of staged files."))
    default_namespace: str = field(
        default="default", metadata=about("Where a table belongs that an event names without a namespace.")
    )

    webhook_secret: str | None = field(
        default=None,
        repr=False,
        metadata=about("Secret (`whsec_…`) with which producers sign Standard Webhooks.", secret=True),
    )
    connections_max: int = field(
        default=12_000, metadata=about("WebSocket connections of one server process.", least=1)
    )
    connections_per_s: int = field(
        default=20, metadata=about("New WebSocket connections in one second.", least=1)
    )
    connections_per_source_max: int = field(
        default=5, metadata=about("WebSocket connections of one source.", least=1)
    )
    connections_per_address_max: int = field(
        default=30, metadata=about("WebSocket connections from one address.", least=1)
    )
    messages_per_s: int = field(
        default=100, metadata=about("Messages in one second on one WebSocket connection.", least=1)
    )
    message_bytes_max: int = field(
        default=4 * 2**20, metadata=about("Largest WebSocket message.", least=1024)
    )
    event_bytes_max: int = field(
        default=2**20, metadata=about("Largest event in a WebSocket message.", least=256)
    )

    worker: bool = field(
        default=DERIVED,
        metadata=about(
            "Start a Spark worker beside the server and look after it.",
            derived=lambda s: s.database.startswith("sqlite:"),
            shown="true if the database is SQLite",
        ),
    )
    worker_slots: int = field(
        default=2, metadata=about("Batches that a worker lands side by side.", least=1, most=64)
    )
    spark_master: str = field(
        default="local[*]", metadata=about("Where Spark runs: `local[*]`, or the address of a cluster.")
    )
    spark_memory: str = field(
        default="1g", metadata=about("Memory of the worker's Spark driver, such as `1g` or `4g`.")
    )
