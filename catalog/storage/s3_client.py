"""How obstore is set up for one bucket, and what its errors mean.

The only address called is the configured endpoint, or the region's on AWS; nothing a client sends changes
it. (A redirect that this very store answers to a read is followed, without the signature: obstore cannot be
told not to.) Nothing that a store answers goes into a message: error documents of S3 name the access key.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError
from obstore.store import S3Store

from catalog.storage.settings import S3Settings

if TYPE_CHECKING:
    from obstore.store import ClientConfig, S3Config, S3Credential

_STATUS = re.compile(r"status code: (\d{3})")
_TRANSIENT_STATUS = (408, 429)
# Where the client asks for credentials when none are configured.
_CREDENTIALS = ("/latest/api/token", "/latest/meta-data", "AssumeRoleWithWebIdentity", "/v2/credentials")


def judged(error: BaseError) -> tuple[str, bool]:
    """Why a try failed, in words that may be shown, and whether the next one may succeed."""
    text = str(error)
    if isinstance(error, PermissionDeniedError | UnauthenticatedError):
        return "access denied", False
    if any(address in text for address in _CREDENTIALS):
        return "no S3 credentials were found: configure an access key, or a role", True
    status = status_of(error)
    if status is not None:
        return f"the object store answered {status}", status >= 500 or status in _TRANSIENT_STATUS
    if "kind: Timeout" in text:
        return "the object store did not answer in time", True
    if "kind: Connect" in text:
        return "the object store cannot be reached", True
    return "the object store broke off", True


def status_of(error: BaseError) -> int | None:
    """The status that the store answered; None if it did not."""
    found = _STATUS.search(str(error))
    return None if found is None else int(found[1])


def opened(settings: S3Settings, bucket: str) -> S3Store:
    config: S3Config = {"region": settings.region, "virtual_hosted_style_request": not settings.path_style}
    if settings.endpoint is not None:
        # This name, because it wins over all others, also over those in the environment.
        config["aws_endpoint_url_s3"] = _endpoint(settings.endpoint, bucket, path_style=settings.path_style)
    if settings.access_key_id is not None:
        config["skip_signature"] = False  # the environment may say otherwise
    options: ClientConfig = {
        "allow_http": settings.endpoint is not None and settings.endpoint.startswith("http://"),
        "connect_timeout": timedelta(seconds=settings.connect_timeout_s),
        "timeout": timedelta(seconds=settings.request_timeout_s),
        "user_agent": "calve",
    }
    return S3Store(
        bucket,
        config=config,
        client_options=options,
        retry_config={"max_retries": 0},
        credential_provider=_credentials(settings),
    )


def _endpoint(endpoint: str, bucket: str, *, path_style: bool) -> str:
    parts = urlsplit(endpoint)
    host = parts.netloc if path_style else f"{bucket}.{parts.netloc}"
    return f"{parts.scheme}://{host}"


def _credentials(settings: S3Settings) -> Callable[[], S3Credential] | None:
    """A provider: as plain settings the keys would be joined with a session token of the environment."""
    key_id, secret = settings.access_key_id, settings.secret_access_key
    if key_id is None or secret is None:
        return None

    def provide() -> S3Credential:
        return {"access_key_id": key_id, "secret_access_key": secret, "token": None, "expires_at": None}

    return provide
