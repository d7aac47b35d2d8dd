"""The object store refuses, hangs or breaks off under a running server.

A commit that could not write its metadata file surely did not happen: 409, within the deadline, or 503 where
it is not a commit. Whatever is there can be loaded meanwhile, because it is served from its row.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import httpx
import pytest

from tests.concurrency.catalog_address import CatalogAddress, problems
from tests.harness.rest import SCHEMA, Rest, append_body, identified
from tests.harness.stacks import Stack, Stacks
from tests.harness.tcp_proxy import Fault, TcpProxy

DEADLINE_S = 20
SETTINGS = {
    "CALVE_S3_CONNECT_TIMEOUT_S": "0.5",
    "CALVE_S3_REQUEST_TIMEOUT_S": "0.5",
    "CALVE_REQUEST_TIMEOUT_S": str(DEADLINE_S),
}
FAULTS = [Fault.HANG, Fault.RESET, Fault.ERROR_503, Fault.TRUNCATE, Fault.LOSE_REPLY]
HANGING_WRITERS = 24  # more than a server process has threads


@dataclass(frozen=True, slots=True)
class Behind:
    """A server whose object store is behind a proxy."""

    stack: Stack
    proxy: TcpProxy
    rest: Rest
    namespace: str

    def sound(self) -> bool:
        """Every row leads to a file and is what it should be; the look goes around the proxy."""
        with CatalogAddress.of(self.stack).opened() as catalog:
            return problems(catalog) == []


@pytest.fixture(scope="module")
def server_behind(
    stacks: Stacks, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Stack, TcpProxy]]:
    with TcpProxy(("127.0.0.1", stacks.s3.port)) as proxy:
        settings = {**SETTINGS, "CALVE_S3_ENDPOINT": proxy.endpoint}
        with stacks.started("postgres-s3", tmp_path_factory.mktemp("behind"), settings) as stack:
            yield stack, proxy


@pytest.fixture
def behind(server_behind: tuple[Stack, TcpProxy]) -> Iterator[Behind]:
    stack, proxy = server_behind
    rest = Rest(stack.url)
    namespace = rest.fresh_namespace()
    for table in ("a", "b"):
        rest.create(namespace, table)
        rest.append(namespace, table)
    yield Behind(stack, proxy, rest, namespace)
    proxy.heal()


@contextlib.contextmanager
def _broken(behind: Behind, fault: Fault | None) -> Iterator[None]:
    if fault is None:
        behind.proxy.refuse()
    else:
        behind.proxy.fail(fault)
    try:
        yield
    finally:
        behind.proxy.heal()


@pytest.mark.parametrize("fault", [None, *FAULTS], ids=lambda fault: fault.name if fault else "REFUSE")
def test_a_commit_without_storage_surely_did_not_happen(behind: Behind, fault: Fault | None) -> None:
    rest, namespace = behind.rest, behind.namespace
    before = {table: rest.load(namespace, table) for table in ("a", "b")}
    bodies = {table: append_body(found["metadata"]) for table, found in before.items()}
    head = rest.head()
    with _broken(behind, fault):
        one = rest.commit(namespace, "a", bodies["a"])
        changes = {"table-changes": [identified(namespace, table, body) for table, body in bodies.items()]}
        both = rest.call("POST", rest.path("transactions/commit"), json=changes)
        made = rest.call(
            "POST", rest.namespace_path(namespace, "tables"), json={"name": "new", "schema": SCHEMA}
        )
        assert {table: rest.load(namespace, table) for table in ("a", "b")} == before
        assert rest.tables(namespace) == ["a", "b"]
    for answer in (one, both):
        assert (answer.status_code, answer.json()["error"]["type"]) == (409, "CommitFailedException")
    assert made.status_code == 503
    assert rest.head() == head
    assert behind.sound()
    # The same requests, once the store is back.
    assert rest.call("POST", rest.path("transactions/commit"), json=changes).status_code == 204
    assert rest.head() == head + 1
    assert (
        rest.load(namespace, "a")["metadata"]["current-snapshot-id"]
        == bodies["a"]["updates"][1]["snapshot-id"]
    )
    assert behind.sound()


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_that_passes_is_not_noticed(behind: Behind, fault: Fault) -> None:
    rest, namespace = behind.rest, behind.namespace
    for times in (1, 2):
        behind.proxy.fail(fault, times=times)
        rest.append(namespace, "a")
    assert behind.sound()


def test_a_replay_needs_no_storage(behind: Behind) -> None:
    """It landed and its answer was lost; the store is away when it is sent again."""
    rest, namespace = behind.rest, behind.namespace
    body = append_body(rest.load(namespace, "a")["metadata"])
    landed = rest.commit(namespace, "a", body).json()
    with _broken(behind, None):
        again = rest.commit(namespace, "a", body)
    assert (again.status_code, again.json()) == (200, landed)


def test_loads_go_on_while_many_commits_hang(behind: Behind) -> None:
    """Twenty loads are answered before the commits are done: they do not stand in one line with them."""
    rest, namespace = behind.rest, behind.namespace
    body = append_body(rest.load(namespace, "a")["metadata"])
    url = behind.stack.url + rest.table_path(namespace, "a")
    with ThreadPoolExecutor(HANGING_WRITERS) as pool:
        with _broken(behind, Fault.HANG):
            exchanges = behind.proxy.exchanges
            commits = [pool.submit(httpx.post, url, json=body, timeout=600) for _ in range(HANGING_WRITERS)]
            while behind.proxy.exchanges == exchanges:  # until the first of them hangs
                time.sleep(0.01)
            for _ in range(20):
                assert rest.call("GET", rest.table_path(namespace, "b")).status_code == 200
            still_hanging = sum(not commit.done() for commit in commits)
        statuses = {commit.result().status_code for commit in commits}
    assert still_hanging > HANGING_WRITERS // 2
    assert statuses <= {200, 409, 503, 504}  # one request many times: it lands once, or not at all
    assert behind.sound()
