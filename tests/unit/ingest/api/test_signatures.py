"""Standard Webhooks: what is signed, and what is not."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest

from catalog.errors import NotAuthorized
from ingest.api.context import secret_key, verify_signature

KEY = bytes(range(32))
NOW_S = 1_790_000_000
BODY = b'{"events":[]}'


def signed(
    body: bytes = BODY, *, identity: bytes = b"msg_1", at_s: int = NOW_S, key: bytes = KEY
) -> dict[bytes, bytes]:
    timestamp = str(at_s).encode()
    digest = hmac.new(key, identity + b"." + timestamp + b"." + body, hashlib.sha256).digest()
    return {
        b"webhook-id": identity,
        b"webhook-timestamp": timestamp,
        b"webhook-signature": b"v1," + base64.b64encode(digest),
    }


def check(headers: dict[bytes, bytes], body: bytes = BODY) -> None:
    verify_signature(KEY, headers, body, now_s=NOW_S, tolerance_s=300)


def test_a_known_vector() -> None:
    """The example that implementations of the scheme test themselves with."""
    key = secret_key("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    headers = {
        b"webhook-id": b"msg_p5jXN8AQM9LWM0D4loKWxJek",
        b"webhook-timestamp": b"1614265330",
        b"webhook-signature": b"v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }
    verify_signature(key, headers, b'{"test": 2432232314}', now_s=1614265330, tolerance_s=300)


def test_several_signatures_while_a_secret_is_changed() -> None:
    headers = signed()
    headers[b"webhook-signature"] = b"v1,AAAA " + headers[b"webhook-signature"]
    check(headers)


@pytest.mark.parametrize("at_s", [NOW_S - 299, NOW_S + 299])
def test_within_five_minutes(at_s: int) -> None:
    check(signed(at_s=at_s))


@pytest.mark.parametrize(
    "headers",
    [
        {},
        signed(at_s=NOW_S - 301),
        signed(at_s=NOW_S + 301),
        signed(key=b"x" * 32),
        signed(b"another body"),
        signed() | {b"webhook-id": b"msg_2"},
        signed() | {b"webhook-timestamp": b"soon"},
        signed() | {b"webhook-timestamp": str(NOW_S + 1).encode()},
        signed() | {b"webhook-signature": b""},
        signed() | {b"webhook-signature": b"v1a," + signed()[b"webhook-signature"][3:]},
        signed() | {b"webhook-signature": b" ".join([b"v1,AAAA"] * 8 + [signed()[b"webhook-signature"]])},
    ],
)
def test_refused_always_with_the_same_words(headers: dict[bytes, bytes]) -> None:
    with pytest.raises(NotAuthorized) as refused:
        check(headers)
    assert refused.value.message == "The webhook signature is wrong, missing or too old"


@pytest.mark.parametrize("secret", ["whsec_!!!", "whsec_AAAA", "", "whsec_" + "A" * 100])
def test_a_secret_that_cannot_be_one_is_not_shown(secret: str) -> None:
    with pytest.raises(ValueError, match="webhook_secret") as refused:
        secret_key(secret)
    assert not secret or secret not in str(refused.value)
