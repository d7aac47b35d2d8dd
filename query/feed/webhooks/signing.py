"""Signatures of Standard Webhooks: HMAC-SHA256 of `id.timestamp.body`. Pure."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets

from catalog.errors import Invalid
from ingest.api.context import SECRET_PREFIX, secret_key

SECRET_BYTES = 32


def new_secret() -> str:
    return SECRET_PREFIX + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def checked_secret(text: str) -> str:
    """Check a secret. Invalid unless it is `whsec_` and base64 of 24 to 64 bytes."""
    try:
        secret_key(text)
    except ValueError:
        raise Invalid("secret must be whsec_ followed by base64 of 24 to 64 bytes") from None
    return text


def signed_headers(secret: str, message_id: str, timestamp_s: int, body: bytes) -> dict[str, str]:
    signed = b"%b.%d.%b" % (message_id.encode(), timestamp_s, body)
    digest = hmac.new(secret_key(secret), signed, hashlib.sha256).digest()
    return {
        "content-type": "application/json",
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp_s),
        "webhook-signature": f"v1,{base64.b64encode(digest).decode()}",
    }


def message_id(webhook_id: str, token: str) -> str:
    """Return the same id for every attempt to deliver the changes after a token."""
    return "msg_" + hashlib.sha256(f"{webhook_id}:{token}".encode()).hexdigest()[:32]
