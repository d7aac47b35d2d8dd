"""The interface between the services and storage. A service knows nothing else about files."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from catalog.metadata.files import READ_BYTES_MAX  # what `Files.read` takes into memory unless told otherwise


class Files(Protocol):
    """Whole files on `file://` and `s3://`, from any thread.

    A location is taken literally: `%2F` in a file name is three characters, never a separator. Every method
    raises

    - `errors.Invalid` for a location that no store of ours can hold: another scheme, a `..` or empty segment,
      a control character. Raised before anything is touched;
    - `errors.Forbidden` for a local path that leaves its warehouse through a symbolic link;
    - `errors.Unavailable` when the storage refuses, times out, is full or is read-only. The message names the
      file or the bucket, never a key. Tries are counted and the whole call is bounded in time.
    """

    def read(self, location: str, *, bytes_max: int = READ_BYTES_MAX) -> bytes:
        """The whole content.

        `errors.FileNotFound("Failed to open input stream for file: <location>")` if nothing is there;
        `errors.TooLarge` if it is longer than `bytes_max`, found out before it is taken into memory.
        """

    def create(self, location: str, data: bytes) -> None:
        """Write a new file, durable on return; directories on the way are made.

        Never overwrites: `FileExistsError` if something else is there. After `Unavailable` the file may be
        there whole (the answer was lost) or not at all, and on `file://` it is not; nobody refers to it in
        either case, so the caller takes another name.
        """

    def exists(self, location: str) -> bool:
        """Whether a file (not a directory) is there."""

    def has_vanished(self, location: str) -> bool:
        """Whether a file is surely gone, where that is cheap to know; on `s3://` always False."""

    def delete(self, locations: Iterable[str]) -> int:
        """Make these files absent and say how many distinct locations are; a missing file is fine.

        Takes any number, in chunks. Never removes a directory. If some cannot be deleted the others are,
        and then `Unavailable` names the first that stayed.
        """

    def remove_empty_directory(self, location: str) -> None:
        """Remove a directory on `file://` if nothing is in it; one that is gone or in use is fine."""

    def make_directory(self, location: str) -> None:
        """Make the directory and its parents on `file://`; `s3://` has none, so nothing happens."""

    def settle(self, directory: str) -> None:
        """What anybody has written below a directory survives a power cut from now on. On `file://` this
        waits for the disk; what an object store has answered is safe already.
        """

    def unchanged_since(self, directory: str, time_ms: int) -> list[str]:
        """The files below a directory that nobody has written to since then, in no order; none if there is
        no such directory.
        """

    def probe(self, root: str) -> None:
        """Write, read and delete one small file under `root`; `Unavailable` with the reason if that fails."""
