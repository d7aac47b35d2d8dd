"""A request as the handlers see it, and the answer they give. Nothing here knows ASGI or FastAPI."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qsl

import orjson

from catalog.api.operations import Operation
from catalog.changes import Record
from catalog.errors import Invalid
from catalog.identity.roles import Caller
from catalog.names import Identifier, Namespace, decode_segment, namespace_from_segment
from catalog.service.catalog import Catalog
from catalog.service.states import State
from catalog.service.writing import Asked

JSON = (b"content-type", b"application/json")
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}").fullmatch
BODILESS = frozenset({204, 304})
QUERY_PARAMETERS_MAX = 50
KNOWN_TEXTS = 4096  # how many different paths and queries are remembered as parsed
KNOWN_TEXT_CHARS_MAX = 256  # longer ones are parsed each time: nobody fills the memory with them


class Answer:
    """Status, headers and body, ready for the wire. A large body stays in parts: they are not copied."""

    __slots__ = ("headers", "parts", "status")

    def __init__(
        self,
        status: int,
        body: bytes = b"",
        headers: list[tuple[bytes, bytes]] | None = None,
        *,
        parts: Sequence[bytes] = (),
    ) -> None:
        self.status = status
        self.headers = headers if headers is not None else []
        self.parts = parts or (body,)

    def whole(self, method: str) -> tuple[int, list[tuple[bytes, bytes]], Sequence[bytes]]:
        """Status, headers with the length of the body, and the body, as an answer to this method."""
        if self.status in BODILESS:
            return self.status, self.headers, ()
        headers = [*self.headers, (b"content-length", b"%d" % sum(map(len, self.parts)))]
        return self.status, headers, () if method == "HEAD" else self.parts

    @property
    def body(self) -> bytes:
        return self.parts[0] if len(self.parts) == 1 else b"".join(self.parts)


def json_answer(value: Any, status: int = 200) -> Answer:
    return Answer(status, orjson.dumps(value), [JSON])


NO_CONTENT = 204


class Call:
    """One request: who, what, where, with everything that a handler asks for parsed on demand."""

    def __init__(
        self,
        catalog: Catalog,
        operation: Operation,
        path: dict[str, str],
        query: bytes,
        headers: dict[bytes, bytes],
        body: bytes,
        separator: str,
    ) -> None:
        self.catalog = catalog
        self.operation = operation
        self.path = path  # raw segments, still percent-encoded
        self.headers = headers
        self.body = body
        self._query = query
        self._separator = separator
        self.caller: Caller | None = None
        self.record: Record | None = None
        self._state: State | None = None
        self._json: dict[str, Any] | None = None
        self._decoded_query: dict[str, str] | None = None

    # -- where

    @property
    def state(self) -> State:
        assert self._state is not None, "the edge sets the state before it calls a handler"
        return self._state

    @state.setter
    def state(self, state: State) -> None:
        self._state = state

    @property
    def namespace(self) -> Namespace:
        return _namespace(self.path["namespace"], self._separator)

    @property
    def identifier(self) -> Identifier:
        raw = self.path.get("table") or self.path["view"]
        return _identifier(self.path["namespace"], raw, self._separator)

    def parsed_namespace(self, raw: str) -> Namespace:
        return namespace_from_segment(raw, self._separator)

    # -- what

    @property
    def query(self) -> dict[str, str]:
        """The query parameters, decoded; the last of equal names counts."""
        if not self._query:
            return {}
        if self._decoded_query is None:
            short = len(self._query) <= KNOWN_TEXT_CHARS_MAX
            self._decoded_query = (_known_query if short else _decode_query)(self._query)
        return self._decoded_query

    @property
    def raw_query(self) -> dict[str, str]:
        """The query parameters with their values still percent-encoded."""
        parts = (part.partition("=") for part in self._query.decode("ascii", "replace").split("&") if part)
        return {name: value for name, _, value in parts}

    def flag(self, name: str) -> bool:
        value = self.query.get(name, "false").lower()
        if value not in ("true", "false"):
            raise Invalid(f"{name} must be true or false")
        return value == "true"

    @property
    def json(self) -> dict[str, Any]:
        """The body as an object.

        Strict: no NaN, no numbers beyond double, no broken UTF-8, bounded nesting.
        """
        if self._json is None:
            self._json = self._parse()
        return self._json

    def _parse(self) -> dict[str, Any]:
        if not self.body:
            raise Invalid("The request needs a JSON body")
        try:
            value = orjson.loads(self.body)
        except orjson.JSONDecodeError as error:
            raise Invalid(f"The request body is not JSON: {error}") from error
        if not isinstance(value, dict):
            raise Invalid("The request body must be a JSON object")
        return value

    def list_field(self, name: str, *, required: bool = True) -> list[Any]:
        value = self.json.get(name)
        if value is None and not required:
            return []
        if not isinstance(value, list):
            raise Invalid(f"{name} must be a list")
        return value

    # -- who

    @property
    def principal(self) -> str:
        assert self.caller is not None, "the edge identifies before it calls a handler"
        return self.caller.name

    @property
    def asked(self) -> Asked:
        return Asked(self.principal, self.record)

    def idempotency_record(self) -> Record | None:
        """What the Idempotency-Key of this request will remember; None without a key."""
        raw = self.headers.get(b"idempotency-key")
        if raw is None or not self.operation.idempotent_key:
            return None
        key = raw.decode("latin-1")
        if _UUID(key) is None:
            raise Invalid("Idempotency-Key must be a UUID of 36 characters")
        lifetime_ms = self.catalog.limits.idempotency_lifetime_s * 1000
        # A hash, because a path can be longer than an index entry; behind the warehouse, to be found by it.
        path = hashlib.blake2b("/".join(self.path.values()).encode(), digest_size=16).hexdigest()
        target = f"{self.state.warehouse.name}:{path}"
        body_hash = hashlib.sha256(self.body + b"\0" + self._query).hexdigest()
        expires_ms = self.catalog.now_ms() + lifetime_ms
        status = int(min(code for code in self.operation.responses if code.startswith("2")))
        return Record(self.principal, self.operation.id, target, key.lower(), body_hash, expires_ms, status)


def _decode_query(query: bytes) -> dict[str, str]:
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
    return dict(pairs)


# The same few names and queries come again and again. What these give is shared and never changed.
_known_query = lru_cache(KNOWN_TEXTS)(_decode_query)
_known_namespace = lru_cache(KNOWN_TEXTS)(namespace_from_segment)


def _namespace(raw: str, separator: str) -> Namespace:
    if len(raw) > KNOWN_TEXT_CHARS_MAX:
        return namespace_from_segment(raw, separator)
    return _known_namespace(raw, separator)


@lru_cache(KNOWN_TEXTS)
def _known_identifier(namespace: str, name: str, separator: str) -> Identifier:
    return Identifier(_namespace(namespace, separator), decode_segment(name))


def _identifier(namespace: str, name: str, separator: str) -> Identifier:
    if len(namespace) + len(name) > KNOWN_TEXT_CHARS_MAX:
        return Identifier(_namespace(namespace, separator), decode_segment(name))
    return _known_identifier(namespace, name, separator)
