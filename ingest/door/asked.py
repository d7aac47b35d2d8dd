"""What a request to the door says besides its body: address, query and headers, checked. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal
from urllib.parse import parse_qsl

from catalog.errors import Invalid
from catalog.names import check_name, check_warehouse_name, decode_segment, namespace_from_segment
from ingest.change import Context, TableName
from ingest.door.settings import DoorSettings

Wait = Literal["journal", "commit"]
Headers = Mapping[bytes, bytes]

SOURCE_CHARS_MAX = 255
BATCH_CHARS_MAX = 255
KEY_COLUMNS_MAX = 32
QUERY_PARAMETERS_MAX = 50
KNOWN_QUERY_CHARS_MAX = 256
PRIORITIES = {
    **{str(number): number for number in range(4)},
    **{f"p{number}": number for number in range(4)},
    "high": 0,
    "normal": 1,
    "low": 3,
}
NORMAL_PRIORITY = 1


@dataclass(frozen=True, slots=True)
class Asked:
    """One request: where to, read how, and when to answer."""

    warehouse: str
    context: Context
    wait: Wait
    timeout_s: float
    verbose: bool
    priority: int


def asked(path: Mapping[str, str], query: bytes, headers: Headers, settings: DoorSettings) -> Asked:
    """`path` holds raw segments: `namespace` and `table`, or `topic`, or nothing."""
    words = query_words(query)
    wait = words.get("wait", words.get("ack", "journal"))
    if wait not in ("journal", "commit"):
        raise Invalid("wait must be journal or commit")
    source = _header(headers, b"x-source-id", SOURCE_CHARS_MAX)
    return Asked(
        warehouse=check_warehouse_name(words.get("warehouse", settings.default_warehouse)),
        context=Context(
            format=words.get("format", "auto"),
            content_type=headers.get(b"content-type", b"").decode("latin-1"),
            table=_table(path),
            source=source,
            key=_key(words.get("key")),
            batch=_batch(headers, source),
            namespace=settings.default_namespace,
            topic=decode_segment(path["topic"]) if "topic" in path else None,
        ),
        wait="commit" if wait == "commit" else "journal",
        timeout_s=_timeout_s(words.get("timeout_s"), settings),
        verbose=_flag("verbose", words.get("verbose")),
        priority=priority_of(headers),
    )


def priority_of(headers: Headers) -> int:
    """X-Priority: 0 (last to be refused) to 3 (first)."""
    given = headers.get(b"x-priority")
    if given is None:
        return NORMAL_PRIORITY
    found = PRIORITIES.get(given.decode("latin-1").strip().lower())
    if found is None:
        raise Invalid("X-Priority must be 0, 1, 2 or 3")
    return found


def seconds(name: str, text: str | None, default_s: float, most_s: float) -> float:
    """A time that a request asks for, cut to what is allowed."""
    if text is None:
        return min(default_s, most_s)
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise Invalid(f"{name} must be a number of seconds")
    return min(value, most_s)


def _timeout_s(text: str | None, settings: DoorSettings) -> float:
    return seconds("timeout_s", text, settings.commit_wait_s, settings.commit_wait_s_max)


def _parsed_query(query: bytes) -> tuple[tuple[str, str], ...]:
    try:
        pairs = parse_qsl(
            query.decode("ascii"),
            keep_blank_values=True,
            max_num_fields=QUERY_PARAMETERS_MAX,
            encoding="utf-8",
            errors="strict",
        )
    except ValueError as error:
        raise Invalid("The query string cannot be read: it must be percent-encoded UTF-8") from error
    return tuple(pairs)


_known_query = lru_cache(maxsize=1024)(_parsed_query)


def query_words(query: bytes) -> dict[str, str]:
    """The query parameters, decoded; the last of equal names counts."""
    if not query:
        return {}
    # The same few come again and again; long ones are parsed each time, so that nobody fills the memory.
    return dict((_known_query if len(query) <= KNOWN_QUERY_CHARS_MAX else _parsed_query)(query))


def _table(path: Mapping[str, str]) -> TableName | None:
    if "table" not in path:
        return None
    return (*namespace_from_segment(path["namespace"], ".").levels, decode_segment(path["table"]))


def _key(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    columns = tuple(part.strip() for part in text.split(","))
    if len(columns) > KEY_COLUMNS_MAX or len(set(columns)) != len(columns):
        raise Invalid(f"key must name at most {KEY_COLUMNS_MAX} different columns, separated by commas")
    return tuple(check_name(column, "key column") for column in columns)


def _batch(headers: Headers, source: str | None) -> str | None:
    """What makes a repeated request the same request, where its events have no identity of their own."""
    for name in (b"idempotency-key", b"webhook-id"):
        found = _header(headers, name, BATCH_CHARS_MAX)
        if found is not None:
            return found
    number = _header(headers, b"x-batch-seq", BATCH_CHARS_MAX)
    if number is None:
        return None
    if source is None:
        raise Invalid("X-Batch-Seq counts the batches of a source: send X-Source-Id with it")
    return f"{source}#{number}"


def _header(headers: Headers, name: bytes, chars_max: int) -> str | None:
    raw = headers.get(name)
    if raw is None:
        return None
    try:
        text = raw.decode("utf-8").strip()
    except UnicodeDecodeError:
        text = ""
    if not text or len(text) > chars_max or not text.isprintable():
        raise Invalid(f"{name.decode().title()} must be a text of 1 to {chars_max} characters")
    return text


def _flag(name: str, text: str | None) -> bool:
    if text is None:
        return False
    if text.lower() not in ("1", "0", "true", "false", ""):
        raise Invalid(f"{name} must be 1 or 0")
    return text.lower() in ("1", "true", "")
