"""`Files`: the interface between the services and storage."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from catalog.metadata.document import READ_BYTES_MAX  # the default limit of `Files.read`


@dataclass(frozen=True, slots=True)
class FileInfo:
    location: str
    size: int
    modified_ms: int


class Files(Protocol):
    """Whole files on `file://` and `s3://`. All methods may be called from any thread.

    A location is used literally: `%2F` in a file name is three characters, not a separator. Every method
    raises

    - `errors.Invalid` for a location that is not valid in any storage: another scheme, a `..` or empty
      segment, a control character. It is raised before storage is used;
    - `errors.Forbidden` for a local path that leaves its warehouse through a symbolic link;
    - `errors.Unavailable` when storage refuses, times out, is full or is read-only. The message contains the
      file or the bucket, never a key. The number of tries and the total time are limited.
    """

    def read(self, location: str, *, bytes_max: int = READ_BYTES_MAX) -> bytes:
        """The whole content.

        Raises `errors.FileNotFound("Failed to open input stream for file: <location>")` if the file does not
        exist, and `errors.TooLarge` if it is longer than `bytes_max`, before it is read into memory.
        """

    def create(self, location: str, *data: bytes) -> None:
        """Write a new file from these parts, and its missing directories. The file is durable when the method
        returns.

        It never overwrites: `FileExistsError` if the file exists with other content. After `Unavailable` on
        `s3://` the file may exist (the response was lost); on `file://` it does not. The caller must use
        another name.
        """

    def exists(self, location: str) -> bool:
        """Whether the location is an existing file (not a directory)."""

    def is_missing(self, location: str) -> bool:
        """Whether a file is certainly missing, if that can be determined cheaply. On `s3://` always False."""

    def delete(self, locations: Iterable[str]) -> int:
        """Delete files, and return the number of distinct locations. A missing file is not an error.

        Any number of files is deleted in chunks; directories are never deleted. If some files cannot be
        deleted, the others are, and then `Unavailable` names the first that remains.
        """

    def remove_empty_directory(self, location: str) -> None:
        """Remove a directory on `file://` if it is empty. A missing or used directory is not an error."""

    def make_directory(self, location: str) -> None:
        """Create the directory and its parents on `file://`. Does nothing on `s3://`, which has no
        directories.
        """

    def sync(self, directory: str) -> None:
        """Make all files below a directory durable, including those that other processes wrote. On `file://`
        this waits for the disk. On `s3://` files are durable once they are written.
        """

    def listed(self, directory: str) -> list[FileInfo]:
        """All files below a directory, in no order. Empty if the directory does not exist."""

    def unchanged_since(self, directory: str, time_ms: int) -> list[str]:
        """The files below a directory that have not been modified since the given time, in no order. Empty if
        the directory does not exist.
        """

    def probe(self, root: str) -> None:
        """Write, read and delete one small file under `root`. Raises `Unavailable` with the reason if that
        fails.
        """
