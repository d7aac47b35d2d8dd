"""Every setting of Calve, declared once.

`Settings` is the table: a field's name, type, default and line of documentation stand together, and the rest
(flags, CALVE_* variables, calve.toml, `calve config`, docs/settings.md) follows from it. A `Settings` that
exists is valid: its constructor fills in the defaults that depend on others, checks every value, and raises
`SettingsError` with one sentence if something is wrong. calve/sources.py reads the values.
"""

from __future__ import annotations

import ipaddress
import math
import os
import re
import sys
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, Self, get_args, get_type_hints
from urllib.parse import unquote

from calve.declared import DERIVED, about
from calve.ingest_settings import IngestSettings
from calve.startup import SettingsError

MASK = "****"
_PASSWORD_IN_URL = re.compile(r"(?<=://)([^:/@\s]*):[^@/\s]*@|(?<=[?&]password=)[^&\s]+")

Auth = Literal["open", "tokens"]
LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["auto", "text", "json"]
HttpParser = Literal["zttp", "h11"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(IngestSettings):
    """All settings, checked. Times end in `_s` (seconds), sizes in `_bytes_max`."""

    home: Path = field(
        default=Path("lake"), metadata=about("Folder of the embedded default: the database and the tables.")
    )
    host: str = field(default="127.0.0.1", metadata=about("Address to listen on."))
    port: int = field(
        default=8181, metadata=about("Port to listen on; 0 takes a free one.", least=0, most=65535)
    )
    base_url: str | None = field(
        default=None, metadata=about("Public address of the server, where clients reach it by another.")
    )
    workers: int = field(
        default=1, metadata=about("Server processes that share the port.", least=1, most=256)
    )

    database: str = field(
        default=DERIVED,
        repr=False,  # may hold a password
        metadata=about(
            "Where the catalog is kept: `sqlite:///FILE` or `postgresql://USER:PASSWORD@HOST/NAME`.",
            derived=lambda s: f"sqlite:///{s.home}/catalog.db",
            shown="sqlite:///HOME/catalog.db",
        ),
    )
    database_pool_size: int = field(
        default=8,
        metadata=about("Database connections that one server process opens at most.", least=1, most=1000),
    )
    database_statement_timeout_s: float = field(
        default=30.0, metadata=about("PostgreSQL ends a statement that takes longer.", least=0.001)
    )
    database_lock_timeout_s: float = field(
        default=10.0, metadata=about("PostgreSQL ends a statement that waits longer for a lock.", least=0.001)
    )
    fast_paths: bool = field(
        default=True,
        metadata=about("Use the code that exists only for speed; `false` is slower and behaves the same."),
    )
    warehouse_root: str = field(
        default=DERIVED,
        metadata=about(
            "Where the warehouse `main` keeps its tables: `file:///FOLDER` or `s3://BUCKET/PREFIX`.",
            derived=lambda s: f"file://{s.home}/warehouse",
            shown="file://HOME/warehouse",
        ),
    )

    s3_endpoint: str | None = field(
        default=None, metadata=about("Address of an S3-compatible store; unset means Amazon S3.")
    )
    s3_region: str = field(default="us-east-1", metadata=about("Region of the store."))
    s3_access_key_id: str | None = field(default=None, metadata=about("Access key for the store."))
    s3_secret_access_key: str | None = field(
        default=None, repr=False, metadata=about("Secret key for the store.", secret=True)
    )
    s3_path_style: bool = field(
        default=DERIVED,
        metadata=about(
            "Put the bucket into the path instead of the host name.",
            derived=lambda s: s.s3_endpoint is not None,
            shown="true if s3_endpoint is set",
        ),
    )
    s3_connect_timeout_s: float = field(
        default=2.0, metadata=about("Time to connect to the store.", least=0.1, most=300)
    )
    s3_request_timeout_s: float = field(
        default=4.0, metadata=about("Time for one request to the store.", least=0.1, most=3600)
    )

    auth: Auth = field(
        default="open",
        metadata=about("`open`: no tokens, loopback only; `tokens`: every caller shows one."),
    )
    token_lifetime_s: int = field(default=3600, metadata=about("How long an issued token is valid.", least=1))

    metrics_auth: bool = field(
        default=False, metadata=about("`/metrics` requires a token too, when `auth` is `tokens`.")
    )

    body_bytes_max: int = field(
        default=32 * 2**20, metadata=about("Largest request body, also after decompression.", least=1024)
    )
    request_timeout_s: float = field(
        default=60.0, metadata=about("A request that takes longer is answered with 504.", least=0.1)
    )
    keep_alive_timeout_s: int = field(
        default=75, metadata=about("An idle connection is closed after this time.", least=1)
    )
    shutdown_timeout_s: int = field(
        default=30, metadata=about("Time for requests in flight to finish on a stop.", least=0, most=3600)
    )
    page_size_max: int = field(
        default=1000, metadata=about("Most entries on one page of a list.", least=1, most=100_000)
    )
    namespace_separator: str = field(
        default="%1F", metadata=about("Separator of namespace levels, as it stands in an address.")
    )
    idempotency_lifetime_s: int = field(
        default=1800, metadata=about("How long an Idempotency-Key is remembered.", least=1)
    )
    drop_retention_s: int = field(
        default=7 * 86_400, metadata=about("How long a dropped table can be restored.", least=0)
    )
    transaction_ttl_s: int = field(
        default=3600, metadata=about("An open transaction ends by itself after this time.", least=1)
    )
    document_cache_bytes_max: int = field(
        default=64 * 2**20,
        metadata=about("Memory for parsed metadata documents in each process.", least=0),
    )

    http_parser: HttpParser = field(
        default="zttp",
        metadata=about("Parser of HTTP requests: `zttp` is faster and stricter; `h11` is pure Python."),
    )

    log_level: LogLevel = field(
        default="info",
        metadata=about(
            "Least level that is logged; successful reads are logged at `debug`, other requests at `info`."
        ),
    )
    log_format: LogFormat = field(
        default="auto",
        metadata=about(
            "`text`: readable lines; `json`: one object a line; `auto`: text on a terminal, else JSON."
        ),
    )

    def __post_init__(self) -> None:
        """Fill in what depends on other settings, then check everything."""
        # Without "..", because the home becomes part of locations, which allow none.
        _set(self, "home", Path(os.path.abspath(Path(self.home).expanduser())))  # noqa: PTH100
        for declared in _in_order():
            derived = declared.metadata["derived"]
            if derived is not None and getattr(self, declared.name) is None:
                _set(self, declared.name, derived(self))
        for row in self.rows():
            _check(row, getattr(self, row.name))
        if self.base_url is not None:
            _set(self, "base_url", self.base_url.rstrip("/"))
        _check_together(self)

    @property
    def database_url(self) -> str:
        """`database` as SQLAlchemy wants it, with the driver named."""
        return re.sub(r"^postgres(ql)?(\+psycopg)?://", "postgresql+psycopg://", self.database)

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
        found = {self.s3_secret_access_key, self.webhook_secret}
        for address in (self.database, self.journal):
            for password in re.findall(r"://[^:/@\s]*:([^@/\s]+)@|[?&]password=([^&\s]+)", address):
                text = "".join(password)
                found |= {text, unquote(text)}
        return frozenset(text for text in found if text)

    @classmethod
    def rows(cls) -> tuple[Row, ...]:
        """The table, in the order of declaration."""
        hints = get_type_hints(cls)
        return tuple(Row(row.name, hints[row.name], row) for row in _in_order())

    def shown(self, name: str) -> str:
        """The value as it may be printed: secrets and passwords are masked."""
        value = getattr(self, name)
        secret = next(row.secret for row in self.rows() if row.name == name)
        if value is None:
            return "-"
        return MASK if secret else as_text(value)

    def but(self, **changes: Any) -> Self:
        """The same settings with some of them changed; defaults that were derived stay as they are."""
        values = {row.name: getattr(self, row.name) for row in _in_order()}
        return type(self)(**{**values, **changes})


def _in_order() -> list[Field[Any]]:
    """The server's own settings first: the defaults of the others depend on them."""
    inherited = {row.name for row in fields(IngestSettings)}
    return sorted(fields(Settings), key=lambda row: row.name in inherited)


@dataclass(frozen=True, slots=True)
class Row:
    """What is declared about one setting."""

    name: str
    type: Any
    declared: Field[Any]

    @property
    def doc(self) -> str:
        return str(self.declared.metadata["doc"])

    @property
    def secret(self) -> bool:
        return bool(self.declared.metadata["secret"])

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        return "CALVE_" + self.name.upper()

    @property
    def choices(self) -> tuple[str, ...]:
        """The allowed words, where they are counted; empty where anything goes."""
        return tuple(word for word in get_args(self.type) if isinstance(word, str))

    @property
    def default_text(self) -> str:
        """The default, in words where it depends on other settings; empty where there is none."""
        shown = self.declared.metadata["shown"]
        if shown is not None:
            return str(shown)
        return "" if self.declared.default is None else as_text(self.declared.default)


def as_text(value: Any) -> str:
    """A value as a person would write it, without a password."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:g}"
    return _PASSWORD_IN_URL.sub(
        lambda found: f"{found[1]}:{MASK}@" if found[1] is not None else MASK, str(value)
    )


def _set(settings: Settings, name: str, value: Any) -> None:
    object.__setattr__(settings, name, value)  # the one door of a frozen dataclass, used while it is built


def _check(row: Row, value: Any) -> None:
    least, most = row.declared.metadata["least"], row.declared.metadata["most"]
    if isinstance(value, float) and not math.isfinite(value):
        raise SettingsError(f"{row.name} must be a number, not {value}.")
    if (least is not None and value < least) or (most is not None and value > most):
        bounds = f"at least {least}" if most is None else f"between {least} and {most}"
        raise SettingsError(f"{row.name} must be {bounds}, not {as_text(value)}.")
    if row.choices and value not in row.choices:
        raise SettingsError(f"{row.name} must be {' or '.join(row.choices)}, not {value}.")
    if isinstance(value, str) and (not value.strip() or any(ord(letter) < 32 for letter in value)):
        raise SettingsError(f"{row.name} must not be empty or hold control characters.")


def _check_together(settings: Settings) -> None:
    if settings.auth == "open" and not is_loopback(settings.host):
        raise SettingsError(
            f"auth=open serves everybody without a token, so it does not listen on {settings.host}: "
            "set auth=tokens, or host=127.0.0.1."
        )
    _check_database(settings.database)
    if settings.database.startswith("sqlite:") != settings.journal.startswith("sqlite:"):
        raise SettingsError("journal and database must be of one kind: both SQLite files or both PostgreSQL.")
    _check_database(settings.journal)
    if not re.match(r"(file:///|s3://)[^/]", settings.warehouse_root):
        raise SettingsError(
            f"warehouse_root must be file:///FOLDER or s3://BUCKET/PREFIX, not {settings.warehouse_root}."
        )
    for name in ("s3_endpoint", "base_url"):
        address = getattr(settings, name)
        if address is not None and not re.match(r"https?://[^/\s]", address):
            raise SettingsError(f"{name} must begin with http:// or https://, not {as_text(address)}.")
    if (settings.s3_access_key_id is None) != (settings.s3_secret_access_key is None):
        raise SettingsError("s3_access_key_id and s3_secret_access_key belong together: set both or none.")
    separator = settings.namespace_separator_text
    if len(separator) != 1 or separator.isalnum() or separator in "/%?#":
        raise SettingsError(
            f"namespace_separator must stand for one character that is no letter, no digit and not / % ? #, "
            f"such as %1F, not {settings.namespace_separator}."
        )


def _check_database(database: str) -> None:
    if re.match(r"postgres(ql)?(\+psycopg)?://", database):
        return
    if re.match(r"sqlite:///(?!:memory:)[^?]", database):
        return
    raise SettingsError(
        f"database must be sqlite:///FILE or postgresql://USER:PASSWORD@HOST/NAME, not {as_text(database)}."
    )


def is_loopback(host: str) -> bool:
    """Can only this machine reach the address?"""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False  # a name may mean anything
