"""The settings of ingest: API, journal, batches, staged files, and the settings of each table.

Times end in `_s` or `_ms`, sizes in `_bytes_max`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, get_args

from catalog.errors import Invalid

Mode = Literal["mirror+changes", "changes", "mirror", "append"]
Policy = Literal["evolve", "freeze", "reject"]
AfterReject = Literal["pass", "wait"]
Truncate = Literal["apply", "ignore", "hold"]
Deletes = Literal["hard", "soft"]
MirrorChanged = Literal["pause", "accept", "rebuild"]
TypeChanges = Literal["convert", "split", "reject"]
KeepChecksums = Literal["each-batch", "verification-only"]

IS_DELETED = "_is_deleted"  # Iceberg reserves `_deleted`

NAMES = {
    "operation": "_operation",
    "commit-timestamp": "_commit_timestamp",
    "source-timestamp": "_source_timestamp",
    "source": "_source",
    "position": "_position",
    "transaction": "_transaction",
    "event-id": "_event_id",
    "before": "_before",
    "order": "_order",
    "absent": "_absent",
}
CHANGE_TYPES = {
    "operation": "string",
    "commit-timestamp": "timestamptz",
    "source-timestamp": "timestamptz",
    "source": "string",
    "position": "string",
    "transaction": "string",
    "event-id": "string",
    "before": "string",
    "order": "long",
    "absent": "string",
}
_CHOICES = {
    "mode": Mode,
    "policy": Policy,
    "after_reject": AfterReject,
    "truncate": Truncate,
    "deletes": Deletes,
    "mirror_changed": MirrorChanged,
    "type_changes": TypeChanges,
    "checksums": KeepChecksums,
}
_NULLABLE = ("type_changes", "checksums")  # null: as left out


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiSettings:
    """Limits of connections and messages apply to each server process."""

    # Requests
    default_warehouse: str = "main"
    default_namespace: tuple[str, ...] = ("default",)  # of a table that an event names without a namespace
    # On SQLite a body up to this size is parsed on the event loop: a thread would take a quarter longer.
    inline_bytes_max: int = 256 * 1024
    # On PostgreSQL each thread has a connection to the journal and one to the catalog.
    parse_threads_max: int = 4
    query_threads_max: int = 2
    # of bodies that wait for a thread or are being parsed; beyond it, 429
    parsing_bytes_max: int = 64 * 2**20
    retry_after_s_max: int = 3  # Debezium Server stops after about four seconds of refusals
    commit_wait_s: float = 30.0  # of ?wait=commit, if the request does not set one
    commit_wait_s_max: float = 55.0
    visibility_poll_ms: int = 50  # how often wait=commit checks what has landed
    # Sources whose unusable requests become dead letters instead of a 400; "*" means all.
    dead_letter_sources: frozenset[str] = frozenset()
    webhook_secret: str | None = None  # Standard Webhooks: whsec_ and base64
    webhook_tolerance_s: int = 300
    webhook_warehouse: str = "main"  # the warehouse in which a signature alone gives the role writer

    # WebSocket
    message_bytes_max: int = 4 * 2**20
    event_bytes_max: int = 2**20
    size_violations_max: int = 3  # after them the connection is closed with 1008
    messages_per_s: int = 100
    messages_burst: int = 50  # beyond messages_per_s
    messages_refill_per_s: float = 10.0  # of the burst
    connections_max: int = 12_000
    connections_per_s: int = 20
    connections_per_source_max: int = 5
    connections_per_address_max: int = 30
    connections_per_subnet_max: int = 100  # a /24, or a /64 of IPv6; never below the limit of one address
    batches_in_flight_max: int = 32  # of one connection; then nothing is read until one is acknowledged
    sources_remembered_max: int = 10_000  # for /status

    # Load: how full the journal is, between 0 and 1
    buffered_level: float = 0.8  # above it, an ack has the status `buffered`
    load_levels: tuple[float, float, float] = (0.5, 0.7, 0.9)  # elevated, high, critical
    buffer_full_delay_ms: int = 5_000  # the longest wait that a nack suggests
    freshness_target_ms: int = 1_000  # the time until the next batch that acks announce

    def __post_init__(self) -> None:
        if not 0 < self.load_levels[0] <= self.load_levels[1] <= self.load_levels[2] <= 1:
            raise ValueError("load_levels must be increasing, between 0 and 1")
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
    """`levels` are the fractions of `bytes_max` at which priorities 3, 2 and 1 are refused. Priority 0 is
    refused last, when the fallback bytes are used up too.
    """

    bytes_max: int = 128 * MIB
    fallback_bytes_max: int = 64 * MIB
    window_ms: int = 300_000  # how long an identity is kept
    digests_max: int = 2_000_000  # identities in memory (about 100 bytes each); the oldest are removed first
    transaction_linger_ms: int = 1_000  # a source transaction without a new change for this long is complete
    # the same for a transaction whose beginning was announced: its end will be, too
    transaction_wait_ms: int = 300_000
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
    """When a batch is cut, and how large a job may be."""

    events: int = 10_000
    stored_bytes: int = 32 * 2**20
    freshness_ms: int = 500
    batch_events_max: int = 200_000
    batch_bytes_max: int = 64 * 2**20  # as the journal stores them
    small_events: int = 5_000  # table groups of this size may share a job
    tables_max: int = 16


@dataclass(frozen=True, slots=True)
class TableSettings:
    """The settings of a table by its owner. Missing settings follow from the data or from the catalog."""

    mode: Mode = "mirror+changes"
    key: tuple[str, ...] | None = None
    policy: Policy = "evolve"
    after_reject: AfterReject = "pass"  # later changes of a key whose change was rejected
    truncate: Truncate = "apply"
    deletes: Deletes = "hard"  # soft: the row stays, with IS_DELETED
    mirror_changed: MirrorChanged = "pause"  # if others rolled the mirror back, emptied or dropped it
    # If a column gets a type that Iceberg cannot widen it to. None: as the rules of its source say.
    type_changes: TypeChanges | None = None
    partition: tuple[str, ...] = ()  # of the mirror: days(x), months(x), bucket(16, x), x
    changes_partition: tuple[str, ...] | None = None  # None: days(commit timestamp)
    format_version: int = 2
    # When checksums of the mirror are computed. None: as the server's setting says.
    checksums: KeepChecksums | None = None
    history_view: bool = False  # keep the view `<table>__history`
    names: Mapping[str, str] = field(default_factory=lambda: dict(NAMES))
    properties: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> TableSettings:
        """Parse JSON, with dashes or underscores. Invalid names the wrong field and the allowed values."""
        values = {key.replace("-", "_"): value for key, value in given.items()}
        known = {entry.name for entry in fields(cls)}
        for name in values:
            if name not in known:
                raise Invalid(f"unknown table setting {name}: one of {', '.join(sorted(known))}")
        values = {key: value for key, value in values.items() if value is not None or key not in _NULLABLE}
        for name, allowed in _CHOICES.items():
            if name in values and values[name] not in get_args(allowed):
                raise Invalid(f"{name} must be one of {', '.join(get_args(allowed))}")
        for name in ("key", "partition", "changes_partition"):
            if values.get(name) is not None:
                values[name] = _texts(name, values[name])
        if values.get("format_version", 2) not in (2, 3):
            raise Invalid("format_version must be 2 or 3")
        if not isinstance(values.get("history_view", False), bool):
            raise Invalid("history_view must be true or false")
        if "names" in values:
            values["names"] = _names(values["names"])
        if "properties" in values:
            values["properties"] = _text_map("properties", values["properties"])
        _check_policy(values)
        return cls(**values)

    def as_json(self) -> dict[str, Any]:
        return {name.replace("_", "-"): value for name, value in asdict(self).items()}


def _check_policy(values: Mapping[str, Any]) -> None:
    if values.get("deletes") == "soft" and values.get("policy", "evolve") != "evolve":
        raise Invalid(f"deletes: soft adds the column {IS_DELETED}: set policy to evolve")
    if values.get("type_changes") == "split" and values.get("policy", "evolve") != "evolve":
        raise Invalid("type_changes: split adds columns: set policy to evolve")


def _texts(name: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(part, str) and part for part in value):
        raise Invalid(f"{name} must be a list of strings")
    if len(set(value)) != len(value):
        raise Invalid(f"{name} must be a list of different strings")
    return tuple(value)


def _text_map(name: str, value: Any) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(part, str) for part in value.values()):
        raise Invalid(f"{name} must be an object with string values")
    return dict(value)


def _names(value: Any) -> dict[str, str]:
    given = _text_map("names", value)
    for name in given:
        if name not in NAMES:
            raise Invalid(f"unknown name {name}: one of {', '.join(NAMES)}")
    merged = {**NAMES, **given}
    if len(set(merged.values())) != len(merged) or not all(merged.values()):
        raise Invalid("names must be different and not empty")
    return merged
