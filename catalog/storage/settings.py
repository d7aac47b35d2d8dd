"""How the S3 store is reached. Frozen, checked when made, and shown without its keys."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True)
class S3Settings:
    """The one S3 store of this server. `ValueError` with a sentence if the values do not fit together."""

    endpoint: str | None = None
    """`http://host:port` or `https://host`; None for AWS, by region."""
    region: str = "us-east-1"
    access_key_id: str | None = field(default=None, repr=False)
    secret_access_key: str | None = field(default=None, repr=False)
    """Both keys or neither; without them the usual chain: environment, web identity, container, instance."""
    path_style: bool = True
    """`endpoint/bucket/key`; otherwise `bucket.endpoint/key`."""
    connect_timeout_s: float = 2.0
    request_timeout_s: float = 4.0
    """For one try, from the connect to the last byte of the answer."""
    retries_max: int = 3
    total_timeout_s: float = 9.0
    """No try is begun that could end later than this after the first began."""

    def __post_init__(self) -> None:
        if self.endpoint is not None:
            _check_endpoint(self.endpoint)
        if (self.access_key_id is None) != (self.secret_access_key is None):
            raise ValueError("S3 needs both an access key id and a secret access key, or neither")
        if not self.region:
            raise ValueError("S3 needs a region; stores that have none take us-east-1")
        if min(self.connect_timeout_s, self.request_timeout_s, self.total_timeout_s) <= 0:
            raise ValueError("S3 timeouts must be longer than 0 seconds")
        if self.retries_max < 0:
            raise ValueError("the number of S3 retries must not be negative")


def _check_endpoint(endpoint: str) -> None:
    try:
        parts = urlsplit(endpoint)
        host, _ = parts.hostname, parts.port  # an unusable port raises
    except ValueError as error:
        raise ValueError("the S3 endpoint is not a URL") from error
    if parts.scheme not in ("http", "https") or not host:
        raise ValueError("the S3 endpoint must be http://host[:port] or https://host[:port]")
    if parts.path not in ("", "/") or parts.query or parts.fragment or "@" in parts.netloc:
        raise ValueError("the S3 endpoint must have neither user, path nor query")
    if _is_link_local(host):
        raise ValueError("the S3 endpoint must not be a link-local address: clouds keep their secrets there")


def _is_link_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_link_local
    except ValueError:
        return False  # a name
