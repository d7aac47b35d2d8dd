"""Restrict the current process with the kernel's Landlock, permanently.

After `confine` the process can read files below the given paths and connect to the given TCP ports. It cannot
write a file, run a program or open another TCP connection. Linux 5.13 restricts files, Linux 6.7 TCP ports.
An older kernel restricts what it can; `supported` returns which.
"""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Final

_CREATE_RULESET: Final = 444  # the same numbers on every architecture
_ADD_RULE: Final = 445
_RESTRICT_SELF: Final = 446
_VERSION_FLAG: Final = 1
_RULE_PATH: Final = 1
_RULE_PORT: Final = 2
_PR_SET_PDEATHSIG: Final = 1
_PR_SET_NO_NEW_PRIVS: Final = 38

_READ_FILE: Final = 1 << 2
_READ_DIR: Final = 1 << 3
_CONNECT_TCP: Final = 1 << 1
# Rights over files that each version of the interface added; a ruleset denies by default all rights that it
# handles.
_FILE_RIGHTS: Final = {1: (1 << 13) - 1, 2: 1 << 13, 3: 1 << 14, 5: 1 << 15}
_NET_RIGHTS_SINCE: Final = 4
_NET_RIGHTS: Final = 0b11  # bind, connect
_SCOPES_SINCE: Final = 6
_SCOPES: Final = 0b11  # abstract Unix sockets, signals


class SandboxError(OSError):
    """The kernel refused to restrict the process."""


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scopes", ctypes.c_uint64))


class _PathRule(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


class _PortRule(ctypes.Structure):
    _fields_ = (("allowed", ctypes.c_uint64), ("port", ctypes.c_uint64))


def interface_version() -> int:
    """Return the version of Landlock that this kernel offers; 0 if it has none."""
    version = _libc().syscall(_CREATE_RULESET, None, 0, _VERSION_FLAG)
    return max(0, int(version))


def supported() -> list[str]:
    """Return what this kernel can restrict: "files", "network"."""
    version = interface_version()
    return ["files"] * (version >= 1) + ["network"] * (version >= _NET_RIGHTS_SINCE)


def confine(read_paths: Iterable[Path], tcp_ports: Iterable[int]) -> list[str]:
    """Restrict this thread and the threads and processes that it starts. Returns what is restricted.

    The kernel restricts only the calling thread, so there must be no other: SandboxError if there is one.
    """
    threads = len(list(Path("/proc/self/task").iterdir()))
    if threads != 1:
        raise SandboxError(errno.EBUSY, f"the process has {threads} threads, and one of them can be confined")
    confine_further(read_paths, tcp_ports)
    return supported()


def confine_further(read_paths: Iterable[Path], tcp_ports: Iterable[int]) -> None:
    """Restrict the calling thread further. Rights that were given up cannot be regained."""
    version = interface_version()
    if version == 0:
        return
    rights = _Ruleset(
        sum(bits for since, bits in _FILE_RIGHTS.items() if since <= version),
        _NET_RIGHTS if version >= _NET_RIGHTS_SINCE else 0,
        _SCOPES if version >= _SCOPES_SINCE else 0,
    )
    # The kernel expects the size of the structure that its version knows.
    size = 8 if version < _NET_RIGHTS_SINCE else 16 if version < _SCOPES_SINCE else 24
    ruleset = _call(_CREATE_RULESET, ctypes.byref(rights), size, 0)
    try:
        for path in read_paths:
            _allow_path(ruleset, path)
        if rights.net:
            for port in tcp_ports:
                rule = _PortRule(_CONNECT_TCP, port)
                _call(_ADD_RULE, ruleset, _RULE_PORT, ctypes.byref(rule), 0)
        if _libc().prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
            raise SandboxError(ctypes.get_errno(), "prctl refused PR_SET_NO_NEW_PRIVS")
        _call(_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


def memory_status() -> IO[str]:
    """Open this process's memory figures while /proc can be read."""
    return Path("/proc/self/status").open()


def limit_resources(status: IO[str], memory_bytes_max: int) -> None:
    """Limit the memory that this process allocates from now on, and forbid files and core files.

    RLIMIT_DATA counts private writable memory. RLIMIT_AS would also count mapped files and address space that
    allocators reserve.
    """
    data_bytes_max = _data_bytes(status) + memory_bytes_max
    resource.setrlimit(resource.RLIMIT_DATA, (data_bytes_max, data_bytes_max))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def end_with_parent() -> None:
    """Tell the kernel to kill this process when its parent ends."""
    parent = os.getppid()
    if _libc().prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise SandboxError(ctypes.get_errno(), "prctl refused PR_SET_PDEATHSIG")
    if os.getppid() != parent:
        raise SystemExit(0)  # the parent ended before the call


def _data_bytes(status: IO[str]) -> int:
    status.seek(0)
    for line in status.read().splitlines():
        if line.startswith("VmData:"):
            return int(line.split()[1]) * 1024
    raise SandboxError(0, "/proc/self/status has no VmData")


def _allow_path(ruleset: int, path: Path) -> None:
    try:
        parent = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return  # nothing to read there
    try:
        allowed = _READ_FILE | _READ_DIR if path.is_dir() else _READ_FILE
        _call(_ADD_RULE, ruleset, _RULE_PATH, ctypes.byref(_PathRule(allowed, parent)), 0)
    finally:
        os.close(parent)


def _call(number: int, *arguments: object) -> int:
    result = int(_libc().syscall(number, *arguments))
    if result < 0:
        error = ctypes.get_errno()
        raise SandboxError(error, f"Landlock call {number} failed: {os.strerror(error)}")
    return result


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
