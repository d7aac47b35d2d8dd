"""Which requests the fast reads answer, and which they pass on to the application."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from catalog.api.tables import etag
from catalog.fast.readers import SqliteReader
from catalog.fast.reads import DocumentCache, FastReads
from catalog.names import Identifier, Namespace, WarehouseRef
from catalog.services import commits, namespaces, tables
from catalog.services.catalog import Catalog, Limits
from catalog.services.commits import TableCommit
from catalog.services.warehouses import ensure_main
from catalog.services.writes import WriteContext
from catalog.storage.files import StorageFiles
from catalog.storage.s3 import S3Settings
from catalog.store.database import Database
from catalog.store.migrations import migrate
from tests.harness.rest import SCHEMA

TABLE = Identifier(Namespace(("db",)), "t")
PATH = "/v1/main/namespaces/db/tables/t"
ASKED = WriteContext("tester")
HEADERS = [(b"content-type", b"application/json")]


class Inner:
    """An application that numbers its responses."""

    def __init__(self) -> None:
        self.calls = 0

    async def __call__(self, scope: Any, _receive: Any, send: Any) -> None:
        self.calls += 1
        status = 404 if b"missing" in scope["raw_path"] else 200
        await send({"type": "http.response.start", "status": status, "headers": HEADERS})
        await send({"type": "http.response.body", "body": b"%d " % self.calls, "more_body": True})
        await send({"type": "http.response.body", "body": b"done"})


class Lake:
    def __init__(self, folder: Path) -> None:
        database = Database(f"sqlite:///{folder}/catalog.db")
        files = StorageFiles(S3Settings(), file_roots=[f"file://{folder}/warehouse"])
        migrate(database)
        self.catalog = Catalog(database, files, Limits(), lambda _root: {})
        ensure_main(self.catalog, f"file://{folder}/warehouse")
        self.state = self.catalog.state(WarehouseRef("main"))
        namespaces.create(self.catalog, self.state, ASKED, TABLE.namespace, {})
        tables.create(self.catalog, self.state, ASKED, TABLE, {"name": "t", "schema": SCHEMA})
        self.inner = Inner()
        self.cache = DocumentCache(2**20)
        self.reader = SqliteReader(f"{folder}/catalog.db")
        self.app = FastReads(
            self.inner, reader=self.reader, files=files, cache=self.cache, separator="\x1f", is_open=True
        )

    def get(
        self, path: str = PATH, *, method: str = "GET", query: str = "", **headers: str
    ) -> tuple[int, bytes]:
        pairs = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
        return self.send(path, method, query, pairs)

    def send(self, path: str, method: str, query: str, pairs: list[tuple[bytes, bytes]]) -> tuple[int, bytes]:
        messages: list[Any] = []
        scope = {
            "type": "http",
            "method": method,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": pairs,
        }

        async def send(message: Any) -> None:
            messages.append(message)

        asyncio.run(self.app(scope, _no_body, send))
        return messages[0]["status"], b"".join(message["body"] for message in messages[1:])

    def commit(self) -> None:
        update = {"action": "set-properties", "updates": {"n": str(self.catalog.now_ms())}}
        commits.commit_tables(self.catalog, self.state, ASKED, [TableCommit(TABLE, [], [update])])

    def close(self) -> None:
        asyncio.run(self.reader.close())
        self.catalog.database.close()


async def _no_body() -> Any:
    raise AssertionError("the body is not read")


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    made = Lake(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("path", "method", "query"),
    [
        (PATH, "GET", ""),
        (PATH, "GET", "snapshots=refs"),
        (PATH, "HEAD", ""),
        ("/v1/main/namespaces/db/tables", "GET", ""),
        ("/v1/main/namespaces/db/tables", "GET", "pageToken=&pageSize=5"),
        ("/v1/main/namespaces", "GET", ""),
        ("/v1/config", "GET", ""),
        ("/v1/config", "GET", "warehouse=main"),
    ],
)
def test_a_repeated_read_does_not_reach_the_application(
    lake: Lake, path: str, method: str, query: str
) -> None:
    answers = {lake.get(path, method=method, query=query) for _ in range(3)}
    assert answers == {(200, b"1 done")}
    assert lake.inner.calls == 1


@pytest.mark.parametrize(
    ("path", "method", "query"),
    [
        (PATH, "POST", ""),
        (PATH, "HEAD", "x=%FF"),
        (PATH, "GET", "snapshots=none"),
        (PATH, "GET", "referenced-by=db%1Fv"),
        (PATH + "%20", "GET", ""),
        ("/v1/main@1/namespaces/db/tables/t", "GET", ""),
        ("/v1/main~x/namespaces/db/tables/t", "GET", ""),
        ("/v1/missing/namespaces/db/tables/t", "GET", ""),
        ("/v1/main/namespaces/db/tables/missing", "GET", ""),
        ("/v1/main/namespaces/missing/tables", "GET", ""),
        ("/v1/main/namespaces/db", "GET", ""),
        ("/v1/main/namespaces", "HEAD", ""),
        ("/v1/config", "GET", "warehouse=main@1"),
        ("/health", "GET", ""),
    ],
)
def test_an_unusual_request_reaches_the_application_each_time(
    lake: Lake, path: str, method: str, query: str
) -> None:
    for _ in range(2):
        lake.get(path, method=method, query=query)
    assert lake.inner.calls == 2


@pytest.mark.parametrize("name", ["content_length", "transfer_encoding", "expect", "upgrade", "range"])
def test_a_request_with_an_unusual_header_reaches_the_application(lake: Lake, name: str) -> None:
    for _ in range(2):
        lake.get(**{name: "0"})
    assert lake.inner.calls == 2


def test_a_repeated_header_reaches_the_application(lake: Lake) -> None:
    for _ in range(2):
        lake.send(PATH, "GET", "", [(b"accept-encoding", b"gzip"), (b"accept-encoding", b"gzip")])
    assert lake.inner.calls == 2


def test_a_new_version_is_read_from_the_application(lake: Lake) -> None:
    lake.get()
    lake.get("/v1/main/namespaces/db/tables")
    lake.commit()
    assert lake.get() == (200, b"3 done")
    assert lake.get("/v1/main/namespaces/db/tables") == (200, b"4 done")
    assert lake.get() == (200, b"3 done")


def test_compressed_and_plain_responses_are_kept_apart(lake: Lake) -> None:
    assert lake.get() != lake.get(accept_encoding="gzip")
    assert lake.get(accept_encoding="gzip, br") == (200, b"2 done")


def test_a_matching_etag_is_not_modified(lake: Lake) -> None:
    tag = etag(tables.require(lake.state, TABLE), "all")
    assert lake.get(if_none_match=f'"other", W/{tag}') == (304, b"")
    assert lake.inner.calls == 0
    assert lake.get(if_none_match='"other"') == (200, b"1 done")


def test_a_missing_metadata_file_reaches_the_application(lake: Lake) -> None:
    lake.get()
    location = str(tables.require(lake.state, TABLE).metadata_location)
    Path(location.removeprefix("file://").removeprefix("file:")).unlink()
    lake.get()
    assert lake.inner.calls == 2


def test_a_database_that_does_not_answer_is_left_to_the_application(lake: Lake, tmp_path: Path) -> None:
    lake.reader._path = f"{tmp_path}/nothing/here.db"
    assert lake.get() == (200, b"1 done")
    assert lake.get() == (200, b"2 done")


def test_a_response_larger_than_its_share_of_the_cache_is_not_kept(lake: Lake) -> None:
    lake.cache.bytes_max = 32
    for _ in range(2):
        lake.get()
    assert lake.inner.calls == 2
