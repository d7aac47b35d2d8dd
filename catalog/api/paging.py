"""Pages of a list.

A token names the last entry of its page and the list it belongs to, and is opaque to clients.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable

import orjson

from catalog.api.calls import Call
from catalog.errors import Invalid

EVERYTHING = 1_000_000_000


def page(call: Call, list_name: str, fetch: Callable[[str, int], list[str]]) -> tuple[list[str], str | None]:
    """The wanted page and the token of the next one.

    Without `pageToken` the whole list, as the spec wants.
    """
    size = _size(call)
    token = call.query.get("pageToken")
    if token is None:
        return fetch("", EVERYTHING), None
    mark = _mark(call, list_name)
    after = _after(token, mark) if token else ""
    found = fetch(after, size + 1)
    if len(found) <= size:
        return found, None
    return found[:size], _token(mark, found[size - 1])


def _size(call: Call) -> int:
    text = call.query.get("pageSize")
    if text is None:
        return call.catalog.limits.page_size_max
    if not text.isascii() or not text.isdigit() or len(text) > 9 or int(text) < 1:
        raise Invalid("pageSize must be a positive integer")
    return min(int(text), call.catalog.limits.page_size_max)


def _mark(call: Call, list_name: str) -> str:
    """Binds a token to its list, so that a token of another one is refused instead of answering nonsense."""
    parts = [call.state.prefix, call.operation.id, list_name]
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=6).hexdigest()


def _token(mark: str, last: str) -> str:
    return base64.urlsafe_b64encode(orjson.dumps([mark, last])).decode().rstrip("=")


def _after(token: str, mark: str) -> str:
    try:
        value = orjson.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    except (binascii.Error, ValueError):
        value = None
    sound = isinstance(value, list) and len(value) == 2 and isinstance(value[1], str) and "\0" not in value[1]
    if not sound or value[0] != mark:
        raise Invalid("pageToken is not one that this list gave out: begin again with an empty pageToken")
    return str(value[1])
