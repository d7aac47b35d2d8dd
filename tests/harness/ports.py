"""Ports for servers that tests start.

They lie below the range from which the kernel takes the ports of outgoing connections. A port out of that
range could be lent to some client between a kill and the restart of the server that owns it.
"""

from __future__ import annotations

import random
import socket
import time

from tests.harness.errors import ComponentFailed

LOWEST, HIGHEST = 15_000, 31_999
_handed_out: set[int] = set()
# Seeded by the system, so that two test processes on one machine rarely look at the same port.
_choose = random.SystemRandom()


def free_port() -> int:
    """Return a free port of 127.0.0.1 that this process has not returned before."""
    for _ in range(200):
        port = _choose.randint(LOWEST, HIGHEST)
        if port not in _handed_out and _can_bind(port):
            _handed_out.add(port)
            return port
    raise ComponentFailed(f"no free port between {LOWEST} and {HIGHEST}")


def accepts(port: int, host: str = "127.0.0.1") -> bool:
    """Does something accept connections at this port?"""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((host, port)) == 0


def wait_until_free(port: int, timeout_s: float = 10) -> None:
    """Return when the port can be bound again; connections of the former owner may linger for a moment."""
    deadline = time.monotonic() + timeout_s
    while not _can_bind(port):
        if time.monotonic() > deadline:
            raise ComponentFailed(f"port {port} is still in use after {timeout_s:.0f} s")
        time.sleep(0.02)


def _can_bind(port: int) -> bool:
    with socket.socket() as probe:
        # Servers set it too: without it a port whose last connections are in TIME_WAIT looks taken.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
