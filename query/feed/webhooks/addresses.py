"""Check the addresses of webhooks: none inside the server's own network, unless a setting allows it.

The host name is resolved here, every address is checked, and the request goes to a checked address, so a name
that later resolves differently has no effect. Redirects are not followed.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit

from catalog.errors import Invalid

URL_CHARS_MAX = 2000
_NAT64 = ipaddress.ip_network("64:ff9b::/32")

Resolve = Callable[[str, int], Iterable[str]]


@dataclass(frozen=True, slots=True)
class Target:
    """A checked address: where to connect, and the host name of the URL."""

    url: str  # with the address in place of the name
    host: str  # for the Host header
    server_name: str  # for TLS


def resolve(host: str, port: int) -> list[str]:
    """Return the addresses of a host. Blocks."""
    return [str(found[4][0]) for found in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]


def checked_url(text: str, *, private: bool) -> str:
    """Return the URL of a new webhook. Invalid says what is wrong with it."""
    parts = urlsplit(text) if len(text) <= URL_CHARS_MAX and text.isprintable() else None
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
        raise Invalid("url must be an https address")
    if parts.username is not None or parts.password is not None or parts.fragment:
        raise Invalid("url must not contain a user, a password or a fragment")
    if parts.scheme == "http" and not private:
        raise Invalid("url must begin with https:// (http needs the setting webhook_private_addresses)")
    try:
        _ = parts.port
    except ValueError:
        raise Invalid("url has a port that is not a number") from None
    return text


def target_of(url: str, *, private: bool, resolved: Resolve = resolve) -> Target:
    """Resolve the host. Invalid if it does not resolve, or resolves to an address that is not allowed."""
    checked_url(url, private=private)
    parts = urlsplit(url)
    host = parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        addresses = list(resolved(host, port))
    except (OSError, UnicodeError) as error:
        raise Invalid(f"{host} cannot be resolved: {error}") from error
    if not addresses:
        raise Invalid(f"{host} has no address")
    for address in addresses:
        if not private and not is_public(address):
            raise Invalid(
                f"{host} is the private address {address}: webhooks go to public addresses, unless the "
                "setting webhook_private_addresses allows others"
            )
    shown = f"[{addresses[0]}]" if ":" in addresses[0] else addresses[0]
    netloc = f"{shown}:{port}"
    return Target(urlunsplit((parts.scheme, netloc, parts.path or "/", parts.query, "")), parts.netloc, host)


def is_public(address: str) -> bool:
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address):
        if found in _NAT64:
            return False  # a translator of this network (NAT64), which leads to any IPv4 address
        inner = found.ipv4_mapped or found.sixtofour or (found.teredo[1] if found.teredo else None)
        if inner is not None:
            return is_public(str(inner))
    return found.is_global and not found.is_multicast
