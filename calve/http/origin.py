"""Host and Origin check of a server without tokens, for HTTP and WebSocket.

Without tokens, a page in the user's browser could send writes to 127.0.0.1, or read from it after it had
bound its own name to that address (DNS rebinding). The first is detected by a cross-origin `Origin`, the
second by an unknown `Host`. A browser always sends `Host`, and sends `Origin` with every request that could
change something; programs send neither or the right ones. The origin `null` is refused like any other.

A request with two Authorization headers is refused on every server, because a proxy could read another one of
them than this server does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

from calve.http.responses import refuse_unread
from calve.settings import Settings
from calve.settings_sources import is_loopback
from catalog.api.errors import error_body

_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+))(?::[0-9]{1,5})?")
_SCHEMES = ("http://", "https://")
_HINT = "Set base_url if clients reach this server by that name, or auth=tokens."

Refusal = tuple[int, str, str]  # status, type, message


class OriginCheck:
    """`names` are the server's own names beside those of loopback; None turns the check off."""

    def __init__(self, app: ASGIApp, *, names: frozenset[str] | None) -> None:
        self.app = app
        self._names = names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = None if scope["type"] == "lifespan" else self._refusal(scope)
        if refusal is None:
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            await refuse_unread(receive, send, *refusal)
        else:
            await _refuse_websocket(scope, send, *refusal)

    def _refusal(self, scope: Scope) -> Refusal | None:
        headers = dict(scope["headers"])
        if self._names is not None and (reason := cross_origin(headers, self._names)) is not None:
            return 403, "ForbiddenException", reason
        if len(headers) != len(scope["headers"]):
            given = sum(name == b"authorization" for name, _ in scope["headers"])
            if given > 1:
                return 400, "BadRequestException", "The request has more than one Authorization header."
        return None


def cross_origin(headers: Mapping[bytes, bytes], names: frozenset[str]) -> str | None:
    """Why the request is refused; None if it comes from a program or from a page of this server."""
    host = headers.get(b"host")
    if host is not None and not _is_own_host(host, names):
        return f"A server without tokens answers to its own names only, and the Host is another. {_HINT}"
    origin = headers.get(b"origin")
    if origin is not None and not _is_own_origin(origin, names):
        return f"A server without tokens takes no requests from web pages of another Origin. {_HINT}"
    return None


def public_names(settings: Settings) -> frozenset[str]:
    """The names beside those of loopback by which clients reach the server."""
    name = urlsplit(settings.base_url).hostname if settings.base_url is not None else None
    return frozenset({name} if name else ())


# Clients use few names, so almost every request finds its host here.
@lru_cache(maxsize=256)
def _is_own_host(host: bytes, names: frozenset[str]) -> bool:
    found = _HOST.fullmatch(host.decode("latin-1"))
    if found is None:
        return False
    name = (found[1] or found[2]).lower()
    return name in names or is_loopback(name)


def _is_own_origin(origin: bytes, names: frozenset[str]) -> bool:
    scheme, separator, host = origin.decode("latin-1").partition("://")
    return scheme + separator in _SCHEMES and _is_own_host(host.encode("latin-1"), names)


async def _refuse_websocket(scope: Scope, send: Send, status: int, type_: str, message: str) -> None:
    """Refuse the handshake, with a body where the server can send one."""
    if "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": 1008})
        return
    body = error_body(message, type_, status)
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "websocket.http.response.start", "status": status, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": body})
