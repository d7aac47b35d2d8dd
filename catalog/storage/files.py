"""`StorageFiles` implements `Files` on local folders and S3, and has the storage properties for engines.

Only the schemes `file` and `s3` are allowed. Every location is parsed by `Location.parse_file` before an
adapter uses it. The adapter for `s3://` is in s3.py.

Durability on `file://`: a file is created under its final name with O_EXCL and synced before `create`
returns. On Linux's journaling file systems, the sync of a new file includes its directory entry and new
parent directories. The row that refers to the file also contains its content, so that
`calve check --repair` can write it again. After an error the partial file is deleted. After `kill -9` a
partial file may remain, but no row refers to it: each name is used once, and the row is written after
`create`.

Symbolic links: below a root that this process knows (passed at the start, or added by `probe`), the resolved
directory of a file must be inside the root, else `Forbidden`. The result is cached for each directory, so
that a commit needs no further system calls. A link that later replaces a cached directory is not detected. A
file is never opened through a link.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import stat
import uuid
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import islice
from typing import Any, NoReturn, Protocol

from catalog.errors import CatalogError, FileNotFound, Forbidden, TooLarge, Unavailable
from catalog.locations import Location
from catalog.metadata.document import READ_BYTES_MAX
from catalog.storage.base import FileInfo
from catalog.storage.s3 import S3Files, S3Settings

_DIRECTORIES_MAX = 10_000
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
# Without O_NONBLOCK, opening a named pipe would wait for a writer.
_OLD = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
# At most so much in one call: Linux takes five times as long for 28 MB in one call on ext4 (measured).
WRITE_BYTES = 1024 * 1024
_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR)
_REASONS = {
    errno.ENOSPC: "no space is left on the device",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "the file is larger than the system allows",
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
    errno.EROFS: "the file system is read-only",
}


def sync_file_system(descriptor: int) -> None:
    """Sync the file system of an open file or directory. OSError if the disk reported an error."""
    syncfs = _syncfs()
    if syncfs is None:  # not Linux: sync all file systems
        os.sync()
    elif syncfs(descriptor) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


@cache
def _syncfs() -> Any:
    """Call syncfs through libc, because Python does not provide it."""
    return getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)


class LocalFiles:
    """The `file://` adapter. Every location that it gets has that scheme."""

    def __init__(self, roots: Iterable[Location] = ()) -> None:
        self._roots = {_path(root) for root in roots}
        # Existing directories whose resolved paths are inside their root.
        self._directories: set[str] = set()

    def read(self, location: Location, bytes_max: int) -> bytes:
        path = _path(location)
        try:
            self._check_directory(_parent(path), location)
            descriptor = os.open(path, _OLD)
            with open(descriptor, "rb", buffering=0) as file:  # noqa: PTH123
                found = os.fstat(descriptor)
                if not stat.S_ISREG(found.st_mode):
                    raise _not_found(location)
                if found.st_size > bytes_max:
                    raise TooLarge(f"File is larger than {bytes_max} bytes: {location.text}")
                return file.read()
        except OSError as error:
            if error.errno in _ABSENT:
                raise _not_found(location) from error
            _refuse("read", location, error)

    def create(self, location: Location, *data: bytes) -> None:
        path = _path(location)
        try:
            descriptor = self._open_new(path, location)
            try:
                _write(descriptor, data)
            except OSError:
                with contextlib.suppress(OSError):  # report the first failure
                    os.unlink(path)  # noqa: PTH108
                raise
            finally:
                os.close(descriptor)
        except FileExistsError as error:
            raise FileExistsError(f"File already exists: {location.text}") from error
        except OSError as error:
            _refuse("write", location, error)

    def exists(self, location: Location) -> bool:
        path = _path(location)
        try:
            self._check_directory(_parent(path), location)
            return stat.S_ISREG(os.lstat(path).st_mode)
        except OSError as error:
            if error.errno in _ABSENT:
                return False
            _refuse("look for", location, error)

    def delete(self, locations: Iterable[Location]) -> int:
        paths = {_path(location): location for location in locations}
        failure: Exception | None = None
        for path, location in paths.items():
            try:
                self._unlink(path, location)
            except (Forbidden, Unavailable) as error:
                failure = failure or error
        if failure is not None:
            raise failure
        return len(paths)

    def make_directory(self, location: Location) -> None:
        path = _path(location)
        try:
            self._make(path, location)
        except OSError as error:
            _refuse("make the directory", location, error)

    def remove_empty_directory(self, location: Location) -> None:
        path = _path(location)
        if path in self._roots:
            return
        try:
            self._check_links(_parent(path), location)
            os.rmdir(path)  # noqa: PTH106
            self._directories.discard(path)
        except OSError as error:
            # Opening a link fails with ENOTDIR: it is not followed and not deleted.
            if error.errno not in (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                _refuse("remove the directory", location, error)

    def sync(self, directory: Location) -> None:
        try:
            descriptor = os.open(_path(directory), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                sync_file_system(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            _refuse("settle", directory, error)

    def listed(self, directory: Location) -> list[FileInfo]:
        top = _path(directory)
        self._check_links(_parent(top), directory)
        found = []
        for folder, _, names in os.walk(top):  # follows no links, and skips files that were deleted meanwhile
            for name in names:
                with contextlib.suppress(FileNotFoundError):
                    status = os.lstat(f"{folder}/{name}")
                    location = f"{directory.text.rstrip('/')}{folder.removeprefix(top)}/{name}"
                    found.append(FileInfo(location, status.st_size, status.st_mtime_ns // 1_000_000))
        return found

    def probe(self, root: Location) -> None:
        self._roots.add(_path(root))
        self.make_directory(root)
        file = root.child(f".calve-probe-{uuid.uuid4().hex}")
        self.create(file, b"calve")
        content = self.read(file, 64)
        self.delete([file])
        if content != b"calve":
            raise Unavailable(f"Cannot use {root.text}: a file written there does not read back")

    def _unlink(self, path: str, location: Location) -> None:
        try:
            self._check_directory(_parent(path), location)
            os.unlink(path)  # noqa: PTH108
        except OSError as error:
            if error.errno not in _ABSENT:
                _refuse("delete", location, error)

    def _open_new(self, path: str, location: Location) -> int:
        directory = _parent(path)
        if directory in self._directories:
            try:
                return os.open(path, _NEW, 0o666)
            except FileNotFoundError:
                self._directories.discard(directory)  # it has been deleted since
        self._make(directory, location)
        return os.open(path, _NEW, 0o666)

    def _make(self, directory: str, location: Location) -> None:
        """Create `directory` and its missing parents."""
        self._check_links(directory, location)
        missing = []
        path = directory
        while path and not os.path.isdir(path):  # noqa: PTH112
            missing.append(path)
            path = _parent(path)
        for path in reversed(missing):
            # another thread created it; if it is a file, the open will fail
            with contextlib.suppress(FileExistsError):
                os.mkdir(path)  # noqa: PTH102
        self._cache_directory(directory)

    def _check_directory(self, directory: str, location: Location) -> None:
        if directory not in self._directories:
            self._check_links(directory, location)
            if os.path.isdir(directory):  # noqa: PTH112
                self._cache_directory(directory)

    def _check_links(self, directory: str, location: Location) -> None:
        root = self._root_of(directory)
        if root is None:
            return
        real, real_root = os.path.realpath(directory), os.path.realpath(root)
        if real != real_root and not real.startswith(real_root + "/"):
            raise Forbidden(f"Refused: a symbolic link leads out of the warehouse: {location.text}")

    def _root_of(self, directory: str) -> str | None:
        path = directory
        while path:
            if path in self._roots:
                return path
            path = _parent(path)
        return None

    def _cache_directory(self, directory: str) -> None:
        if len(self._directories) >= _DIRECTORIES_MAX:
            self._directories.clear()
        self._directories.add(directory)


def _path(location: Location) -> str:
    return "/" + "/".join(location.segments)


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def _write(descriptor: int, data: Iterable[bytes]) -> None:
    for part in data:
        rest = memoryview(part)
        while rest:
            rest = rest[os.write(descriptor, rest[:WRITE_BYTES]) :]
    os.fdatasync(descriptor)


def _not_found(location: Location) -> FileNotFound:
    return FileNotFound(f"Failed to open input stream for file: {location.text}")


def _refuse(action: str, location: Location, error: OSError) -> NoReturn:
    if error.errno == errno.ELOOP:
        raise Forbidden(f"Refused: the file is a symbolic link: {location.text}") from error
    reason = _REASONS.get(error.errno or 0) or os.strerror(error.errno or errno.EIO).lower()
    raise Unavailable(f"Cannot {action} {location.text}: {reason}") from error


_DELETE_CHUNK = 1_000


class _Adapter(Protocol):
    """The storage of one scheme. `catalog.storage.base.Files` describes the methods."""

    def read(self, location: Location, bytes_max: int) -> bytes: ...
    def create(self, location: Location, *data: bytes) -> None: ...
    def exists(self, location: Location) -> bool: ...
    def delete(self, locations: Iterable[Location]) -> int: ...
    def make_directory(self, location: Location) -> None: ...
    def remove_empty_directory(self, location: Location) -> None: ...
    def sync(self, directory: Location) -> None: ...
    def listed(self, directory: Location) -> list[FileInfo]: ...
    def probe(self, root: Location) -> None: ...


class StorageFiles:
    """Implements `Files`. Create it after a fork: its client has threads."""

    def __init__(self, s3: S3Settings | None = None, *, file_roots: Iterable[str] = ()) -> None:
        """`file_roots` are the local warehouse roots known at the start; `probe` adds others."""
        self._s3 = s3 or S3Settings()
        self._adapters: dict[str, _Adapter] = {
            "file": LocalFiles(Location.parse(root) for root in file_roots),
            "s3": S3Files(self._s3),
        }

    def read(self, location: str, *, bytes_max: int = READ_BYTES_MAX) -> bytes:
        parsed = Location.parse_file(location)
        return self._adapters[parsed.scheme].read(parsed, bytes_max)

    def create(self, location: str, *data: bytes) -> None:
        parsed = Location.parse_file(location)
        self._adapters[parsed.scheme].create(parsed, *data)

    def exists(self, location: str) -> bool:
        parsed = Location.parse_file(location)
        return self._adapters[parsed.scheme].exists(parsed)

    def is_missing(self, location: str) -> bool:
        # Not parsed, because every loadTable calls this. The locations of rows were checked when they were
        # written.
        return location.startswith("file:") and not os.path.exists(location.removeprefix("file:"))  # noqa: PTH110

    def delete(self, locations: Iterable[str]) -> int:
        deleted = 0
        failure: Exception | None = None
        for chunk in _chunks(map(Location.parse_file, locations)):
            for scheme, adapter in self._adapters.items():
                try:
                    deleted += adapter.delete(parsed for parsed in chunk if parsed.scheme == scheme)
                except CatalogError as error:
                    failure = failure or error
        if failure is not None:
            raise failure
        return deleted

    def remove_empty_directory(self, location: str) -> None:
        parsed = Location.parse_file(location)
        self._adapters[parsed.scheme].remove_empty_directory(parsed)

    def make_directory(self, location: str) -> None:
        parsed = Location.parse(location)
        self._adapters[parsed.scheme].make_directory(parsed)

    def sync(self, directory: str) -> None:
        parsed = Location.parse(directory)
        self._adapters[parsed.scheme].sync(parsed)

    def listed(self, directory: str) -> list[FileInfo]:
        parsed = Location.parse(directory)
        return self._adapters[parsed.scheme].listed(parsed)

    def unchanged_since(self, directory: str, time_ms: int) -> list[str]:
        return [file.location for file in self.listed(directory) if file.modified_ms < time_ms]

    def probe(self, root: str) -> None:
        parsed = Location.parse(root)
        self._adapters[parsed.scheme].probe(parsed)

    def client_properties(self, root: str) -> dict[str, str]:
        """The properties that `/v1/config` returns for this root. They are defaults: a user's own setting
        wins.

        There are none for files: Iceberg's Java library, PyIceberg and DuckDB select their file IO by the
        scheme. For S3 the Java FileIO is named, because without the AWS classes Java falls back to Hadoop's
        file systems and fails later, with a less clear error. PyIceberg reads `py-io-impl` and not `io-impl`;
        DuckDB reads neither. Keys are never included: engines have their own, or get vended credentials for a
        table.
        """
        if Location.parse(root).scheme != "s3":
            return {}
        settings = self._s3
        properties = {
            "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
            "s3.path-style-access": "true" if settings.path_style else "false",
            "s3.region": settings.region,
            "client.region": settings.region,
        }
        if settings.endpoint is not None:
            properties["s3.endpoint"] = settings.endpoint
            if not settings.path_style:
                # PyIceberg's property. With an endpoint, PyIceberg uses path style unless this is set.
                properties["s3.force-virtual-addressing"] = "true"
        return properties


def _chunks(locations: Iterator[Location]) -> Iterator[list[Location]]:
    while chunk := list(islice(locations, _DELETE_CHUNK)):
        yield chunk
