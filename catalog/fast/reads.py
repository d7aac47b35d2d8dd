"""A cache of documents and responses by version, and ASGI middleware that answers reads from it.

Each version of a table has one metadata file, which is never overwritten, so the document of a version never
changes. The size of the cache is limited in bytes; the least recently used entries are dropped first.

The middleware answers the most frequent reads, successes only.

It handles loadTable, tableExists, listTables, listNamespaces and getConfig of the newest state. For each
request it reads the caller and the current version from the database. The response for that version comes
from the cache, or the request goes on to FastAPI and its response is kept under the version. So this module
renders nothing, and a response differs in no byte from the one that FastAPI makes.

A request goes on to FastAPI if anything about it is unusual: escapes in the path, unknown parameters, a body,
a repeated header, a missing row or role or file, a database that does not answer. Every error is made there.
"""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, MutableMapping
from typing import Any

import orjson
import sqlalchemy as sa

from catalog.api.tables import etag, etag_matches
from catalog.errors import Unavailable
from catalog.fast.pieces import LongDocument, encode, with_index
from catalog.fast.readers import Reader
from catalog.identity.open import ANONYMOUS
from catalog.identity.principals import READ_CALLER
from catalog.identity.tokens import bearer_hash, caller_from_rows
from catalog.metadata.document import Metadata
from catalog.models import Caller, CatalogEntry, DocumentKey, Text, document_key
from catalog.names import namespace_from_segment
from catalog.services.warehouse_state import Documents
from catalog.storage.base import Files
from catalog.store.entries import READ_HEAD
from catalog.store.schema import heads, warehouses

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_SEGMENT = rb"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,254}"
# A warehouse cannot have the name of a route, so no other route matches.
_PATH = re.compile(
    rb"/v1/(?:config|([A-Za-z0-9][A-Za-z0-9_-]{0,62})/namespaces(?:/(" + _SEGMENT + rb")/tables(?:/("
    rb"" + _SEGMENT + rb"))?)?)"
).fullmatch
_WAREHOUSE_QUERY = re.compile(rb"(?:warehouse=([A-Za-z0-9][A-Za-z0-9_-]{0,62}))?").fullmatch
_TABLE_QUERIES = {b"": "all", b"snapshots=all": "all", b"snapshots=refs": "refs"}
QUERY_BYTES_MAX = 256
DEFAULT_WAREHOUSE = "main"
# A request with one of these headers has a body, or needs more than the plain response.
_UNUSUAL_HEADERS = (b"content-length", b"transfer-encoding", b"expect", b"upgrade", b"range")
ENTRY_BYTES = 512  # the size of a cache entry without its body
RESPONSE_SHARE_MAX = 8  # a response may use at most this share of the cache
JOINED_BYTES_MAX = 4 * 2**20  # a longer response is kept in the pieces in which it was sent
PARSED_WEIGHT = 4  # a parsed document takes about this many times the bytes of its text
LONG_SNAPSHOTS = 1000  # documents with fewer are encoded as quickly without pieces

_READ_WAREHOUSE = (
    sa.select(warehouses.c.created_ms, warehouses.c.root, heads.c.number)
    .join_from(warehouses, heads, heads.c.warehouse == warehouses.c.warehouse)
    .where(warehouses.c.warehouse == sa.bindparam("warehouse"))
)


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

    def text(self, key: DocumentKey) -> Text | None:
        return self.get(("text", key))

    def put_text(self, key: DocumentKey, text: Text) -> None:
        self.put(("text", key), text, len(text))

    def parsed(self, entry: CatalogEntry) -> Metadata:
        key = ("parsed", document_key(entry))
        kept: tuple[Metadata, LongDocument | None] | None = self.get(key)
        if kept is not None:
            return kept[0]
        found: Metadata = orjson.loads(entry.document or b"{}")
        found = with_index(found) if _is_long(found) else found
        self.put(key, (found, None), len(entry.text or b"") * PARSED_WEIGHT)
        return found

    def encode(
        self, key: DocumentKey, value: Metadata, follows: DocumentKey | None, *replaced: DocumentKey
    ) -> Text:
        """Encode a version with the pieces of the previous one. Replaced versions leave the cache: frequent
        commits to a table would fill it with versions that no request reads.
        """
        before = self.get(("parsed", follows))
        pieces = encode(value, before[1] if before is not None else None) if _is_long(value) else None
        text = pieces if pieces is not None else orjson.dumps(value)
        with self._lock:
            self._weigh_nothing(("parsed", follows))
            for old in replaced:
                for form in ("parsed", "text"):
                    self._bytes -= self._kept.pop((form, old), (None, 0))[1]
        kept = with_index(value) if _is_long(value) else value
        self.put(("parsed", key), (kept, pieces), len(text) * PARSED_WEIGHT)
        return text

    def _weigh_nothing(self, key: Hashable) -> None:
        found = self._kept.get(key)
        if found is not None:
            self._kept[key] = (found[0], 0)
            self._bytes -= found[1]


def _is_long(document: Metadata) -> bool:
    return len(document.get("snapshots") or ()) >= LONG_SNAPSHOTS


class FastReads:
    def __init__(
        self, app: App, *, reader: Reader, files: Files, cache: DocumentCache, separator: str, is_open: bool
    ) -> None:
        """`is_open`: callers need no token."""
        self._app = app
        self._reader = reader
        self._files = files
        self._cache = cache
        self._separator = separator
        self._is_open = is_open

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] in ("GET", "HEAD"):
            match = _PATH(scope.get("raw_path") or b"")
            if match is not None:
                await self._read(match, scope, receive, send)
                return
        await self._app(scope, receive, send)
        if scope["type"] == "lifespan":
            await self._reader.close()

    async def _read(self, match: re.Match[bytes], scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        try:
            key = await self._key(match, scope, headers)
        except Unavailable:
            key = None  # FastAPI reports the error, or finds that the database has recovered
        if key is None:
            await self._app(scope, receive, send)
            return
        known = headers.get(b"if-none-match")
        if known is not None and key[0] == "loadTable":
            tag = str(key[1])
            if etag_matches(known.decode("latin-1"), tag):
                await _respond(send, 304, [(b"etag", tag.encode())], [b""])
                return
        kept = self._cache.get(key)
        if kept is not None:
            await _respond(send, *kept)
            return
        await self._app(scope, receive, _Recorder(self._cache, key, send).send)

    async def _key(
        self, match: re.Match[bytes], scope: Scope, headers: dict[bytes, bytes]
    ) -> tuple[Hashable, ...] | None:
        """The operation, the version of what it reads, and the parts of the request that affect the response.

        None if FastAPI has to answer.
        """
        if len(headers) != len(scope["headers"]) or any(name in headers for name in _UNUSUAL_HEADERS):
            return None
        method, query = scope["method"], scope["query_string"]
        prefix, namespace, table = match.groups()
        if prefix is None:
            named = _WAREHOUSE_QUERY(query)
            if named is None or method != "GET":
                return None
            prefix = named[1] or DEFAULT_WAREHOUSE.encode()
        elif (method == "HEAD" and (table is None or query)) or len(query) > QUERY_BYTES_MAX:
            return None
        warehouse = prefix.decode()
        caller = await self._caller(headers.get(b"authorization"))
        if caller is None or caller.role(warehouse) is None:
            return None
        compressed = b"gzip" in headers.get(b"accept-encoding", b"")
        if table is not None:
            key = await self._table_key(method, query, warehouse, namespace, table, compressed)
        else:
            rows = await self._reader.fetch(_READ_WAREHOUSE, {"warehouse": warehouse})
            if not rows:
                return None
            created_ms, root, number = rows[0]
            if match[1] is None:
                key = ("getConfig", warehouse, created_ms, root, compressed)
            else:
                # Every change of a name takes a number, and a warehouse that is created again begins at 0.
                operation = "listNamespaces" if namespace is None else "listTables"
                key = (operation, warehouse, created_ms, number, namespace, query, compressed)
        if key is not None:
            scope["calve.operation"], scope["calve.caller"] = key[0], caller.name
        return key

    async def _table_key(
        self, method: str, query: bytes, warehouse: str, namespace: bytes, table: bytes, compressed: bool
    ) -> tuple[Hashable, ...] | None:
        space = namespace_from_segment(namespace.decode(), self._separator).key
        name = table.decode()
        params = {"warehouse": warehouse, "namespace": space, "name": name}
        rows = await self._reader.fetch(READ_HEAD, params)
        if not rows or rows[0][0] != "table":
            return None
        if method == "HEAD":
            return ("tableExists",)
        snapshots = _TABLE_QUERIES.get(query)
        if snapshots is None or not await self._has_file(rows[0][3]):
            return None
        entry = CatalogEntry("table", space, name, rows[0][1], rows[0][2], rows[0][3])
        return ("loadTable", etag(entry, snapshots), compressed)

    async def _has_file(self, location: str) -> bool:
        if self._reader.blocks or not location.startswith("file:"):
            return not self._files.is_missing(location)
        return not await asyncio.to_thread(self._files.is_missing, location)

    async def _caller(self, authorization: bytes | None) -> Caller | None:
        if self._is_open:
            return ANONYMOUS
        token_hash = bearer_hash(authorization.decode("latin-1") if authorization else None)
        if token_hash is None:
            return None
        params = {"token_hash": token_hash, "now_ms": time.time_ns() // 1_000_000}
        return caller_from_rows(await self._reader.fetch(READ_CALLER, params))


class _Recorder:
    """Sends a response on, and caches it if it is a success."""

    def __init__(self, cache: DocumentCache, key: Hashable, send: Send) -> None:
        self._cache = cache
        self._key = key
        self._send = send
        self._start: Message | None = None
        self._parts: list[bytes] = []
        self._bytes = 0

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start" and message["status"] in (200, 204):
            self._start = message
        elif message["type"] == "http.response.body" and self._start is not None:
            self._parts.append(bytes(message.get("body", b"")))
            self._bytes += len(self._parts[-1])
            if self._bytes > self._cache.bytes_max // RESPONSE_SHARE_MAX:
                self._start, self._parts = None, []
            elif not message.get("more_body", False):
                parts = self._parts if self._bytes >= JOINED_BYTES_MAX else [b"".join(self._parts)]
                response = (self._start["status"], list(self._start["headers"]), parts)
                self._cache.put(self._key, response, self._bytes + ENTRY_BYTES)
        await self._send(message)


async def _respond(send: Send, status: int, headers: list[tuple[bytes, bytes]], parts: list[bytes]) -> None:
    await send({"type": "http.response.start", "status": status, "headers": headers})
    for part in parts[:-1]:
        await send({"type": "http.response.body", "body": part, "more_body": True})
    await send({"type": "http.response.body", "body": parts[-1]})
