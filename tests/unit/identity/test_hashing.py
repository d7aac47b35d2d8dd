"""Secrets and tokens: what is made, what is stored, and what is compared how."""

from __future__ import annotations

import hashlib
import hmac
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from catalog.errors import Unavailable
from catalog.identity import secrets


def test_tokens_and_secrets_never_repeat_and_look_different() -> None:
    tokens = {secrets.new_token() for _ in range(100)}
    made = {secrets.new_secret() for _ in range(100)}
    assert len(tokens) == len(made) == 100
    assert all(secrets.token_hash(token) for token in tokens)
    assert not any(secrets.token_hash(secret) for secret in made)


def test_a_token_is_stored_as_its_digest() -> None:
    token = secrets.new_token()
    stored = secrets.token_hash(token)
    assert stored is not None
    assert re.fullmatch("[0-9a-f]{64}", stored)
    assert stored == secrets.token_hash(token)
    assert stored != secrets.token_hash(secrets.new_token())


def test_a_secret_is_verified() -> None:
    secret = secrets.new_secret()
    stored = secrets.secret_hash(secret)
    assert secret not in stored
    assert stored.startswith("scrypt$8192$8$1$")
    assert secrets.is_secret(secret, stored)
    assert not secrets.is_secret(secret + "x", stored)
    assert not secrets.is_secret(secret, None)


def test_equal_secrets_are_stored_differently() -> None:
    assert secrets.secret_hash("same") != secrets.secret_hash("same")


def test_any_text_can_be_a_secret() -> None:
    secret = "pa:ss wörd%20\x00 🧊"
    assert secrets.is_secret(secret, secrets.secret_hash(secret))


def test_the_stored_parameters_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "SCRYPT_N", 2**10)
    stored = secrets.secret_hash("old")
    monkeypatch.undo()
    assert stored.startswith("scrypt$1024$")
    assert secrets.is_secret("old", stored)


def test_no_secret_costs_a_hash_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of an answer must not tell which principals exist: scrypt runs with the same parameters."""
    costs: list[tuple[int, int, int]] = []
    compared: list[bool] = []
    scrypt, compare = secrets._scrypt, hmac.compare_digest

    def counted(secret: str, salt: bytes, n: int, r: int, p: int, digest_bytes: int) -> bytes:
        costs.append((n, r, p))
        return scrypt(secret, salt, n, r, p, digest_bytes)

    def watched(left: bytes, right: bytes) -> bool:
        compared.append(True)
        return compare(left, right)

    stored = secrets.secret_hash("right")
    monkeypatch.setattr(secrets, "_scrypt", counted)
    monkeypatch.setattr(hmac, "compare_digest", watched)
    secrets.is_secret("wrong", stored)
    secrets.is_secret("wrong", None)
    assert len(costs) == 2
    assert costs[0] == costs[1]
    assert len(compared) == 2


def test_a_long_secret_is_refused_unhashed(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = secrets.secret_hash("right")
    monkeypatch.setattr(secrets, "_scrypt", None)
    assert not secrets.is_secret("x" * (secrets.SECRET_CHARS_MAX + 1), stored)


@pytest.mark.parametrize(
    "stored",
    [
        "",
        "plain",
        "scrypt$16384$8$1$c2FsdA==",
        "scrypt$1048576$8$1$c2FsdA==$ZGlnZXN0",
        "scrypt$16384$99$1$c2FsdA==$ZGlnZXN0",
        "scrypt$16384$8$1$c2FsdA==$ZGlnZXN0",
        "scrypt$16384$8$1$!!!!$ZGlnZXN0",
    ],
)
def test_a_damaged_hash_is_an_error_and_no_work(stored: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "_scrypt", None)
    with pytest.raises(ValueError, match="a stored secret hash"):
        secrets.is_secret("any", stored)


def test_a_flood_is_told_to_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    started, finish = threading.Barrier(secrets.WORKING_MAX + 1), threading.Event()

    def slow(*_: object, **__: object) -> bytes:
        started.wait(30)
        finish.wait(30)
        return b"x" * secrets.DIGEST_BYTES

    monkeypatch.setattr(hashlib, "scrypt", slow)
    with ThreadPoolExecutor(secrets.INSIDE_MAX) as pool:
        working = [pool.submit(secrets.is_secret, "any", None) for _ in range(secrets.WORKING_MAX)]
        started.wait(30)
        monkeypatch.setattr(hashlib, "scrypt", lambda *_, **__: b"x" * secrets.DIGEST_BYTES)
        waiting = [
            pool.submit(secrets.is_secret, "any", None) for _ in range(secrets.INSIDE_MAX - len(working))
        ]
        while secrets._inside._value > 0:  # until the last of them is inside
            time.sleep(0.001)
        with pytest.raises(Unavailable):
            secrets.is_secret("any", None)
        finish.set()
        assert not any(one.result(30) for one in working + waiting)
    assert not secrets.is_secret("any", None)
