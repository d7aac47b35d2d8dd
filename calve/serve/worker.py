"""A worker: what a forked process does between the fork and its end.

It reports to the parent, once: that it is ready, or why it is not. It ends when it is told to (SIGTERM), and
when the parent is gone.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import sys
import threading
import time
from dataclasses import dataclass
from typing import NoReturn

from calve.serve.server import CreateApp, ServerProcess, Share
from calve.settings import Settings
from calve.startup import StartupError
from calve.telemetry.metrics import metrics
from catalog.errors import CatalogError

GRACE_S = 5.0  # what a worker gets beyond its own deadline
READY = b"ready"
REPORT_BYTES_MAX = 4000  # a pipe takes so much at once

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Place:
    """What a worker has from its parent."""

    share: Share
    listener: socket.socket
    parent_alive: int  # a pipe that ends when the parent does
    reports: int  # a pipe to the parent


def be_worker(place: Place, settings: Settings, create_app: CreateApp) -> NoReturn:
    """Serve, then leave without the parent's way out."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        metrics.attach(place.share.number)
        code = _serve(place, settings, create_app)
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _serve(place: Place, settings: Settings, create_app: CreateApp) -> int:
    try:
        server = ServerProcess(settings, create_app, lambda: _report(place, READY), place.share)
        _follow_parent(place, server, settings.shutdown_timeout_s + GRACE_S)
        server.run(place.listener)
    except (StartupError, CatalogError) as problem:
        _report(place, str(problem).encode())
        return 2
    except Exception as problem:
        _log.exception("server process failed")
        _report(place, f"unexpected {type(problem).__name__}: {problem}.".encode())
        raise
    return 0


def _follow_parent(place: Place, server: ServerProcess, patience_s: float) -> None:
    """Stop when the parent is gone; leave at once if stopping takes too long."""

    def follow() -> None:
        os.read(place.parent_alive, 1)  # never a byte: it returns at the end of the pipe
        server.stop()
        time.sleep(patience_s)
        os._exit(1)

    threading.Thread(target=follow, name="follow-parent", daemon=True).start()


def _report(place: Place, text: bytes) -> None:
    with contextlib.suppress(OSError):  # the parent may be gone, and then nobody needs to know
        os.write(place.reports, text[:REPORT_BYTES_MAX])
