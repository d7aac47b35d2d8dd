"""Files on `s3://`, over obstore.

obstore was chosen by measurement (bench/storage.py). Its own retries are off: here every try is counted,
because after a lost answer a conditional create meets its own file. That is told from a conflict by
comparing the bytes, and only a second try may be answered so.

The only address called is the configured endpoint, or the region's on AWS; nothing a client sends changes
it. (A redirect that this very store answers to a read is followed, without the signature: obstore cannot be
told not to.) Nothing that a store answers goes into a message: error documents of S3 name the access key.
"""

from __future__ import annotations

import logging
import os
import random
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PermissionDeniedError, UnauthenticatedError
from obstore.store import S3Store

from catalog.errors import FileNotFound, TooLarge, Unavailable
from catalog.locations import Location
from catalog.storage.settings import S3Settings

if TYPE_CHECKING:
    from obstore.store import ClientConfig, S3Config, S3Credential

_log = logging.getLogger("calve.storage")

_DELETE_CHUNK = 1_000  # the most that one DeleteObjects request may name
_BUCKETS_MAX = 1_000
_PAUSE_FIRST_S, _PAUSE_MAX_S = 0.05, 1.0
_STATUS = re.compile(r"status code: (\d{3})")
_TRANSIENT_STATUS = (408, 429)
_NOT_IMPLEMENTED = 501
# Where the client asks for credentials when none are configured.
_CREDENTIALS = ("/latest/api/token", "/latest/meta-data", "AssumeRoleWithWebIdentity", "/v2/credentials")

T = TypeVar("T")


class _InFlight(Exception):
    """An earlier try of ours still holds the name: neither there nor free."""


class S3Files:
    """The `s3://` half of `catalog.ports.Files`; every location given to it has that scheme."""

    def __init__(self, settings: S3Settings) -> None:
        self._settings = settings
        self._stores: dict[str, S3Store] = {}
        self._lock = threading.Lock()
        self._process = 0
        # Buckets of stores that answered 501 to a conditional create.
        self._unconditional: set[str] = set()

    def read(self, location: Location, bytes_max: int) -> bytes:
        store, key = self._store(location), _key(location)

        def get(_: int) -> bytes:
            found = obstore.get(store, key)
            if found.meta["size"] > bytes_max:
                raise TooLarge(f"File is larger than {bytes_max} bytes: {location.text}")
            return found.bytes().to_bytes()

        try:
            return self._tried("read", location, get)
        except FileNotFoundError as error:
            raise FileNotFound(f"Failed to open input stream for file: {location.text}") from error

    def create(self, location: Location, data: bytes) -> None:
        store, key = self._store(location), _key(location)

        def put(tries_before: int) -> None:
            if location.authority in self._unconditional:
                _put_if_absent(store, key, data, tries_before)
                return
            try:
                obstore.put(store, key, data, mode="create")
            except AlreadyExistsError:
                if not tries_before or not _holds(store, key, data):
                    raise

        try:
            self._tried("write", location, put)
        except AlreadyExistsError as error:
            raise FileExistsError(f"File already exists: {location.text}") from error

    def exists(self, location: Location) -> bool:
        store, key = self._store(location), _key(location)
        try:
            self._tried("look for", location, lambda _: obstore.head(store, key))
        except FileNotFoundError:
            return False
        return True

    def delete(self, locations: Iterable[Location]) -> int:
        by_bucket: dict[str, dict[str, Location]] = {}
        for location in locations:
            by_bucket.setdefault(location.authority, {})[_key(location)] = location
        failure: Unavailable | None = None
        for keys in by_bucket.values():
            for chunk in _chunks(list(keys), _DELETE_CHUNK):
                try:
                    self._delete(chunk, keys[chunk[0]])
                except Unavailable as error:
                    failure = failure or error
        if failure is not None:
            raise failure
        return sum(map(len, by_bucket.values()))

    def make_directory(self, location: Location) -> None:
        """An object store has none."""

    def probe(self, root: Location) -> None:
        file = root.child(f".calve-probe-{uuid.uuid4().hex}")
        self.create(file, b"calve")
        content = self.read(file, 64)
        self.delete([file])
        if content != b"calve":
            raise Unavailable(f"Cannot use {root.text}: a file written there does not read back")

    def _delete(self, keys: list[str], first: Location) -> None:
        store = self._store(first)
        self._tried("delete", first, lambda _: obstore.delete(store, keys))

    def _tried(self, action: str, location: Location, call: Callable[[int], T]) -> T:
        """What `call` returns, tried again while the failure may pass; it is told how many tries were before.

        `FileNotFoundError` and `AlreadyExistsError` are answers, not failures, and come through.
        """
        reason = ""
        for tries_before in self._tries():
            try:
                return call(tries_before)
            except FileNotFoundError as error:
                if "NoSuchBucket" not in str(error):
                    raise
                reason = "there is no such bucket"
                break
            except AlreadyExistsError:
                raise
            except _InFlight:
                reason = "an earlier try is still under way"
            except BaseError as error:
                reason, transient = self._judged(error, location)
                if not transient:
                    break
            _log.info("object store failed", extra={"bucket": location.authority, "reason": reason})
        raise Unavailable(f"Cannot {action} {location.text} (bucket {location.authority}): {reason}")

    def _tries(self) -> Iterator[int]:
        settings = self._settings
        latest = time.monotonic() + settings.total_timeout_s - settings.request_timeout_s
        for tries_before in range(settings.retries_max + 1):
            if tries_before:
                # Full jitter, so that writers who failed together do not come back together.
                pause_s = random.uniform(0, min(_PAUSE_MAX_S, _PAUSE_FIRST_S * 2**tries_before))  # noqa: S311
                if time.monotonic() + pause_s > latest:
                    return
                time.sleep(pause_s)
            yield tries_before

    def _judged(self, error: BaseError, location: Location) -> tuple[str, bool]:
        """Why a try failed, in words that may be shown, and whether the next one may succeed."""
        text = str(error)
        if isinstance(error, PermissionDeniedError | UnauthenticatedError):
            return "access denied", False
        if any(address in text for address in _CREDENTIALS):
            return "no S3 credentials were found: configure an access key, or a role", True
        status = _STATUS.search(text)
        if status is not None:
            code = int(status[1])
            if code == _NOT_IMPLEMENTED and location.authority not in self._unconditional:
                self._unconditional.add(location.authority)
                return "the object store has no conditional create", True
            return f"the object store answered {code}", code >= 500 or code in _TRANSIENT_STATUS
        if "kind: Timeout" in text:
            return "the object store did not answer in time", True
        if "kind: Connect" in text:
            return "the object store cannot be reached", True
        return "the object store broke off", True

    def _store(self, location: Location) -> S3Store:
        bucket = location.authority
        store = self._stores.get(bucket)
        if store is None:
            with self._lock:
                if len(self._stores) >= _BUCKETS_MAX:
                    self._stores.clear()
                store = self._stores.setdefault(bucket, _opened(self._settings, bucket))
                self._process = os.getpid()
        elif os.getpid() != self._process:
            # It would wait for ever for threads that a fork does not copy.
            raise RuntimeError("S3 was used before this process was forked")
        return store


def _key(location: Location) -> str:
    return "/".join(location.segments)


def _holds(store: S3Store, key: str, data: bytes) -> bool:
    """Whether the object is what we tried to write before."""
    try:
        found = obstore.get(store, key)
    except FileNotFoundError as error:
        raise _InFlight from error
    return found.meta["size"] == len(data) and found.bytes().to_bytes() == data


def _put_if_absent(store: S3Store, key: str, data: bytes, tries_before: int) -> None:
    """For stores without conditional create: look, then write. Names are unique, so nobody comes between."""
    try:
        obstore.head(store, key)
    except FileNotFoundError:
        obstore.put(store, key, data, use_multipart=False)
    else:
        if not tries_before or not _holds(store, key, data):
            raise AlreadyExistsError


def _chunks(keys: list[str], size: int) -> Iterator[list[str]]:
    for start in range(0, len(keys), size):
        yield keys[start : start + size]


def _opened(settings: S3Settings, bucket: str) -> S3Store:
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
