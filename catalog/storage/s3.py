"""Files on `s3://`, by obstore.

obstore was chosen by measurement (bench/storage.py). Its own retries are off, because this module must count
them: when the response of a conditional create is lost, the next try finds the file that the first one wrote.
Comparing the bytes distinguishes this from a conflict, and is done only after the first try.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError
from obstore.store import S3Store

if TYPE_CHECKING:
    from obstore.store import ClientConfig, S3Config, S3Credential
import logging
import os
import random
import threading
import time
import uuid
from collections.abc import Iterable, Iterator
from typing import TypeVar

import obstore
from obstore.exceptions import AlreadyExistsError

from catalog.errors import FileNotFound, TooLarge, Unavailable
from catalog.locations import Location
from catalog.storage.base import FileInfo

_STATUS = re.compile(r"status code: (\d{3})")
_TRANSIENT_STATUS = (408, 429)
# Hosts from which the client fetches credentials when none are configured.
_CREDENTIALS = ("/latest/api/token", "/latest/meta-data", "AssumeRoleWithWebIdentity", "/v2/credentials")
_log = logging.getLogger("calve.storage")
_DELETE_CHUNK = 1_000  # the limit of one DeleteObjects request
_BUCKETS_MAX = 1_000
_PAUSE_FIRST_S, _PAUSE_MAX_S = 0.05, 1.0
_NOT_IMPLEMENTED = 501
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class S3Settings:
    """The S3 store of this server. Raises `ValueError` if the values do not fit together."""

    endpoint: str | None = None
    """`http://host:port` or `https://host`; None for AWS, by region."""
    region: str = "us-east-1"
    access_key_id: str | None = field(default=None, repr=False)
    secret_access_key: str | None = field(default=None, repr=False)
    """Both keys or neither. Without keys: environment, web identity, container, instance, in this order."""
    path_style: bool = True
    """`endpoint/bucket/key`; otherwise `bucket.endpoint/key`."""
    connect_timeout_s: float = 2.0
    request_timeout_s: float = 4.0
    """Timeout of one try, from the connect to the last byte of the response."""
    retries_max: int = 3
    total_timeout_s: float = 9.0
    """No try starts that could end later than this after the start of the first one."""

    def __post_init__(self) -> None:
        if self.endpoint is not None:
            _check_endpoint(self.endpoint)
        if (self.access_key_id is None) != (self.secret_access_key is None):
            raise ValueError("S3 needs both an access key id and a secret access key, or neither")
        if not self.region:
            raise ValueError("S3 needs a region; stores that have none take us-east-1")
        if min(self.connect_timeout_s, self.request_timeout_s, self.total_timeout_s) <= 0:
            raise ValueError("S3 timeouts must be longer than 0 seconds")
        if self.retries_max < 0:
            raise ValueError("the number of S3 retries must not be negative")


def _check_endpoint(endpoint: str) -> None:
    try:
        parts = urlsplit(endpoint)
        host, _ = parts.hostname, parts.port  # raises for an invalid port
    except ValueError as error:
        raise ValueError("the S3 endpoint is not a URL") from error
    if parts.scheme not in ("http", "https") or not host:
        raise ValueError("the S3 endpoint must be http://host[:port] or https://host[:port]")
    if parts.path not in ("", "/") or parts.query or parts.fragment or "@" in parts.netloc:
        raise ValueError("the S3 endpoint must have neither user, path nor query")
    if _is_link_local(host):
        raise ValueError("the S3 endpoint must not be a link-local address: clouds keep their secrets there")


def _is_link_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_link_local
    except ValueError:
        return False  # a host name


def classified(error: BaseError) -> tuple[str, bool]:
    """Why a try failed, without secrets, and whether a retry may succeed."""
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
    """The HTTP status of the store's response; None if there was none."""
    found = _STATUS.search(str(error))
    return None if found is None else int(found[1])


def opened(settings: S3Settings, bucket: str) -> S3Store:
    config: S3Config = {"region": settings.region, "virtual_hosted_style_request": not settings.path_style}
    if settings.endpoint is not None:
        # This name has priority over all others, including those in the environment.
        config["aws_endpoint_url_s3"] = _endpoint(settings.endpoint, bucket, path_style=settings.path_style)
    if settings.access_key_id is not None:
        config["skip_signature"] = False  # overrides the environment
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
    """A provider, because obstore would combine plain keys with a session token from the environment."""
    key_id, secret = settings.access_key_id, settings.secret_access_key
    if key_id is None or secret is None:
        return None

    def provide() -> S3Credential:
        return {"access_key_id": key_id, "secret_access_key": secret, "token": None, "expires_at": None}

    return provide


class _InFlight(Exception):
    """An earlier try is still in progress, so it is not known whether the file exists."""


class S3Files:
    """The `s3://` adapter. Every location that it gets has that scheme."""

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

    def create(self, location: Location, *parts: bytes) -> None:
        store, key, data = self._store(location), _key(location), b"".join(parts)

        def put(tries_before: int) -> None:
            if location.authority in self._unconditional:
                _put_if_absent(store, key, data, tries_before)
                return
            try:
                obstore.put(store, key, data, mode="create")
            except AlreadyExistsError:
                if not tries_before or not _has_content(store, key, data):
                    raise
            except BaseError as error:
                if status_of(error) != _NOT_IMPLEMENTED:
                    raise
                self._unconditional.add(location.authority)
                _put_if_absent(store, key, data, tries_before)

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
        """Do nothing: an object store has no directories."""

    def remove_empty_directory(self, location: Location) -> None:
        """Do nothing: an object store has no directories."""

    def sync(self, directory: Location) -> None:
        """Do nothing: a written object is durable."""

    def listed(self, directory: Location) -> list[FileInfo]:
        store, prefix = self._store(directory), _key(directory) + "/"

        def pages(_: int) -> list[Any]:
            return [meta for page in obstore.list(store, prefix) for meta in page]

        root = f"{directory.scheme}://{directory.authority}/"
        return [
            FileInfo(root + meta["path"], meta["size"], int(meta["last_modified"].timestamp() * 1000))
            for meta in self._tried("list", directory, pages)
        ]

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
        """Call `call` until it succeeds or the failure is final. Its argument is the number of earlier tries.

        `FileNotFoundError` and `AlreadyExistsError` are results, not failures, and are raised at once.
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
                reason, transient = classified(error)
                if not transient:
                    break
            _log.info("object store failed", extra={"bucket": location.authority, "reason": reason})
        raise Unavailable(f"Cannot {action} {location.text} (bucket {location.authority}): {reason}")

    def _tries(self) -> Iterator[int]:
        settings = self._settings
        latest = time.monotonic() + settings.total_timeout_s - settings.request_timeout_s
        for tries_before in range(settings.retries_max + 1):
            if tries_before:
                # Full jitter, so that writers that failed at the same time do not retry at the same time.
                pause_s = random.uniform(0, min(_PAUSE_MAX_S, _PAUSE_FIRST_S * 2**tries_before))  # noqa: S311
                if time.monotonic() + pause_s > latest:
                    return
                time.sleep(pause_s)
            yield tries_before

    def _store(self, location: Location) -> S3Store:
        bucket = location.authority
        store = self._stores.get(bucket)
        if store is None:
            with self._lock:
                if len(self._stores) >= _BUCKETS_MAX:
                    self._stores.clear()
                store = self._stores.setdefault(bucket, opened(self._settings, bucket))
                self._process = os.getpid()
        elif os.getpid() != self._process:
            # The client would wait forever for threads that do not exist after a fork.
            raise RuntimeError("S3 was used before this process was forked")
        return store


def _key(location: Location) -> str:
    return "/".join(location.segments)


def _has_content(store: S3Store, key: str, data: bytes) -> bool:
    """Whether the object has the content that an earlier try sent."""
    try:
        found = obstore.get(store, key)
    except FileNotFoundError as error:
        raise _InFlight from error
    return found.meta["size"] == len(data) and found.bytes().to_bytes() == data


def _put_if_absent(store: S3Store, key: str, data: bytes, tries_before: int) -> None:
    """For stores without conditional create: check, then write. Names are unique, so no other writer uses
    this one.
    """
    try:
        obstore.head(store, key)
    except FileNotFoundError:
        obstore.put(store, key, data, use_multipart=False)
    else:
        if not tries_before or not _has_content(store, key, data):
            raise AlreadyExistsError


def _chunks(keys: list[str], size: int) -> Iterator[list[str]]:
    for start in range(0, len(keys), size):
        yield keys[start : start + size]
