"""Names: namespaces, identifiers of tables and views, and warehouse references.

Routes parse names once; the code behind them trusts the result. Any name is valid (dots, spaces, slashes,
quotes, `%`, `+`, any script, any case) except: the empty name, `.` and `..`, control characters (so 0x1F
cannot be inside a level), lone surrogates, text that is not in Unicode normal form C, and names that are
longer than the limits below. These are refused with `Invalid` and a reason.

Names are compared exactly as sent: `Orders` and `orders` are two tables. Names are not normalised either,
because some clients compare the name in the response with the one they sent. A name that is not in normal
form C is refused, so two names that look alike in this way cannot both exist.

Percent-encoding is decoded exactly once: `%252F` is the three characters `%2F`, not a slash. Java clients
encode path segments like form fields, so `+` is a space and `%2B` is a plus.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote_to_bytes

from catalog.errors import Invalid
from catalog.moments import Moment, moment_from_text

NAME_BYTES_MAX = 255
LEVELS_MAX = 32
# The whole key must fit into one index entry; PostgreSQL allows about 2,700 bytes for all columns together.
NAMESPACE_BYTES_MAX = 2_000

LEVEL_SEPARATOR = "\x1f"

# Names of routes directly under /v1 or /lake/v1, in the position of the warehouse name.
RESERVED_WAREHOUSE_NAMES = frozenset(
    {"config", "oauth", "namespaces", "tables", "views", "transactions", "warehouses", "principals", "all"}
)

# Most names in paths and bodies match this and need no further check.
_PLAIN = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,254}").fullmatch
# C0, DEL, C1, and the two Unicode line breaks, which split log lines in some viewers.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]").search
_SURROGATE = re.compile("[\ud800-\udfff]").search
_BROKEN_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})").search
_UNIT_SEPARATOR = re.compile("%1[Ff]|\x1f")
_WAREHOUSE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}").fullmatch
_TRANSACTION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}").fullmatch


@dataclass(frozen=True, slots=True)
class Namespace:
    """The levels of a namespace, outermost first."""

    levels: tuple[str, ...]

    def __str__(self) -> str:
        return ".".join(self.levels)

    @property
    def key(self) -> str:
        """The levels as one string for SQL. It is unambiguous, because no level can contain the separator."""
        return LEVEL_SEPARATOR.join(self.levels)

    @staticmethod
    def from_key(key: str) -> Namespace:
        """The namespace of a stored key. It is not validated again."""
        return Namespace(tuple(key.split(LEVEL_SEPARATOR)) if key else ())


@dataclass(frozen=True, slots=True)
class Identifier:
    """The namespace and the name of a table or view."""

    namespace: Namespace
    name: str

    @property
    def parts(self) -> tuple[str, ...]:
        """The levels of the namespace, then the name."""
        return (*self.namespace.levels, self.name)

    def __str__(self) -> str:
        return f"{self.namespace}.{self.name}" if self.namespace.levels else self.name


@dataclass(frozen=True, slots=True)
class WarehouseRef:
    """A warehouse as a client names it: the current state, a past moment (`at`) or an open `transaction`.

    `at` is the text after `@` in canonical form; `moment` is the parsed value.
    """

    name: str
    at: str | None = None
    transaction: str | None = None

    def __str__(self) -> str:
        if self.at is not None:
            return f"{self.name}@{self.at}"
        return self.name if self.transaction is None else f"{self.name}~{self.transaction}"

    @property
    def moment(self) -> Moment | None:
        return None if self.at is None else moment_from_text(self.at)


def check_name(name: object, what: str) -> str:
    """Return `name` if it is a valid name for a `what` ("table", "namespace level"). Raises Invalid."""
    if not isinstance(name, str):
        raise Invalid(f"Invalid {what} name: must be a string")
    if _PLAIN(name) is None:
        reason = _why_refused(name)
        if reason is not None:
            raise Invalid(f"Invalid {what} name: {reason}")
    return name


def decode_segment(raw: str) -> str:
    """The name in one raw path segment or query value, percent-decoded once and checked."""
    if _PLAIN(raw) is not None:
        return raw
    name = _percent_decoded(raw)
    reason = _why_refused(name)
    if reason is not None:
        raise Invalid(f"Invalid name: {reason}")
    return name


def namespace_from_segment(raw: str, separator: str = LEVEL_SEPARATOR) -> Namespace:
    """The namespace in one raw path segment or query value.

    `separator` is the advertised separator, decoded. `%1F` is always accepted; if it occurs, only it
    separates. Levels are split before they are decoded, and the encoded form of the separator is tried first:
    if the separator is `%2E`, Java clients send `a.b%2Ec` for the two levels "a.b" and "c".
    """
    if _PLAIN(raw) is not None and separator not in raw:
        return Namespace((raw,))
    parts = _UNIT_SEPARATOR.split(raw)
    if len(parts) == 1 and separator != LEVEL_SEPARATOR:
        parts = _split_at(raw, separator)
    return namespace_from_levels([_percent_decoded(part) for part in parts])


def namespace_from_levels(levels: object) -> Namespace:
    """The namespace in a JSON body (a list of strings), checked."""
    if not isinstance(levels, list | tuple):
        raise Invalid("Invalid namespace: must be a list of strings")
    if not levels:
        raise Invalid("Invalid namespace: must have at least one level")
    if len(levels) > LEVELS_MAX:
        raise Invalid(f"Invalid namespace: has {len(levels)} levels, at most {LEVELS_MAX} are allowed")
    namespace = Namespace(tuple([check_name(level, "namespace level") for level in levels]))
    if len(levels) > 1 and len(namespace.key.encode()) > NAMESPACE_BYTES_MAX:
        raise Invalid(f"Invalid namespace: longer than {NAMESPACE_BYTES_MAX} bytes in all")
    return namespace


def identifier_from_body(value: object) -> Identifier:
    """The identifier in a JSON body: {"namespace": [...], "name": "..."}, checked."""
    if not isinstance(value, dict):
        raise Invalid("Invalid identifier: must be an object with namespace and name")
    if "namespace" not in value or "name" not in value:
        raise Invalid("Invalid identifier: namespace and name are required")
    return Identifier(namespace_from_levels(value["namespace"]), check_name(value["name"], "table or view"))


def warehouse_ref(text: str) -> WarehouseRef:
    """Parse `warehouse=` or a decoded prefix: `main`, `main@1234`, `main@now`, `main~w1-0`."""
    name, at_sign, at = text.partition("@")
    if at_sign:
        if "~" in text:
            raise Invalid("Invalid warehouse: a moment (@) and a transaction (~) cannot be combined")
        return WarehouseRef(check_warehouse_name(name), at=str(moment_from_text(at)))
    name, tilde, transaction = text.partition("~")
    if tilde:
        return WarehouseRef(check_warehouse_name(name), transaction=check_transaction_name(transaction))
    return WarehouseRef(check_warehouse_name(name))


def check_warehouse_name(name: object) -> str:
    if not isinstance(name, str) or _WAREHOUSE(name) is None:
        raise Invalid(
            "Invalid warehouse name: use 1 to 63 letters, digits, '_' or '-', "
            "beginning with a letter or digit"
        )
    if name.lower() in RESERVED_WAREHOUSE_NAMES:
        raise Invalid(f"Invalid warehouse name: {name} is a word of the API")
    return name


def check_transaction_name(name: object) -> str:
    if not isinstance(name, str) or _TRANSACTION(name) is None:
        raise Invalid(
            "Invalid transaction name: use 1 to 63 letters, digits, '.', '_' or '-', "
            "beginning with a letter or digit"
        )
    return name


def _why_refused(name: str) -> str | None:
    if not name:
        return "must not be empty"
    if name in (".", ".."):
        return "'.' and '..' are not allowed"
    if _SURROGATE(name) is not None:
        return "is not valid Unicode"
    if _CONTROL(name) is not None:
        return "must not contain control characters"
    if len(name.encode()) > NAME_BYTES_MAX:
        return f"longer than {NAME_BYTES_MAX} bytes in UTF-8"
    if not unicodedata.is_normalized("NFC", name):
        return "must be in Unicode normal form C (NFC)"
    return None


def _percent_decoded(raw: str) -> str:
    if not raw.isascii():
        raise Invalid("Invalid name: characters outside ASCII must be percent-encoded")
    if _BROKEN_ESCAPE(raw) is not None:
        raise Invalid("Invalid name: '%' must be followed by two hexadecimal digits")
    try:
        return unquote_to_bytes(raw.replace("+", " ")).decode("utf-8")
    except UnicodeDecodeError:
        raise Invalid("Invalid name: is not valid UTF-8") from None


def _split_at(raw: str, separator: str) -> list[str]:
    encoded = "".join(f"%{byte:02X}" for byte in separator.encode())
    parts = re.split(re.escape(encoded), raw, flags=re.IGNORECASE)
    return parts if len(parts) > 1 else raw.split(quote(separator, safe="!$&'()*+,;=:@"))


def require_same_identifier(identifier: Identifier, body: dict[str, Any]) -> None:
    """Raise Invalid if the body of a commit repeats the identifier of the path and they differ."""
    named = body.get("identifier")
    if named is not None and identifier_from_body(named) != identifier:
        raise Invalid("The identifier in the body is not the one in the path")
