"""Whose requests an open server takes: those of programs on this machine, not those of foreign web pages.

Without tokens, a page in the user's browser could send writes to 127.0.0.1, or read from it after it had
bound its own name to that address (DNS rebinding). Both show: the first by a foreign `Origin`, the second by
a foreign `Host`. A browser always sends `Host`, and sends `Origin` with everything that could change
something; programs that send neither are no pages. `null` is the origin of a page that hides where it is
from, and refused like any other.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from urllib.parse import urlsplit

from calve.settings import Settings, is_loopback

_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+))(?::[0-9]{1,5})?")
_SCHEMES = ("http://", "https://")
_HINT = "Set base_url if clients reach this server by that name, or auth=tokens."


def foreign(headers: Mapping[bytes, bytes], names: frozenset[str]) -> str | None:
    """Why the request is refused; None if it is ours. `names` are ours beside those of loopback."""
    host = headers.get(b"host")
    if host is not None and not _is_ours(host, names):
        return f"A server without tokens answers to its own names only, and the Host is another. {_HINT}"
    origin = headers.get(b"origin")
    if origin is not None and not _is_ours_origin(origin, names):
        return f"A server without tokens takes no requests from web pages of another Origin. {_HINT}"
    return None


def public_names(settings: Settings) -> frozenset[str]:
    """The names beside those of loopback under which clients reach the server."""
    name = urlsplit(settings.base_url).hostname if settings.base_url is not None else None
    return frozenset({name} if name else ())


# Few clients use few names, so that this is a look into a dict for each request.
@lru_cache(maxsize=256)
def _is_ours(host: bytes, names: frozenset[str]) -> bool:
    found = _HOST.fullmatch(host.decode("latin-1"))
    if found is None:
        return False
    name = (found[1] or found[2]).lower()
    return name in names or is_loopback(name)


def _is_ours_origin(origin: bytes, names: frozenset[str]) -> bool:
    scheme, separator, host = origin.decode("latin-1").partition("://")
    return scheme + separator in _SCHEMES and _is_ours(host.encode("latin-1"), names)
