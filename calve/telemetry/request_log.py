"""One log line for each served request, cheap enough to leave on.

While a request is served, only its facts are noted; the lines are made and written later, many at a time,
which costs a fraction of what the logging module would. They hold nothing that can be a secret: no query, no
header, no body.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from typing import Any, NamedTuple, TextIO

from calve.telemetry.logs import as_json, as_text, timestamp

DELAY_S = 0.2
LINES_MAX = 500
PATH_BYTES_MAX = 1000


class Served(NamedTuple):
    """The facts of one request."""

    at_s: float  # of the end of the answer, on the clock of time.time()
    request_id: str
    method: str
    path: bytes  # as the client wrote it, without the query
    status: int
    duration_s: float
    operation: str
    caller: str | None


class RequestLog:
    """Collects what was served, and writes it.

    Lines wait for at most `DELAY_S`, and `flush` writes them at a graceful stop; a killed process loses those
    that were waiting.
    """

    def __init__(self, *, json: bool = True, stream: TextIO | None = None) -> None:
        self._json = json
        self._stream = stream
        self._waiting: list[Served] = []

    def add(self, *facts: Any) -> None:
        """Note a request that has been answered just now: the fields of `Served` from the second on."""
        waiting = self._waiting
        waiting.append(Served(time.time(), *facts))
        if len(waiting) == 1:
            asyncio.get_running_loop().call_later(DELAY_S, self.flush)
        elif len(waiting) >= LINES_MAX:
            self.flush()

    def flush(self) -> None:
        """Write what waits."""
        if self._waiting:
            served, self._waiting = self._waiting, []
            text = b"".join(self._line(one) for one in served)
            stream = (self._stream or sys.stderr).buffer
            # A reader of the log that has gone away must not take the server with it.
            with contextlib.suppress(OSError, ValueError):
                stream.write(text)
                stream.flush()

    def _line(self, served: Served) -> bytes:
        line = {
            "ts": timestamp(served.at_s),
            "level": "error" if served.status >= 500 else "info",
            "message": "request",
            "request_id": served.request_id,
            "method": served.method,
            "path": served.path[:PATH_BYTES_MAX].decode("ascii", "replace"),
            "status": served.status,
            "duration_ms": int(served.duration_s * 1e6) / 1000,
            "operation": served.operation,
            "caller": served.caller,
        }
        return (as_json(line) if self._json else as_text(line).encode(errors="replace")) + b"\n"
