"""Files on `file://`.

Durability: a file is created under its final name with O_EXCL and synced before `create` returns. On Linux's
journaling file systems, the sync of a new file includes its directory entry and new parent directories. The
row that refers to the file also contains its content, so that `calve check --repair` can write it again.
After an error the partial file is deleted. After `kill -9` a partial file may remain, but no row refers to
it: each name is used once, and the row is written after `create`.

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
from collections.abc import Iterable
from functools import cache
from typing import Any, NoReturn

from catalog.errors import FileNotFound, Forbidden, TooLarge, Unavailable
from catalog.locations import Location
from catalog.storage.base import FileInfo

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

    def create(self, location: Location, data: bytes) -> None:
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


def _write(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
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
