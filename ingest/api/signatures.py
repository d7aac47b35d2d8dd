"""Standard Webhooks: a body signed by a producer that shares a secret with the server. Pure.

`webhook-signature` holds one or more `v1,<base64>`, each the HMAC-SHA256 of `id.timestamp.body`. A secret is
written `whsec_` and base64 of 24 to 64 bytes. An old timestamp is refused, so that a request that somebody
recorded cannot be sent again much later.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping

from catalog.errors import NotAuthorized

SECRET_PREFIX = "whsec_"  # noqa: S105
SECRET_BYTES = range(24, 65)
SIGNATURES_MAX = 8
REFUSAL = "The webhook signature is wrong, missing or too old"


def secret_key(text: str) -> bytes:
    """The key behind a configured secret; ValueError says what is wrong with it, without showing it."""
    try:
        key = base64.b64decode(text.removeprefix(SECRET_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("webhook_secret must be whsec_ followed by base64") from None
    if len(key) not in SECRET_BYTES:
        raise ValueError("webhook_secret must hold 24 to 64 bytes")
    return key


def is_signed(headers: Mapping[bytes, bytes]) -> bool:
    return b"webhook-signature" in headers


def verify(
    key: bytes, headers: Mapping[bytes, bytes], body: bytes, *, now_s: float, tolerance_s: int
) -> None:
    """NotAuthorized, always with the same words, unless the body was signed with the key just now."""
    identity, timestamp = headers.get(b"webhook-id", b""), headers.get(b"webhook-timestamp", b"")
    given = headers.get(b"webhook-signature", b"").split(b" ")
    if not identity or not timestamp.isdigit() or len(timestamp) > 12:
        raise NotAuthorized(REFUSAL)
    if abs(now_s - int(timestamp)) > tolerance_s or len(given) > SIGNATURES_MAX:
        raise NotAuthorized(REFUSAL)
    digest = hmac.new(key, b"%b.%b.%b" % (identity, timestamp, body), hashlib.sha256).digest()
    wanted = b"v1," + base64.b64encode(digest)
    # Each is compared, whichever was right: the time of the answer must not tell.
    if not sum(hmac.compare_digest(wanted, one) for one in given):
        raise NotAuthorized(REFUSAL)
