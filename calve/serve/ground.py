"""What must be there before the server can start: a socket to listen on, a home to write to.

What is in the way becomes a `StartupError`: a sentence that says what to do about it.
"""

from __future__ import annotations

import errno
import socket
import tempfile

from calve.settings import Settings
from calve.startup import StartupError

BACKLOG = 2048


def listen(host: str, port: int) -> socket.socket:
    """A listening socket. Port 0 takes a free one."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as problem:
        raise StartupError(f"the host {host} cannot be resolved: {problem.strerror}.") from None
    family, kind, protocol, _, address = found[0]
    listener = socket.socket(family, kind, protocol)
    try:
        # Connections of a former server may linger; a server that still listens is an error all the same.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as problem:
        listener.close()
        raise StartupError(_why_not(host, port, problem)) from None
    listener.setblocking(False)
    return listener


def _why_not(host: str, port: int, problem: OSError) -> str:
    if problem.errno == errno.EADDRINUSE:
        return f"port {port} on {host} is in use; stop the other program or choose another with --port."
    if problem.errno == errno.EACCES:
        return f"port {port} needs more rights than this user has; choose one above 1023 with --port."
    if problem.errno == errno.EADDRNOTAVAIL:
        return f"{host} is not an address of this machine; choose another with --host."
    return f"cannot listen on {host}:{port}: {problem.strerror}."


def uses_home(settings: Settings) -> bool:
    """Is anything kept under `home`?"""
    places = (settings.database.removeprefix("sqlite:///"), settings.warehouse_root.removeprefix("file://"))
    return any(place.startswith(f"{settings.home}/") for place in places)


def prepare_home(settings: Settings) -> None:
    """Make the home, and be sure that it can be written to."""
    if not uses_home(settings):
        return
    try:
        settings.home.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=settings.home):
            pass
    except OSError as problem:
        raise StartupError(
            f"the folder {settings.home} cannot be written to ({problem.strerror}): choose another with "
            "--home."
        ) from None
