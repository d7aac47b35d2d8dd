"""Signatures and addresses of webhooks."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from catalog.errors import Invalid
from ingest.api.context import secret_key, verify_signature
from query.feed.webhooks.addresses import checked_url, is_public, target_of
from query.feed.webhooks.sealing import KEY_FILE, Sealing, key_in
from query.feed.webhooks.signing import checked_secret, message_id, new_secret, signed_headers

PRIVATE = (
    "127.0.0.1",
    "10.1.2.3",
    "172.16.0.1",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "0.0.0.0",
    "224.0.0.1",
    "255.255.255.255",
    "::1",
    "::",
    "fe80::1%eth0",
    "fc00::1",
    "ff02::1",
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "2002:7f00:1::",
    "64:ff9b:1::1",
    "64:ff9b::a9fe:a9fe",
)


@pytest.mark.parametrize("address", PRIVATE)
def test_private_addresses(address: str) -> None:
    assert not is_public(address)
    with pytest.raises(Invalid, match="private address"):
        target_of(
            "https://example.com/x", private=False, resolved=lambda _host, _port: ["93.184.215.14", address]
        )
    target = target_of("https://example.com/x", private=True, resolved=lambda _host, _port: [address])
    assert target.server_name == "example.com"


def test_the_request_goes_to_the_address_that_was_checked() -> None:
    asked: list[tuple[str, int]] = []

    def resolved(host: str, port: int) -> list[str]:
        asked.append((host, port))
        return ["2606:2800:21f:cb07:6820:80da:af6b:8b2c"]

    target = target_of("https://example.com/a?b=1", private=False, resolved=resolved)
    assert target.url == "https://[2606:2800:21f:cb07:6820:80da:af6b:8b2c]:443/a?b=1"
    assert (target.host, target.server_name) == ("example.com", "example.com")
    assert asked == [("example.com", 443)]
    with pytest.raises(Invalid, match="cannot be resolved"):
        target_of("https://example.com/", private=False, resolved=_fails)


def _fails(_host: str, _port: int) -> list[str]:
    raise OSError("no such host")


URLS = (
    "",
    "example.com",
    "file:///etc/passwd",
    "https://",
    "https://u:p@x.com/",
    "https://x.com/#a",
    "https://x:99999/",
    "http://x.com/",
    "https://x.com/\n",
    "gopher://x.com/",
)


@pytest.mark.parametrize("url", URLS)
def test_urls_that_are_refused(url: str) -> None:
    with pytest.raises(Invalid, match="url"):
        checked_url(url, private=False)


def test_the_signature_is_the_one_that_receivers_check() -> None:
    secret = checked_secret(new_secret())
    now_s = int(time.time())
    body = b'{"type":"changes"}'
    headers = signed_headers(secret, message_id("w", "t"), now_s, body)
    raw = {name.encode(): value.encode() for name, value in headers.items()}
    verify_signature(secret_key(secret), raw, body, now_s=now_s, tolerance_s=300)
    assert message_id("w", "t") == message_id("w", "t") != message_id("w", "u")
    for wrong in ("", "whsec_", "whsec_AAAA", "whsec_###"):
        with pytest.raises(Invalid, match="whsec_"):
            checked_secret(wrong)


def test_a_sealed_secret_is_for_one_webhook_and_one_key() -> None:
    sealing = Sealing(lambda: "a long random text")
    sealed = sealing.sealed("w", "whsec_x")
    assert "whsec" not in sealed
    assert sealing.sealed("w", "whsec_x") != sealed, "each time with another nonce"
    assert Sealing(lambda: "a long random text").opened("w", sealed) == "whsec_x"
    for other, id_, text in (
        (Sealing(lambda: "another text"), "w", sealed),
        (sealing, "v", sealed),
        (sealing, "w", "whsec_x"),
        (sealing, "w", ""),
    ):
        with pytest.raises(Invalid, match="webhook_key is not the one"):
            other.opened(id_, text)
    with pytest.raises(Invalid, match="need the setting webhook_key"):
        Sealing(lambda: None).sealed("w", "whsec_x")


def test_the_key_file_is_made_once_and_for_its_owner(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as threads:
        keys = set(threads.map(lambda _: key_in(tmp_path / "home"), range(8)))
    assert len(keys) == 1
    assert len(keys.pop()) >= 32
    assert (tmp_path / "home" / KEY_FILE).stat().st_mode & 0o777 == 0o600
    assert [file.name for file in (tmp_path / "home").iterdir()] == [KEY_FILE]
