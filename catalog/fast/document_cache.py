"""A cache of documents and responses, by the version that they belong to.

Each version of a table has one metadata file, which is never overwritten, so the document of a key never
changes. The version of a name is read from the database for each request, so responses cannot be stale. The
size is limited in bytes; the least recently used entries are dropped first.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any

import orjson

from catalog.services.warehouse_state import Documents, Key

PARSED_WEIGHT = 4  # a parsed document takes about this many times the bytes of its text
LARGE_BYTES = 4 * 2**20
LISTS = ("snapshots", "snapshot-log")  # these lists grow at their end
ENTRIES_MIN = 1000  # shorter lists are encoded as quickly


class DocumentCache(Documents):
    caches = True

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
        kept: tuple[dict[str, Any], Encoded | None] | None = self.get(("parsed", key))
        if kept is not None:
            return kept[0]
        found: dict[str, Any] = orjson.loads(text)
        self.put(("parsed", key), (found, None), len(text) * PARSED_WEIGHT)
        return found

    def encode(
        self, key: Key, value: dict[str, Any], follows: Key | None, replaced: Iterable[Key] = ()
    ) -> bytes:
        """Encode a version, copying unchanged parts from the text of the previous one. Replaced versions are
        dropped from the cache if they are large.
        """
        before = self.get(("parsed", follows))
        encoded = encode(value, before[1] if before is not None else None)
        with self._lock:
            self._weigh_nothing(("parsed", follows))
            for old in replaced if len(encoded.text) >= LARGE_BYTES else ():
                for form in ("parsed", "text"):
                    self._bytes -= self._kept.pop((form, old), (None, 0))[1]
        self.put(("parsed", key), (value, encoded), len(encoded.text) * PARSED_WEIGHT)
        return encoded.text

    def _weigh_nothing(self, key: Hashable) -> None:
        found = self._kept.get(key)
        if found is not None:
            self._kept[key] = (found[0], 0)
            self._bytes -= found[1]


@dataclass(frozen=True, slots=True)
class EncodedList:
    """A list, and the positions of its entries in the text."""

    entries: list[Any]
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Encoded:
    text: bytes
    lists: dict[str, EncodedList] = field(default_factory=dict)


def encode(document: dict[str, Any], before: Encoded | None = None) -> Encoded:
    """The document as JSON, with its long lists first. Entries of the previous version are copied from its
    text.

    A table with 40,000 snapshots has 28 MB of metadata, of which a commit changes one kilobyte.
    """
    long: dict[str, list[Any]] = {
        name: document[name] for name in LISTS if len(document.get(name) or ()) >= ENTRIES_MIN
    }
    rest = orjson.dumps({key: value for key, value in document.items() if key not in long})
    if not long:
        return Encoded(rest)
    parts: list[bytes | memoryview] = []
    lists, size = {}, 0
    for name, entries in long.items():
        known = before.lists.get(name) if before is not None else None
        opening = b'%s"%s":[' % (b"," if parts else b"{", name.encode())
        inside = _entries(entries, known, before.text if before is not None else b"")
        start = size + len(opening)
        end = start + sum(map(len, inside))
        parts += [opening, *inside, b"]"]
        lists[name] = EncodedList(entries, start, end)
        size = end + 1
    parts.append(b"," + rest[1:] if len(rest) > len(b"{}") else b"}")
    return Encoded(b"".join(parts), lists)


def _entries(
    entries: list[Any], known: EncodedList | None, text_before: bytes
) -> tuple[bytes | memoryview, ...]:
    """The entries without the brackets around them."""
    if known is None or entries[: len(known.entries)] != known.entries:
        return (orjson.dumps(entries)[1:-1],)
    copied = memoryview(text_before)[known.start : known.end]
    added = entries[len(known.entries) :]
    return (copied, b",", orjson.dumps(added)[1:-1]) if added else (copied,)
