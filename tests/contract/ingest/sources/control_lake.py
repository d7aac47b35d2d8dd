"""A lake without a worker, with its HTTP API in this process."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import sqlalchemy as sa
import zstandard

from calve.app import assemble
from calve.http import wrap
from calve.settings import Settings
from catalog.identity.open import OpenIdentity
from ingest.journal import schema
from tests.contract.ingest.staging_lake import WAREHOUSE, StagingLake, opened
from tests.harness.thread_server import ThreadServer

ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


@dataclass(kw_only=True)
class ControlLake(StagingLake):
    client: httpx.Client
    port: int

    def call(self, method: str, path: str, body: Any = None, status: int = 200) -> Any:
        answer = self.client.request(method, f"/lake/v1/{WAREHOUSE}/{path}", json=body)
        assert answer.status_code == status, answer.text
        return answer.json() if answer.content else None

    def send(self, *events: dict[str, Any], source: str = "shop", status: int = 202) -> Any:
        headers = {"X-Source-Id": source} if source else {}
        answer = self.client.post("/cdc", json={"events": list(events)}, headers=headers)
        assert answer.status_code == status, answer.text
        return answer.json()

    def journal_bytes(self) -> bytes:
        """Everything that the tables of the journal hold, uncompressed; of SQLite the file itself, too."""
        database = self.ingest.journal.database
        found = []
        for table in schema.metadata.sorted_tables:
            with database.engine.connect() as connection:
                for row in connection.execute(sa.select(table)):
                    found += [_plain(value) for value in row]
        if database.is_sqlite:
            path = Path(str(database.url.database))
            found += [file.read_bytes() for file in path.parent.glob(f"{path.name}*")]
        return b"\0".join(found)


def _plain(value: Any) -> bytes:
    if not isinstance(value, bytes):
        return str(value).encode()
    at = value.find(ZSTD_MAGIC, 0, 8)
    return value if at < 0 else zstandard.ZstdDecompressor().decompress(value[at:])


@contextlib.contextmanager
def controlled(folder: Path, **settings: Any) -> Iterator[ControlLake]:
    with opened(folder, **settings) as lake:
        found = Settings(home=folder / "lake", log_level="error", **settings)
        app = assemble(found, lake.catalog, OpenIdentity(), lake.ingest)
        app.router.lifespan_context = _no_lifespan  # the lake is closed by its owner
        server = ThreadServer(wrap(app, found), found)
        server.start()
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{server.port}", timeout=60) as client:
                yield ControlLake(lake.settings, lake.catalog, lake.ingest, client=client, port=server.port)
        finally:
            server.stop()


@contextlib.asynccontextmanager
async def _no_lifespan(_: Any) -> AsyncIterator[None]:
    yield


def event(sequence: int, table: str = "shop.customers", **row: Any) -> dict[str, Any]:
    return {
        "sequence": sequence,
        "timestamp": 1_763_280_000_000,
        "operation": "INSERT",
        "table": table,
        "rowId": str(row.get("id", sequence)),
        "after": row,
    }
