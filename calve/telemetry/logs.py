"""Log lines on stderr: JSON, one object a line, or text for people.

    configure(level="info", as_json=True, secrets=settings.secrets)
    logging.getLogger(__name__).info("worker started", extra={"pid": 17})
    {"ts":"2026-11-16T05:32:00.123Z","level":"info","message":"worker started","logger":"…","pid":17}
    05:32:00.123 INFO    worker started pid=17

Everything passed as `extra` becomes a field; the id of the current request is added. Secrets are removed from
every line: the texts given to `configure`, and everything that looks like a credential. A terminal gets the
time of day in its own time zone; text that goes elsewhere has the date, too.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import traceback
from collections.abc import Iterable
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, TextIO

import orjson

from calve.telemetry.redaction import Redactor

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}

request_id: ContextVar[str | None] = ContextVar("request_id", default=None)

_PLAIN = re.compile(r"[^\s\"=]+")
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}


def timestamp(seconds: float) -> str:
    """RFC 3339 in UTC, to the millisecond."""
    return (
        datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.")
        + f"{int(seconds * 1000) % 1000:03}Z"
    )


class Formatter(logging.Formatter):
    """A record as one line, without secrets."""

    def __init__(self, *, as_json: bool, redact: Redactor, terminal: bool = False) -> None:
        super().__init__()
        self._as_json = as_json
        self._redact = redact
        self._terminal = terminal

    def format(self, record: logging.LogRecord) -> str:
        line = self._redact.value(self._fields(record))
        if self._as_json:
            return as_json(line).decode()
        trace = line.pop("traceback", None)
        if self._terminal:
            line["ts"] = (
                f"{datetime.fromtimestamp(record.created, UTC).astimezone():%H:%M:%S}.{int(record.msecs):03}"
            )
        return as_text(line) + (f"\n{trace}" if trace else "")

    def _fields(self, record: logging.LogRecord) -> dict[str, Any]:
        line: dict[str, Any] = {
            "ts": timestamp(record.created),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            "logger": record.name,
        }
        current = request_id.get()
        if current is not None:
            line["request_id"] = current
        line.update((name, value) for name, value in vars(record).items() if name not in _STANDARD)
        if record.exc_info and record.exc_info[1] is not None:
            line["error"] = type(record.exc_info[1]).__name__
            line["traceback"] = "".join(traceback.format_exception(record.exc_info[1])).rstrip()
        return line


def configure(
    *,
    level: str,
    as_json: bool,
    secrets: Iterable[str] = (),
    stream: TextIO | None = None,
) -> None:
    """Send the logs of everything in this process to stderr."""
    stream = stream or sys.stderr
    handler = logging.StreamHandler(stream)
    handler.setFormatter(Formatter(as_json=as_json, redact=Redactor(secrets), terminal=stream.isatty()))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(LEVELS[level])
    # Libraries describe their own work at `info`; their warnings matter.
    for name in ("uvicorn", "sqlalchemy", "botocore", "asyncio", "httpx", "httpcore"):
        logging.getLogger(name).setLevel(max(LEVELS[level], logging.WARNING))


def as_json(line: dict[str, Any]) -> bytes:
    """A line for programs. Every kind of value is written."""
    try:
        return orjson.dumps(line)
    except TypeError:  # half a surrogate pair, or a number beyond 64 bits
        return json.dumps(line, default=str).encode()


def as_text(line: dict[str, Any]) -> str:
    """A line for people: time, level, message, key=value. It removes these fields from the dict."""
    head = f"{line.pop('ts')} {line['level'].upper():7} {line.pop('message')}"
    if line.pop("level") != "debug":
        line.pop("logger", None)
    return head + "".join(f" {name}={_value(value)}" for name, value in line.items() if value is not None)


def _value(value: Any) -> str:
    """Plain words as they are; everything else as JSON, so that a reader sees where it ends."""
    if isinstance(value, str) and _PLAIN.fullmatch(value):
        return value
    return as_json(value).decode()
