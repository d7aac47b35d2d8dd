"""One log line for each served request, cheap enough to leave on.

The logging module would cost ten times as much, so lines are built here, collected, and written several at a
time. They hold nothing that can be a secret: no query, no header, no body.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from typing import Any, TextIO

from calve.telemetry.logs import as_json, as_text, timestamp

DELAY_S = 0.2
LINES_MAX = 500


class RequestLog:
    """One line for each served request, written in batches.

    Lines wait for at most `DELAY_S`, and `flush` writes them at a graceful stop; a killed process loses those
    that were waiting.
    """

    def __init__(self, *, json: bool = True, stream: TextIO | None = None) -> None:
        self._json = json
        self._stream = stream
        self._lines: list[bytes] = []
        self._second = 0
        self._prefix = ""

    def now(self) -> str:
        """The time for a line. Its date is formatted once a second, not once a request."""
        now_s = time.time()
        second = int(now_s)
        if second != self._second:
            self._second, self._prefix = second, timestamp(now_s)[:-4]
        return f"{self._prefix}{int((now_s - second) * 1000):03}Z"

    def add(self, line: dict[str, Any]) -> None:
        """Note one request: `ts`, `level`, `message`, and what else is known, in plain values."""
        lines = self._lines
        lines.append(as_json(line) if self._json else as_text(line).encode(errors="replace"))
        if len(lines) == 1:
            asyncio.get_running_loop().call_later(DELAY_S, self.flush)
        elif len(lines) >= LINES_MAX:
            self.flush()

    def flush(self) -> None:
        """Write what waits."""
        if self._lines:
            lines, self._lines = self._lines, []
            stream = (self._stream or sys.stderr).buffer
            # A reader of the log that has gone away must not take the server with it.
            with contextlib.suppress(OSError, ValueError):
                stream.write(b"\n".join(lines) + b"\n")
                stream.flush()
