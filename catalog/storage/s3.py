"""Files on `s3://`, over obstore.

obstore was chosen by measurement (bench/storage.py). Its own retries are off: here every try is counted,
because after a lost answer a conditional create meets its own file. That is told from a conflict by
comparing the bytes, and only a second try may be answered so.
"""

from __future__ import annotations

import logging
import os
import random
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import S3Store

from catalog.errors import FileNotFound, TooLarge, Unavailable
from catalog.locations import Location
from catalog.storage.s3_client import judged, opened, status_of
from catalog.storage.settings import S3Settings

_log = logging.getLogger("calve.storage")

_DELETE_CHUNK = 1_000  # the most that one DeleteObjects request may name
_BUCKETS_MAX = 1_000
_PAUSE_FIRST_S, _PAUSE_MAX_S = 0.05, 1.0
_NOT_IMPLEMENTED = 501

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
        """An object store has none."""

    def remove_empty_directory(self, location: Location) -> None:
        """Nor any to remove."""

    def settle(self, directory: Location) -> None:
        """What it has answered is safe."""

    def unchanged_since(self, directory: Location, time_ms: int) -> list[str]:
        store, prefix = self._store(directory), _key(directory) + "/"

        def listed(_: int) -> list[str]:
            found = (meta for page in obstore.list(store, prefix) for meta in page)
            return [meta["path"] for meta in found if meta["last_modified"].timestamp() * 1000 < time_ms]

        keys = self._tried("list", directory, listed)
        return [f"{directory.scheme}://{directory.authority}/{key}" for key in keys]

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
                reason, transient = judged(error)
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
