"""Every setting of Calve, declared once.

`Settings()` reads each value from the first source that has it: its arguments (the flags of a command), the
variables CALVE_*, the TOML file, the default. A `Settings` that exists is valid. What pydantic-settings lacks
(refusal of unknown names, errors that name the setting and its source) is in calve/settings_sources.py.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import unquote

from pydantic import AfterValidator, Field, SecretStr, ValidationError, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from calve.setting_types import DatabaseAddress, Seconds, Text, WebAddress, absolute, separator, storage_root
from calve.settings_sources import (
    PREFIX,
    Environment,
    TomlFile,
    as_text,
    is_loopback,
    passwords,
    sentence,
    variable,
)
from calve.startup import SettingsError


def _derived(shown: str, default: Callable[[dict[str, Any]], Any], description: str, **more: Any) -> Any:
    """A field whose default follows from the fields above it; `shown` says in words what it is."""
    return Field(default_factory=default, description=description, json_schema_extra={"shown": shown}, **more)


class Settings(BaseSettings):
    """All settings, checked. Times end in `_s` or `_ms`, sizes in `_bytes` or `_bytes_max`."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, env_ignore_empty=True, frozen=True, extra="forbid")

    config: Path | None = Field(
        None,
        description="TOML file with settings; it must exist if it is named.",
        json_schema_extra={"shown": "calve.toml, if it exists"},
    )

    home: Annotated[Path, AfterValidator(absolute)] = Field(
        Path("lake"),
        validate_default=True,
        description="Folder of the embedded default: the database and the tables.",
    )
    host: Text = Field("127.0.0.1", description="Address to listen on.")
    port: int = Field(8181, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    base_url: WebAddress | None = Field(
        None, description="Public address of the server, if clients reach it by another one."
    )
    workers: int = Field(1, ge=1, le=256, description="Server processes that share the port.")

    database: DatabaseAddress = _derived(
        "sqlite:///HOME/catalog.db",
        lambda data: f"sqlite:///{data['home']}/catalog.db",
        "Where the catalog is kept: `sqlite:///FILE` or `postgresql://USER:PASSWORD@HOST/NAME`.",
        repr=False,  # may hold a password
    )
    database_pool_size: int = Field(
        16, ge=1, le=1000, description="Database connections that one server process opens at most."
    )
    database_statement_timeout_s: Seconds = Field(
        30.0, ge=0.001, description="PostgreSQL ends a statement that takes longer."
    )
    database_lock_timeout_s: Seconds = Field(
        10.0, ge=0.001, description="PostgreSQL ends a statement that waits longer for a lock."
    )
    fast_paths: bool = Field(
        True, description="Use the code that exists only for speed; `false` is slower and behaves the same."
    )
    warehouse_root: Annotated[Text, AfterValidator(storage_root)] = _derived(
        "file://HOME/warehouse",
        lambda data: f"file://{data['home']}/warehouse",
        "Where the warehouse `main` keeps its tables: `file:///FOLDER` or `s3://BUCKET/PREFIX`.",
    )

    s3_endpoint: WebAddress | None = Field(
        None, description="Address of an S3-compatible store; unset means Amazon S3."
    )
    s3_region: Text = Field("us-east-1", description="Region of the store.")
    s3_access_key_id: Text | None = Field(None, description="Access key for the store.")
    s3_secret_access_key: SecretStr | None = Field(None, description="Secret key for the store.")
    s3_path_style: bool = _derived(
        "true if s3_endpoint is set",
        lambda data: data["s3_endpoint"] is not None,
        "Put the bucket into the path instead of the host name.",
    )
    s3_connect_timeout_s: Seconds = Field(2.0, ge=0.1, le=300, description="Time to connect to the store.")
    s3_request_timeout_s: Seconds = Field(
        4.0, ge=0.1, le=3600, description="Time for one request to the store."
    )

    auth: Literal["open", "tokens"] = Field(
        "open", description="`open`: no tokens, loopback only; `tokens`: every caller sends one."
    )
    token_lifetime_s: int = Field(3600, ge=1, description="How long an issued token is valid.")
    metrics_auth: bool = Field(False, description="`/metrics` requires a token too, when `auth` is `tokens`.")

    body_bytes_max: int = Field(
        32 * 2**20, ge=1024, description="Largest request body, also after decompression."
    )
    request_timeout_s: Seconds = Field(
        60.0, ge=0.1, description="A request that takes longer is answered with 504."
    )
    keep_alive_timeout_s: int = Field(75, ge=1, description="An idle connection is closed after this time.")
    shutdown_timeout_s: int = Field(
        30, ge=0, le=3600, description="Time for requests in flight to finish on a stop."
    )
    page_size_max: int = Field(1000, ge=1, le=100_000, description="Most entries on one page of a list.")
    namespace_separator: Annotated[Text, AfterValidator(separator)] = Field(
        "%1F", description="Separator of namespace levels, percent-encoded as in a URL."
    )
    idempotency_lifetime_s: int = Field(1800, ge=1, description="How long an Idempotency-Key is kept.")
    drop_retention_s: int = Field(7 * 86_400, ge=0, description="How long a dropped table can be restored.")
    transaction_ttl_s: int = Field(3600, ge=1, description="An open transaction is aborted after this time.")
    document_cache_bytes_max: int = Field(
        256 * 2**20, ge=0, description="Memory for parsed metadata documents in each process."
    )
    http_parser: Literal["zttp", "h11"] = Field(
        "zttp", description="Parser of HTTP requests: `zttp` is faster and stricter; `h11` is pure Python."
    )

    maintenance: bool = Field(True, description="Snapshots expire and small files are joined.")
    kept_moments: Text = Field(
        "all:10m, 1m:6h, 1h:7d, 1d:365d",
        description="Which past moments of a warehouse can be read: all of the last 10 minutes, and so on.",
    )
    maintenance_interval_s: Seconds = Field(10.0, ge=0.1, description="Time between rounds of maintenance.")
    verify_interval_s: Seconds = Field(
        3600.0, ge=0, description="A mirror that has changed is verified again after this time; 0 is never."
    )
    checksums: Literal["each-batch", "verification-only"] = Field(
        "each-batch",
        description="When checksums of mirrors are computed. A table may have its own setting.",
    )
    reader_pin_s: int = Field(
        3600, ge=1, description="A moment that a client reads stays readable for this time after a request."
    )
    reader_grace_s: int = Field(
        3600, ge=0, description="The files of an expired snapshot are deleted after this time."
    )

    query_processes_max: int = Field(
        2, ge=1, le=256, description="Processes that run queries, in each server process."
    )
    query_memory_bytes_max: int = Field(
        2**30, ge=64 * 2**20, description="Memory of one query; what needs more is refused."
    )
    query_timeout_s: Seconds = Field(60.0, ge=0.1, description="A query that takes longer is ended.")
    query_result_bytes_max: int = Field(
        4 * 2**30, ge=1024, description="Largest result; a query that gives more is ended."
    )
    query_concurrency_per_caller: int = Field(
        2, ge=1, le=256, description="Queries of one caller that run concurrently; others wait."
    )
    query_fresh_events_max: int = Field(
        10_000,
        ge=0,
        description="Pending changes that `consistency=fresh` adds to a query. With more, it waits for the "
        "publish.",
    )
    query_fresh_bytes_max: int = Field(16 * 2**20, ge=0, description="The same in bytes of the journal.")
    query_sandbox: Literal["auto", "require", "off"] = Field(
        "auto",
        description="Confine query processes by the kernel (Landlock): `auto` as far as the kernel can, "
        "`require` or run no query, `off`.",
    )

    subscriptions_max: int = Field(
        10_000, ge=1, description="Subscriptions that one server process holds open."
    )
    webhook_key: SecretStr | None = Field(
        None,
        min_length=16,
        description="Random text that secrets of webhooks are encrypted with in the database.",
        json_schema_extra={"shown": "with SQLite: in HOME/webhook.key"},
    )
    webhook_private_addresses: bool = Field(
        False, description="Post webhooks to private addresses too, and without TLS."
    )

    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info",
        description="Least level that is logged; successful reads and accepted changes are logged at "
        "`debug`, other requests at `info`.",
    )
    log_format: Literal["auto", "text", "json"] = Field(
        "auto",
        description="`text`: readable lines; `json`: one object a line; "
        "`auto`: text on a terminal, else JSON.",
    )

    journal: DatabaseAddress = _derived(
        "sqlite:///HOME/journal.db, or the PostgreSQL of `database`",
        lambda data: (
            f"sqlite:///{data['home']}/journal.db"
            if data["database"].startswith("sqlite:")
            else data["database"]
        ),
        "Where acknowledged changes are kept until they land; a separate SQLite file, or the database.",
        repr=False,  # may hold a password
    )
    buffer_bytes_max: int = Field(
        128 * 2**20,
        ge=2**16,
        description="Stored bytes that may wait in the journal; then requests are refused with 429.",
    )
    fallback_bytes_max: int = Field(
        64 * 2**20, ge=0, description="Further bytes for producers of the highest priority."
    )
    deduplication: bool = Field(
        True, description="Recognise changes that are sent again, and accept them once."
    )
    deduplication_window_ms: int = Field(
        300_000,
        ge=0,
        description="How long the identity of a change is kept, if its source has no numbers.",
    )
    transaction_linger_ms: int = Field(
        1_000,
        ge=0,
        description="A source transaction without an end counts as whole after this time without events.",
    )
    transaction_wait_ms: int = Field(
        300_000, ge=0, description="The same for a source that announces the beginning and the end."
    )

    resync_timeout_s: int = Field(
        3_600, ge=1, description="A resync of a table that is not ended within this time is given up."
    )

    freshness_target_ms: int = Field(
        1_000,
        ge=0,
        description="How soon a change should be visible. Its batch is cut early enough, as far as is known.",
    )
    flush_events: int = Field(10_000, ge=1, description="A batch is cut at once when this many changes wait.")
    flush_bytes: int = Field(
        32 * 2**20, ge=1024, description="A batch is cut at once when this many bytes wait."
    )
    flush_age_ms_max: int = Field(60_000, ge=1, description="No change waits longer than this for its batch.")
    flush_interval_ms: int = Field(
        30_000, ge=1, description="Most time between two batches of a table with changes."
    )
    batch_events_max: int = Field(200_000, ge=1, description="Most changes of one table in one batch.")
    batch_bytes_max: int = Field(
        64 * 2**20, ge=1, description="Most bytes of one table in one batch, compressed as in the journal."
    )
    parquet_row_group_rows: int = Field(100_000, ge=1, description="Rows in a row group of a staged file.")
    parquet_compression: Literal["zstd", "snappy", "gzip", "none"] = Field(
        "zstd", description="Compression of staged files."
    )
    default_namespace: Text = Field(
        "default", description="Namespace of a table that an event names without one."
    )

    dead_letter_sources: str | None = Field(
        None,
        description="Sources, separated by commas, whose unusable requests become dead letters instead of a "
        "400; `*` for all.",
    )
    webhook_secret: SecretStr | None = Field(
        None, description="Secret (`whsec_…`) with which producers sign Standard Webhooks."
    )
    connections_max: int = Field(12_000, ge=1, description="WebSocket connections of one server process.")
    connections_per_s: int = Field(20, ge=1, description="New WebSocket connections in one second.")
    connections_per_source_max: int = Field(5, ge=1, description="WebSocket connections of one source.")
    connections_per_address_max: int = Field(30, ge=1, description="WebSocket connections from one address.")
    messages_per_s: int = Field(100, ge=1, description="Messages in one second on one WebSocket connection.")
    message_bytes_max: int = Field(4 * 2**20, ge=1024, description="Largest WebSocket message.")
    event_bytes_max: int = Field(2**20, ge=256, description="Largest event in a WebSocket message.")

    worker: bool = _derived(
        "true if the database is SQLite",
        lambda data: data["database"].startswith("sqlite:"),
        "Start a Spark worker with the server, and restart it if it ends.",
    )
    worker_slots: int = Field(2, ge=1, le=64, description="Batches that a worker lands concurrently.")
    worker_credential: SecretStr | None = Field(
        None, description="Principal of `calve worker`, as `NAME:SECRET`, if the server requires tokens."
    )
    worker_token: SecretStr | None = Field(
        None, description="Token of `calve worker`, in place of a principal."
    )
    spark_master: Text = Field(
        "local[*]", description="Where Spark runs: `local[*]`, or the address of a cluster."
    )
    spark_memory: Text = Field("1g", description="Memory of the worker's Spark driver, such as `1g` or `4g`.")
    spark_driver_host: Text | None = Field(
        None, description="Address of the driver for executors elsewhere, where Spark does not find it."
    )
    spark_driver_port: int | None = Field(
        None, ge=1, le=65535, description="Fixed port of the driver, for a firewall."
    )
    spark_block_manager_port: int | None = Field(
        None, ge=1, le=65535, description="Fixed port through which the driver and executors exchange blocks."
    )
    spark_shuffle_partitions: int | None = Field(
        None, ge=1, description="Partitions of a shuffle, which only MERGE has. Default: 2."
    )
    spark_executors_max: int | None = Field(
        None, ge=1, description="Let Spark add and remove executors by need, up to so many."
    )
    spark_event_log_dir: Text | None = Field(
        None, description="Folder for Spark's event logs, such as `file:///var/log/spark`."
    )

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise SettingsError(sentence(error, type(self).model_fields, values)) from None

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        if issubclass(cls, ExplicitSettings):
            return (init_settings,)
        return init_settings, Environment(settings_cls), TomlFile(settings_cls)

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if self.auth == "open" and not is_loopback(self.host):
            raise SettingsError(
                f"auth=open serves everybody without a token, so it does not listen on {self.host}: "
                "set auth=tokens, or host=127.0.0.1."
            )
        if self.database.startswith("sqlite:") != self.journal.startswith("sqlite:"):
            raise SettingsError("journal and database must be of one kind: both SQLite or both PostgreSQL.")
        if (self.s3_access_key_id is None) != (self.s3_secret_access_key is None):
            raise SettingsError(
                "s3_access_key_id and s3_secret_access_key belong together: set both or none."
            )
        return self

    @property
    def log_as_json(self) -> bool:
        """Whether log lines are JSON: `auto` writes readable lines to a terminal only."""
        return self.log_format == "json" or (self.log_format == "auto" and not sys.stderr.isatty())

    @property
    def namespace_separator_text(self) -> str:
        """The separator itself, one character."""
        return unquote(self.namespace_separator)

    @property
    def secrets(self) -> frozenset[str]:
        """Texts that must never be logged or shown."""
        values = [getattr(self, name) for name in type(self).model_fields]
        found = {value.get_secret_value() for value in values if isinstance(value, SecretStr)}
        found |= passwords(self.database) | passwords(self.journal)
        return frozenset(text for text in found if text)

    def as_environment(self, *names: str) -> dict[str, str]:
        """The settings that have a value as CALVE_* variables for a child process: all, or those named."""
        found = {}
        for name in names or type(self).model_fields:
            value = getattr(self, name)
            if value is not None:
                found[variable(name)] = str(
                    value.get_secret_value() if isinstance(value, SecretStr) else value
                )
        return found

    def shown(self, name: str) -> str:
        """The value as it may be printed: secrets and passwords are masked."""
        value = getattr(self, name)
        return "-" if value is None else as_text(value)


class ExplicitSettings(Settings):
    """Settings from arguments and defaults alone, without the environment and calve.toml."""

    def __init__(self, **values: Any) -> None:
        super().__init__(**values)
