"""Waiting until the disk has everything: all files of one file system, whoever wrote them.

One call for a batch of files costs one flush of the disk; a sync of each of them, and of their directories,
costs one each, and their names would have to be known.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache
from typing import Any


def sync_file_system(descriptor: int) -> None:
    """Of the file system that an open file or directory is on; OSError if the disk refused something."""
    syncfs = _syncfs()
    if syncfs is None:  # not Linux: all of them
        os.sync()
    elif syncfs(descriptor) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


@cache
def _syncfs() -> Any:
    """Python has no name for it."""
    return getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
