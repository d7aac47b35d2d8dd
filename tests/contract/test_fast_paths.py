"""With and without `fast_paths` the server gives the same response to every request."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from calve.app import create_app
from calve.bootstrap import migrate_ingest, reach_database
from calve.settings import Settings
from catalog.api import tables
from catalog.fast import pieces, reads
from catalog.identity.principals import PrincipalStore
from catalog.models import Role
from catalog.store.database import Database
from catalog.store.migrations import migrate
from tests.harness.rest import SCHEMA, append_body
from tests.harness.stacks import STACKS, Stacks

OWN_HEADERS = frozenset({"x-request-id", "date"})
NAMESPACES = ("db", "empty", "missing", "d%62", "db%1Fin", "main@1", "..", "a b".replace(" ", "+"))
TABLES = ("t", "large", "view", "lost", "missing", "t%00", "T", ".", "t~x")
PREFIXES = ("main", "other", "missing", "main@now", "main@1", "main~tx", "namespaces", "ma%69n", "")
QUERIES = (
    "",
    "snapshots=all",
    "snapshots=refs",
    "snapshots=none",
    "snapshots=all&snapshots=refs",
    "referenced-by=db%1Fview",
    "pageToken=",
    "pageToken=&pageSize=1",
    "pageSize=1&pageToken=",
    "pageSize=0&pageToken=",
    "pageToken=nonsense",
    "parent=db",
    "parent=missing",
    "warehouse=main",
    "warehouse=missing",
    "warehouse=main@now",
    "warehouse=a&warehouse=main",
    "x=%FF",
    "x" * 300,
)


@dataclass
class Both:
    """Two applications on one database: with fast paths and without."""

    fast: httpx.AsyncClient
    plain: httpx.AsyncClient
    runner: asyncio.Runner
    tokens: dict[str, str] = field(default_factory=dict)

    def call(self, client: httpx.AsyncClient, method: str, path: str, **options: Any) -> httpx.Response:
        return self.runner.run(client.request(method, path, **options))

    def ok(self, method: str, path: str, **options: Any) -> Any:
        headers = {"authorization": f"Bearer {self.tokens['admin']}"} if self.tokens else {}
        answer = self.call(self.plain, method, path, headers=headers, **options)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None


def _settings(stacks: Stacks, name: str, folder: Path, auth: str) -> Settings:
    database = stacks.postgres.database() if name != "embedded" else f"sqlite:///{folder}/catalog.db"
    return Settings(home=folder, database=database, auth=auth, log_level="error")


KINDS = [(name, auth) for name in STACKS for auth in ("open", "tokens")]


@pytest.fixture(scope="module", params=KINDS, ids="-".join)
def both(
    request: pytest.FixtureRequest, stacks: Stacks, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Both]:
    folder = tmp_path_factory.mktemp("both")
    settings = _settings(stacks, request.param[0], folder, request.param[1])
    _migrate(settings)
    with asyncio.Runner() as runner:
        apps = [create_app(settings), create_app(settings.model_copy(update={"fast_paths": False}))]
        clients = [
            httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") for app in apps
        ]
        made = Both(clients[0], clients[1], runner)
        if settings.auth == "tokens":
            made.tokens = _tokens(made, settings)
        _fill(made, folder)
        yield made
        for client in clients:
            runner.run(client.aclose())
        for app in apps:
            runner.run(_lifespan(app))


def _migrate(settings: Settings) -> None:
    database = reach_database(settings)
    migrate(database)
    migrate_ingest(settings, database)
    database.close()


async def _lifespan(app: Any) -> None:
    """Start and stop the application, so that it closes its connections."""
    messages = iter(["lifespan.startup", "lifespan.shutdown"])

    async def receive() -> dict[str, str]:
        return {"type": next(messages)}

    async def send(_message: Any) -> None:
        pass

    await app({"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}, receive, send)


def _tokens(both: Both, settings: Settings) -> dict[str, str]:
    database = Database(settings.database)
    principals = PrincipalStore(database)
    found = {}
    for name, roles in {"admin": {"*": Role.ADMIN}, "reader": {"main": Role.READER}, "nobody": {}}.items():
        secret = principals.create(name, roles)
        form = {"grant_type": "client_credentials", "client_id": name, "client_secret": secret}
        found[name] = both.call(both.plain, "POST", "/v1/oauth/tokens", data=form).json()["access_token"]
    database.close()
    return found


def _fill(both: Both, folder: Path) -> None:
    both.ok("POST", "/lake/v1/warehouses", json={"name": "other"})
    for namespace in (["db"], ["db", "in"], ["empty"]):
        both.ok("POST", "/v1/main/namespaces", json={"namespace": namespace})
    for name in ("t", "large", "lost"):
        made = both.ok("POST", "/v1/main/namespaces/db/tables", json={"name": name, "schema": SCHEMA})
        if name == "lost":
            Path(made["metadata-location"].removeprefix("file://").removeprefix("file:")).unlink()
        if name == "large":
            updates = [{"action": "set-properties", "updates": {f"p{n}": "x" * 100 for n in range(300)}}]
            body = {"requirements": [], "updates": updates}
            both.ok("POST", "/v1/main/namespaces/db/tables/large", json=body)
    version = {
        "version-id": 1,
        "timestamp-ms": 1,
        "schema-id": 0,
        "summary": {},
        "default-namespace": ["db"],
        "representations": [{"type": "sql", "sql": "SELECT 1", "dialect": "spark"}],
    }
    view = {"name": "view", "schema": SCHEMA, "view-version": version, "properties": {}}
    both.ok("POST", "/v1/main/namespaces/db/views", json=view)


paths = st.one_of(
    st.just("/v1/config"),
    st.builds("/v1/{}/namespaces".format, st.sampled_from(PREFIXES)),
    st.builds("/v1/{}/namespaces/{}/tables".format, st.sampled_from(PREFIXES), st.sampled_from(NAMESPACES)),
    st.builds(
        "/v1/{}/namespaces/{}/tables/{}".format,
        st.sampled_from(PREFIXES),
        st.sampled_from(NAMESPACES),
        st.sampled_from(TABLES),
    ),
    # Most of the time what exists, so that the fast path is taken.
    st.sampled_from(
        [
            "/v1/main/namespaces/db/tables/t",
            "/v1/main/namespaces/db/tables/large",
            "/v1/main/namespaces/db/tables",
        ]
    ),
)
headers = st.dictionaries(
    st.sampled_from(["accept-encoding", "if-none-match", "range", "content-length", "x-other"]),
    st.sampled_from(["gzip", "*", "0", "identity", '"x", W/"y"', "ETAG", "W/ETAG"]),
    max_size=3,
)
callers = st.sampled_from(["admin", "reader", "nobody", "", "wrong", "twice"])
writes = st.sampled_from(["none", "none", "none", "commit", "create and drop"])


@given(
    method=st.sampled_from(["GET", "GET", "GET", "HEAD", "POST", "OPTIONS"]),
    path=paths,
    query=st.sampled_from(QUERIES),
    given_headers=headers,
    caller=callers,
    write=writes,
)
@hypothesis_settings(deadline=None, max_examples=150)
def test_both_give_the_same_response(
    both: Both, method: str, path: str, query: str, given_headers: dict[str, str], caller: str, write: str
) -> None:
    url = f"{path}?{query}" if query else path
    sent = [(name, value) for name, value in given_headers.items() if "ETAG" not in value]
    sent += _authorization(both, caller)
    for name, value in given_headers.items():
        if "ETAG" in value:
            sent.append((name, value.replace("ETAG", _current_etag(both, url, sent))))
    for again in range(2):  # the second time from the cache
        if again:
            _write(both, write)
        expected, found = (
            _shown(both.call(client, method, url, headers=sent)) for client in (both.plain, both.fast)
        )
        assert found == expected


def _authorization(both: Both, caller: str) -> list[tuple[str, str]]:
    if not both.tokens or not caller:
        return []
    one = ("authorization", f"Bearer {both.tokens.get(caller, 'x' * 40)}")
    return [one, one] if caller == "twice" else [one]


def _current_etag(both: Both, url: str, sent: list[tuple[str, str]]) -> str:
    return str(both.call(both.plain, "GET", url, headers=sent).headers.get("etag", '"none"'))


def _write(both: Both, write: str) -> None:
    if write == "commit":
        path = "/v1/main/namespaces/db/tables/t"
        metadata = both.ok("GET", path)["metadata"]
        both.ok("POST", path, json=append_body(metadata))
    elif write == "create and drop":
        name = f"n{uuid.uuid4().hex[:8]}"
        both.ok("POST", "/v1/main/namespaces", json={"namespace": [name]})
        both.ok("DELETE", f"/v1/main/namespaces/{name}")


def _shown(answer: httpx.Response) -> tuple[int, list[tuple[str, str]], bytes]:
    """What a client sees, apart from what is different for each request."""
    kept = sorted((name, value) for name, value in answer.headers.multi_items() if name not in OWN_HEADERS)
    request_id = answer.headers.get("x-request-id", "")
    return answer.status_code, kept, answer.content.replace(request_id.encode() or b"\0", b"")


def test_a_warehouse_that_is_made_again_shows_nothing_of_the_old_one(both: Both) -> None:
    name = f"wh-{uuid.uuid4().hex[:8]}"
    sent = _authorization(both, "admin")
    lists = []
    for table in ("old", "new"):
        both.ok("POST", "/lake/v1/warehouses", json={"name": name})
        both.ok("POST", f"/v1/{name}/namespaces", json={"namespace": ["db"]})
        both.ok("POST", f"/v1/{name}/namespaces/db/tables", json={"name": table, "schema": SCHEMA})
        lists.append(both.call(both.fast, "GET", f"/v1/{name}/namespaces/db/tables", headers=sent).json())
        both.ok("DELETE", f"/v1/{name}/namespaces/db/tables/{table}")
        both.ok("DELETE", f"/v1/{name}/namespaces/db")
        both.ok("DELETE", f"/lake/v1/warehouses/{name}")
    assert [[one["name"] for one in found["identifiers"]] for found in lists] == [["old"], ["new"]]


def test_response_row_and_file_of_a_long_table_are_the_same_document(
    both: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server with fast paths writes, the other one reads the row."""
    monkeypatch.setattr(reads, "LONG_SNAPSHOTS", 3)
    monkeypatch.setattr(pieces, "PIECE_ENTRIES", {"snapshots": 2, "snapshot-log": 3})
    monkeypatch.setattr(pieces, "KEPT_ENTRIES_MIN", 1)
    monkeypatch.setattr(tables, "PIECE_BYTES", 64)
    monkeypatch.setattr("catalog.services.writes.GZIP_SNAPSHOTS_MIN", 6)
    table, transaction = f"long{uuid.uuid4().hex[:8]}", f"tx{uuid.uuid4().hex[:8]}"
    accepted = itertools.cycle(["gzip", "identity"])

    def send(method: str, path: str, **body: Any) -> Any:
        sent = [*_authorization(both, "admin"), ("accept-encoding", next(accepted))]
        answer = both.call(both.fast, method, path, headers=sent, **body)
        assert answer.is_success, answer.text
        return answer.json()

    def append(warehouse: str, *updates: dict[str, Any]) -> None:
        path = f"/v1/{warehouse}/namespaces/db/tables/{table}"
        body = append_body(both.ok("GET", path)["metadata"])
        answer = send("POST", path, json={**body, "updates": [*body["updates"], *updates]})
        row = both.ok("GET", path)
        assert _canonical(answer["metadata"]) == _canonical(row["metadata"])
        for _ in range(2):
            assert _canonical(send("GET", path)["metadata"]) == _canonical(row["metadata"])

    def file() -> tuple[int, bool]:
        """The number of snapshots in the metadata file, and whether it is gzipped."""
        row = both.ok("GET", f"/v1/main/namespaces/db/tables/{table}")
        path = Path(row["metadata-location"].removeprefix("file://").removeprefix("file:"))
        data, is_gzipped = path.read_bytes(), path.name.endswith(".gz.metadata.json")
        metadata = orjson.loads(gzip.decompress(data) if is_gzipped else data)
        assert _canonical(metadata) == _canonical(row["metadata"])
        return len(metadata["snapshots"]), is_gzipped

    send("POST", "/v1/main/namespaces/db/tables", json={"name": table, "schema": SCHEMA})
    found = []
    for _ in range(6):
        append("main")
        found.append(file())
    assert found == [(1, False), (2, False), (3, False), (4, False), (5, False), (6, True)]
    snapshots = both.ok("GET", f"/v1/main/namespaces/db/tables/{table}")["metadata"]["snapshots"]
    append("main", {"action": "remove-snapshots", "snapshot-ids": [snapshots[1]["snapshot-id"]]})
    assert file() == (6, True)
    send("POST", "/lake/v1/main/transactions", json={"name": transaction})
    for _ in range(2):
        append(f"main~{transaction}")
    send("POST", f"/lake/v1/main/transactions/{transaction}/commit")
    assert file() == (8, True)
    append("main", {"action": "set-properties", "updates": {"write.metadata.compression-codec": "none"}})
    assert file() == (9, False)


def _canonical(document: Any) -> bytes:
    return orjson.dumps(document, option=orjson.OPT_SORT_KEYS)
