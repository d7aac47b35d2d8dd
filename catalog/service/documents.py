"""Documents that were read already, by the metadata location that they belong to.

A metadata file is never overwritten, so a document under its location never changes, and keeping it can make
no answer stale: which location a name stands at is asked of the database each time. Bounded by bytes, newest
use last.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

import orjson

from catalog.changes import Entry

Key = tuple[str, str]  # what it is, and which version of it
PARSED_WEIGHT = 8  # a parsed document takes about this many times the bytes of its text


def document_key(entry: Entry) -> Key:
    """The version is part of it: a file that others wrote can change before it is registered again."""
    return (entry.uuid, f"{entry.version} {entry.metadata_location}")


class Documents:
    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[Key, str], tuple[Any, int]] = OrderedDict()
        self._bytes = 0

    def get(self, key: Key, form: str) -> Any | None:
        """A kept form ("text", "parsed", "gzip") of a document, or None."""
        with self._lock:
            found = self._kept.get((key, form))
            if found is None:
                return None
            self._kept.move_to_end((key, form))
            return found[0]

    def put(self, key: Key, form: str, value: Any, weight: int) -> None:
        if weight > self._bytes_max:
            return
        with self._lock:
            old = self._kept.pop((key, form), None)
            self._bytes += weight - (old[1] if old else 0)
            self._kept[(key, form)] = (value, weight)
            while self._bytes > self._bytes_max:
                _, (_, gone) = self._kept.popitem(last=False)
                self._bytes -= gone

    def text(self, key: Key) -> bytes | None:
        found: bytes | None = self.get(key, "text")
        return found

    def put_text(self, key: Key, text: bytes) -> None:
        self.put(key, "text", text, len(text))

    def parsed(self, key: Key, text: bytes) -> dict[str, Any]:
        """The document as dicts, shared: whoever gets it must not change it."""
        found = self.get(key, "parsed")
        if found is None:
            found = orjson.loads(text)
            self.put(key, "parsed", found, len(text) * PARSED_WEIGHT)
        return found  # type: ignore[no-any-return]

    def put_parsed(self, key: Key, value: dict[str, Any], text: bytes) -> None:
        self.put(key, "parsed", value, len(text) * PARSED_WEIGHT)
