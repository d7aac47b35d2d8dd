"""Documents and responses that were made before, by the version that they belong to.

A version of a table has one metadata file, which is never overwritten, so a document under its key never
changes. Which version a name has is read from the database for each request, so the cache can make no
response stale. It is bounded by bytes and drops the least recently used entries first.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Any

import orjson

from catalog.services.warehouse_state import Documents, Key

PARSED_WEIGHT = 8  # a parsed document takes about this many times the bytes of its text


class DocumentCache(Documents):
    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self._lock = threading.Lock()
        self._kept: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._bytes = 0

    def get(self, key: Hashable) -> Any | None:
        with self._lock:
            found = self._kept.get(key)
            if found is None:
                return None
            self._kept.move_to_end(key)
            return found[0]

    def put(self, key: Hashable, value: Any, bytes_: int) -> None:
        if bytes_ > self.bytes_max:
            return
        with self._lock:
            old = self._kept.pop(key, None)
            self._bytes += bytes_ - (old[1] if old else 0)
            self._kept[key] = (value, bytes_)
            while self._bytes > self.bytes_max:
                _, (_, freed) = self._kept.popitem(last=False)
                self._bytes -= freed

    def text(self, key: Key) -> bytes | None:
        return self.get(("text", key))

    def put_text(self, key: Key, text: bytes) -> None:
        self.put(("text", key), text, len(text))

    def parsed(self, key: Key, text: bytes) -> dict[str, Any]:
        found = self.get(("parsed", key))
        if found is None:
            found = orjson.loads(text)
            self.put_parsed(key, found, text)
        return found  # type: ignore[no-any-return]

    def put_parsed(self, key: Key, value: dict[str, Any], text: bytes) -> None:
        self.put(("parsed", key), value, len(text) * PARSED_WEIGHT)
