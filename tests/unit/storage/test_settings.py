"""S3Settings: values that fit together, and keys that do not show."""

from __future__ import annotations

from typing import Any

import pytest

from catalog.storage.s3 import S3Settings


@pytest.mark.parametrize(
    "endpoint",
    ["http://127.0.0.1:9000", "https://s3.example.org", "http://[::1]:9000", "https://minio.lan/", None],
)
def test_endpoints_that_can_be(endpoint: str | None) -> None:
    assert S3Settings(endpoint=endpoint).endpoint == endpoint


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"endpoint": "127.0.0.1:9000"}, "must be http://"),
        ({"endpoint": "ftp://host"}, "must be http://"),
        ({"endpoint": "http://"}, "must be http://"),
        ({"endpoint": "http://host:99999"}, "not a URL"),
        ({"endpoint": "http://[::1"}, "not a URL"),
        ({"endpoint": "http://user:secret@host"}, "neither user, path nor query"),
        ({"endpoint": "http://host/bucket"}, "neither user, path nor query"),
        ({"endpoint": "http://host?x=1"}, "neither user, path nor query"),
        ({"endpoint": "http://169.254.169.254"}, "link-local"),
        ({"endpoint": "http://[fe80::1]:80"}, "link-local"),
        ({"access_key_id": "key"}, "both"),
        ({"secret_access_key": "secret"}, "both"),
        ({"region": ""}, "region"),
        ({"connect_timeout_s": 0.0}, "timeouts"),
        ({"request_timeout_s": -1.0}, "timeouts"),
        ({"total_timeout_s": 0.0}, "timeouts"),
        ({"retries_max": -1}, "retries"),
    ],
)
def test_settings_that_cannot_be(values: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        S3Settings(**values)


def test_keys_do_not_show() -> None:
    settings = S3Settings(access_key_id="AKIA-CANARY", secret_access_key="secret-canary")
    assert "canary" not in f"{settings} {settings!r}".lower()
