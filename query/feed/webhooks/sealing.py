"""Encrypt the secrets of webhooks for the database: AES-256-GCM, with a key that is not in the database.

A secret is bound to the id of its webhook: in another row it cannot be decrypted.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import os
import secrets
import tempfile
from collections.abc import Callable
from pathlib import Path

from catalog.errors import Invalid

NONCE_BYTES = 12
KEY_FILE = "webhook.key"
_NO_KEY = (
    "Webhooks need the setting webhook_key, with which their secrets are encrypted: set the same long random "
    "text for all server processes"
)
_WRONG_KEY = (
    "the secret of this webhook cannot be decrypted: webhook_key is not the one that the webhook was created "
    "with. Set that one, or create the webhook anew"
)

KeyText = Callable[[], str | None]


class Sealing:
    def __init__(self, key_text: KeyText) -> None:
        """`key_text` returns the key when it is first needed; None if there is none."""
        self._key_text = key_text
        self._key: bytes | None = None

    def sealed(self, webhook_id: str, secret: str) -> str:
        """Encrypt a secret. Invalid if the server has no key."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        nonce = secrets.token_bytes(NONCE_BYTES)
        encrypted = AESGCM(self._load()).encrypt(nonce, secret.encode(), webhook_id.encode())
        return base64.b64encode(nonce + encrypted).decode()

    def opened(self, webhook_id: str, sealed: str) -> str:
        """Decrypt a secret. Invalid if the key is another one."""
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        key = self._load()
        try:
            raw = base64.b64decode(sealed, validate=True)
            found = AESGCM(key).decrypt(raw[:NONCE_BYTES], raw[NONCE_BYTES:], webhook_id.encode())
        except (binascii.Error, ValueError, InvalidTag) as error:
            raise Invalid(_WRONG_KEY) from error
        return found.decode()

    def _load(self) -> bytes:
        if self._key is None:
            text = self._key_text()
            if text is None:
                raise Invalid(_NO_KEY)
            self._key = hashlib.sha256(text.encode()).digest()
        return self._key


def key_in(folder: Path) -> str:
    """Return the key of a server whose database is a file: a file beside it, which only its owner can read.

    Several processes may create it at once: the first one succeeds, and no process sees a partial file.
    """
    path = folder / KEY_FILE
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=folder, prefix=f".{KEY_FILE}-") as made:  # mode 0600
            made.write(secrets.token_urlsafe(32))
            made.flush()
            with contextlib.suppress(FileExistsError):  # another process created it first
                os.link(made.name, path)
    return path.read_text()
