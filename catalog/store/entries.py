"""Reads of the newest state, and the stored form of documents: JSON, compressed by zstd at its
fastest level.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

import sqlalchemy as sa
import zstandard

from catalog.errors import NoSuchWarehouse
from catalog.models import CatalogEntry, Kind, Warehouse
from catalog.store.database import Database
from catalog.store.schema import dropped, entries, heads, warehouses

CHUNK_BYTES = 1024 * 1024
CHUNKED_BYTES_MIN = 4 * CHUNK_BYTES  # shorter documents are one frame
RECENT_MAX = 2
_local = threading.local()
# The long documents that were compressed last, with their chunks. Deques can be shared between threads.
_recent: deque[tuple[bytes, list[bytes]]] = deque(maxlen=RECENT_MAX)
_by_name = sa.and_(
    entries.c.warehouse == sa.bindparam("warehouse"),
    entries.c.namespace == sa.bindparam("namespace"),
    entries.c.name == sa.bindparam("name"),
)
_head_columns = (
    entries.c.kind,
    entries.c.uuid,
    entries.c.version,
    entries.c.metadata_location,
    entries.c.protected,
)
READ_HEAD = sa.select(*_head_columns).where(_by_name)
# The warehouse comes with the entry, because most operations need both.
READ_ENTRY = (
    sa.select(warehouses.c.root, warehouses.c.created_ms, *_head_columns)
    .outerjoin_from(
        warehouses,
        entries,
        sa.and_(
            entries.c.warehouse == warehouses.c.warehouse,
            entries.c.namespace == sa.bindparam("namespace"),
            entries.c.name == sa.bindparam("name"),
        ),
    )
    .where(warehouses.c.warehouse == sa.bindparam("warehouse"))
)
READ_WHOLE = READ_ENTRY.add_columns(entries.c.document)
READ_LATER = (
    sa.select(entries.c.document)
    .where(entries.c.warehouse == sa.bindparam("warehouse"), entries.c.uuid == sa.bindparam("uuid"))
    .union_all(
        sa.select(dropped.c.document).where(
            dropped.c.warehouse == sa.bindparam("warehouse"), dropped.c.uuid == sa.bindparam("uuid")
        )
    )
)
READ_PROTECTED = sa.select(entries.c.protected).where(
    entries.c.warehouse == sa.bindparam("warehouse"), entries.c.uuid == sa.bindparam("uuid")
)
READ_NAMES = (
    sa.select(entries.c.name)
    .where(
        entries.c.warehouse == sa.bindparam("warehouse"),
        entries.c.namespace == sa.bindparam("namespace"),
        entries.c.name > sa.bindparam("after"),
        entries.c.kind == sa.bindparam("kind"),
    )
    .order_by(entries.c.name)
    .limit(sa.bindparam("limit", type_=sa.Integer))
)
READ_NAMESPACES = (
    sa.select(entries.c.namespace)
    .where(
        entries.c.warehouse == sa.bindparam("warehouse"),
        entries.c.kind == "namespace",
        entries.c.namespace > sa.bindparam("after"),
        entries.c.namespace < sa.bindparam("before"),
    )
    .order_by(entries.c.namespace)
    .limit(sa.bindparam("limit", type_=sa.Integer))
)
READ_NUMBER = sa.select(heads.c.number, heads.c.time_ms).where(heads.c.warehouse == sa.bindparam("warehouse"))
CHUNK_ROWS = 1000


def pack(document: bytes) -> bytes:
    """Compress a document for its row.

    A long document is compressed in chunks, each a frame of its own. A commit changes little of it, so most
    chunks of the previous version can be reused.
    """
    if len(document) < CHUNKED_BYTES_MIN:
        return _compressor().compress(document)
    chunks = _chunks(document)
    _recent.append((document, chunks))
    return b"".join(chunks)


def unpack(packed: bytes) -> bytes:
    """Decompress a document to JSON text. Raises ZstdError if it is truncated."""
    decompressor: zstandard.ZstdDecompressor | None = getattr(_local, "decompressor", None)
    if decompressor is None:
        decompressor = _local.decompressor = zstandard.ZstdDecompressor()
    frames: list[bytes] = []
    rest = packed
    while rest or not frames:
        frame = decompressor.decompressobj()
        frames.append(frame.decompress(rest))
        if not frame.eof:
            raise zstandard.ZstdError("the compressed document is cut off")
        rest = frame.unused_data
    return b"".join(frames)


def _chunks(document: bytes) -> list[bytes]:
    """The compressed chunks. Chunks that an earlier version also has are reused."""
    first = document[:CHUNK_BYTES]
    known = next((known for known in reversed(list(_recent)) if known[0].startswith(first)), (b"", []))
    chunks = []
    for number, start in enumerate(range(0, len(document), CHUNK_BYTES)):
        chunk = document[start : start + CHUNK_BYTES]
        same = len(chunk) == CHUNK_BYTES and known[0].startswith(chunk, start)
        chunks.append(known[1][number] if same else _compressor().compress(chunk))
    return chunks


def _compressor() -> zstandard.ZstdCompressor:
    """The compressor of this thread. It is costly to create and cannot be shared."""
    found: zstandard.ZstdCompressor | None = getattr(_local, "compressor", None)
    if found is None:
        found = _local.compressor = zstandard.ZstdCompressor(level=1)
    return found


class EntryStore:
    """Reads of the newest state. Nothing is cached."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def find(
        self, warehouse: str, namespace: str, name: str, *, whole: bool = False
    ) -> tuple[Warehouse, CatalogEntry | None]:
        """The warehouse and the entry; with its document, if `whole`. Raises NoSuchWarehouse."""
        params = {"warehouse": warehouse, "namespace": namespace, "name": name}
        row = self._database.fetch_one(READ_WHOLE if whole else READ_ENTRY, params)
        if row is None:
            raise NoSuchWarehouse(f"Warehouse does not exist: {warehouse}")
        found = Warehouse(warehouse, row[0], row[1])
        if row[2] is None:
            return found, None
        document = unpack(row[7]) if whole else None
        return found, CatalogEntry(row[2], namespace, name, row[3], row[4], row[5], document, bool(row[6]))

    def by_uuid(self, warehouse: str, uuid: str) -> bytes | None:
        """The newest document of a table or view with this uuid, under any name, or its last one if it is
        dropped.
        """
        row = self._database.fetch_one(READ_LATER, {"warehouse": warehouse, "uuid": uuid})
        return unpack(row[0]) if row else None

    def is_protected(self, warehouse: str, uuid: str) -> bool:
        """Whether the table or view with this uuid exists and is protected, under any name."""
        row = self._database.fetch_one(READ_PROTECTED, {"warehouse": warehouse, "uuid": uuid})
        return row is not None and bool(row[0])

    def names(self, warehouse: str, namespace: str, kind: Kind, after: str, limit: int) -> list[str]:
        params: dict[str, Any] = {"warehouse": warehouse, "namespace": namespace, "kind": kind}
        return [
            row[0] for row in self._database.fetch_all(READ_NAMES, params | {"after": after, "limit": limit})
        ]

    def children(self, warehouse: str, parent: str, after: str, limit: int) -> list[str]:
        """Keys of the namespaces directly below `parent` ("": top level), after the key `after`."""
        prefix = parent + "\x1f" if parent else ""
        # Keys below a parent are between "parent 0x1F" and "parent 0x20". At the top level there is no bound.
        before = parent + "\x20" if parent else "\U0010ffff"
        found: list[str] = []
        after = max(after, prefix)
        while len(found) < limit:
            params = {"warehouse": warehouse, "after": after, "before": before, "limit": CHUNK_ROWS}
            chunk = [row[0] for row in self._database.fetch_all(READ_NAMESPACES, params)]
            found += [key for key in chunk if "\x1f" not in key[len(prefix) :]]
            if len(chunk) < CHUNK_ROWS:
                break
            after = chunk[-1]
        return found[:limit]

    def number(self, warehouse: str) -> tuple[int, int] | None:
        """The number and the time (ms) of the newest commit. None if the warehouse does not exist."""
        row = self._database.fetch_one(READ_NUMBER, {"warehouse": warehouse})
        return (row[0], row[1]) if row else None
