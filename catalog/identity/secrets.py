"""Secrets and tokens: how they are created, and the forms in which they are stored.

A token has 256 random bits and is checked on every request, so one SHA-256 is enough. A secret is checked
only when a token is issued, so scrypt is affordable: a stolen database reveals no secrets, even if a later
version lets users choose them.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import re
import secrets
import threading

from catalog.errors import Unavailable

TOKEN_PREFIX = "calve_"  # noqa: S105  # scanners of repositories and logs find a leaked one by it
SECRET_PREFIX = "calve_secret_"  # noqa: S105
RANDOM_BYTES = 32
SECRET_CHARS_MAX = 256

# One verification takes 20 to 30 ms and 8 MiB.
SCRYPT_N, SCRYPT_R, SCRYPT_P = 2**13, 8, 1
SALT_BYTES = 16
DIGEST_BYTES = 32
# Limits of the stored parameters, so that a damaged row cannot exhaust the server's memory.
SCRYPT_N_MAX, SCRYPT_R_MAX, SCRYPT_P_MAX = 2**17, 16, 4
# Limits of concurrent verifications: two run, six wait, and others are refused with 503. So a flood of token
# requests cannot use all cores or threads.
WORKING_MAX = 2
INSIDE_MAX = 8

_TOKEN = re.compile(r"calve_[A-Za-z0-9_-]{43}").fullmatch
_STORED = re.compile(
    r"scrypt\$(\d{1,7})\$(\d{1,3})\$(\d{1,3})\$([^$]{1,100})\$([^$]{1,100})", re.ASCII
).fullmatch
_inside = threading.BoundedSemaphore(INSIDE_MAX)
_working = threading.BoundedSemaphore(WORKING_MAX)


def new_token() -> str:
    return TOKEN_PREFIX + secrets.token_urlsafe(RANDOM_BYTES)


def new_secret() -> str:
    return SECRET_PREFIX + secrets.token_urlsafe(RANDOM_BYTES)


def token_hash(token: str) -> str | None:
    """The hash under which a token is stored. None if the text cannot be one of our tokens."""
    if _TOKEN(token) is None:
        return None
    return hashlib.sha256(token.encode("ascii")).hexdigest()


def secret_hash(secret: str) -> str:
    """`scrypt$n$r$p$salt$digest`. It contains its parameters, so that they can be raised later."""
    salt = os.urandom(SALT_BYTES)
    digest = _scrypt(secret, salt, SCRYPT_N, SCRYPT_R, SCRYPT_P, DIGEST_BYTES)
    return _stored(salt, digest)


def is_secret(secret: str, stored: str | None) -> bool:
    """Whether `secret` is the one that was hashed. Without a stored hash the check takes the same time."""
    if len(secret) > SECRET_CHARS_MAX:
        return False
    n, r, p, salt, digest = _parts(stored if stored is not None else _UNKNOWN_PRINCIPAL)
    return hmac.compare_digest(_scrypt(secret, salt, n, r, p, len(digest)), digest) and stored is not None


def _scrypt(secret: str, salt: bytes, n: int, r: int, p: int, digest_bytes: int) -> bytes:
    if not _inside.acquire(blocking=False):
        raise Unavailable("too many token requests at once; try again")
    try:
        with _working:
            # scrypt needs 128 * n * r bytes; OpenSSL adds some blocks.
            memory_bytes_max = 128 * r * (n + p + 2)
            return hashlib.scrypt(
                secret.encode(), salt=salt, n=n, r=r, p=p, dklen=digest_bytes, maxmem=memory_bytes_max
            )
    finally:
        _inside.release()


def _stored(salt: bytes, digest: bytes) -> str:
    texts = (base64.b64encode(part).decode("ascii") for part in (salt, digest))
    return "$".join(("scrypt", str(SCRYPT_N), str(SCRYPT_R), str(SCRYPT_P), *texts))


def _parts(stored: str) -> tuple[int, int, int, bytes, bytes]:
    found = _STORED(stored)
    if found is None:
        raise ValueError("a stored secret hash cannot be read")
    n, r, p = (int(found[group]) for group in (1, 2, 3))
    if n > SCRYPT_N_MAX or r > SCRYPT_R_MAX or p > SCRYPT_P_MAX:
        raise ValueError("a stored secret hash asks for too much work")
    try:
        salt, digest = (base64.b64decode(found[group], validate=True) for group in (4, 5))
    except binascii.Error:
        raise ValueError("a stored secret hash cannot be read") from None
    if len(digest) < DIGEST_BYTES:
        raise ValueError("a stored secret hash is cut short")
    return n, r, p, salt, digest


# Compared with if there is no such principal: a digest that no secret has, at the usual cost.
_UNKNOWN_PRINCIPAL = _stored(os.urandom(SALT_BYTES), os.urandom(DIGEST_BYTES))
