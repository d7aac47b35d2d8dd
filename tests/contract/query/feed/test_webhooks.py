"""Webhooks: signed requests in order, repeated until they are accepted, by one server process at a time."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sa

from catalog.store.schema import history, webhooks
from tests.contract.query.feed.feed_lake import FeedLake
from tests.contract.query.feed.test_refetch import finished_job
from tests.harness.stacks import STACKS, Stack, StackName, Stacks


@dataclass
class Received:
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body)
        return found

    @property
    def ids(self) -> list[int]:
        return [(one["after"] or one["before"])["id"] for one in self.json["data"]["changes"]]


@dataclass
class Receiver:
    """An HTTP server that answers as a test says."""

    status: int = 204
    requests: list[Received] = field(default_factory=list)
    url: str = ""

    def accepted(self) -> list[Received]:
        return [one for one in self.requests if one.headers["x-answered"] == "204"]

    def wait_for(self, holds: Callable[[], bool], timeout_s: float = 60) -> None:
        until_s = time.monotonic() + timeout_s
        while not holds():
            assert time.monotonic() < until_s, [one.json for one in self.requests]
            time.sleep(0.02)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    found = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            found.requests.append(Received(headers | {"x-answered": str(found.status)}, body))
            self.send_response(found.status)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Nothing on stderr."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        found.url = f"http://127.0.0.1:{server.server_port}/hook?x=1"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield found
        server.shutdown()
        thread.join()


@pytest.fixture(params=STACKS)
def lake(request: pytest.FixtureRequest, stacks: Stacks, tmp_path: Path) -> Iterator[FeedLake]:
    """A server that may post to this machine."""
    settings = {"CALVE_WEBHOOK_PRIVATE_ADDRESSES": "true"}
    with stacks.started(request.param, tmp_path / "own", settings) as stack:
        yield FeedLake.on(stack)


def call(stack: Stack, method: str, path: str = "", **body: Any) -> Any:
    url = f"{stack.url}/lake/v1/main/webhooks{path}"
    answer = httpx.request(method, url, json=body or None, timeout=60)
    assert answer.is_success, answer.text
    return answer.json() if answer.content else None


def refused(stack: Stack, **body: Any) -> dict[str, Any]:
    answer = httpx.post(f"{stack.url}/lake/v1/main/webhooks", json=body, timeout=60)
    error: dict[str, Any] = answer.json()["error"]
    return error


def is_signed(one: Received, secret: str) -> bool:
    key = base64.b64decode(secret.removeprefix("whsec_"))
    text = f"{one.headers['webhook-id']}.{one.headers['webhook-timestamp']}.".encode() + one.body
    digest = base64.b64encode(hmac.new(key, text, hashlib.sha256).digest()).decode()
    return one.headers["webhook-signature"] == f"v1,{digest}"


def test_changes_are_posted_in_order_and_repeated_until_accepted(lake: FeedLake, receiver: Receiver) -> None:
    lake.create("orders", "items")
    made = call(lake.stack, "POST", url=receiver.url, tables=[lake.name("orders")])
    assert made["state"] == "active"
    lake.publish({"orders": [("insert", 1, "new"), ("insert", 2, "new")], "items": [("insert", 9, "new")]})
    receiver.wait_for(lambda: len(receiver.requests) == 1)
    first = receiver.requests[0]
    assert first.ids == [1, 2]
    assert first.json["type"] == "changes"
    assert is_signed(first, made["secret"])
    receiver.status = 503
    lake.publish({"orders": [("update", 1, "paid")]})
    receiver.wait_for(lambda: len(receiver.requests) == 2)
    lake.publish({"orders": [("update", 1, "sent"), ("delete", 2, None)]})
    [shown] = call(lake.stack, "GET")["webhooks"]
    receiver.wait_for(lambda: call(lake.stack, "GET", f"/{made['id']}")["attempts"] > 0)
    receiver.status = 204
    call(lake.stack, "POST", f"/{made['id']}/resume")  # without the pause
    receiver.wait_for(lambda: sum(len(one.ids) for one in receiver.accepted()) >= 5)
    assert [id_ for one in receiver.accepted() for id_ in one.ids] == [1, 2, 1, 1, 2]
    failed, again = receiver.requests[1], receiver.requests[2]
    assert failed.headers["webhook-id"] == again.headers["webhook-id"]
    assert first.headers["webhook-id"] != again.headers["webhook-id"]
    assert "secret" not in shown
    done = call(lake.stack, "GET", f"/{made['id']}")
    assert (done["attempts"], done["last_error"]) == (0, None)
    # A server that stops gives up its claim, and the next one goes on at once where it was.
    lake.stack.server.stop()
    with database(lake.stack) as connection:
        claimed = sa.select(webhooks.c.claim, webhooks.c.claimed_until_ms)
        assert connection.execute(claimed.where(webhooks.c.id == made["id"])).one() == ("", 0)
    lake.stack.server.start()
    lake.publish({"orders": [("insert", 3, "new")]})
    receiver.wait_for(lambda: receiver.accepted()[-1].ids == [3])
    call(lake.stack, "DELETE", f"/{made['id']}")
    assert call(lake.stack, "GET")["webhooks"] == []


def test_a_dead_webhook_is_listed_and_can_be_resumed(lake: FeedLake, receiver: Receiver) -> None:
    lake.create("orders")
    made = call(lake.stack, "POST", url=receiver.url)
    receiver.status = 410  # the receiver wants no more
    lake.publish({"orders": [("insert", 1, "new")]})
    receiver.wait_for(lambda: call(lake.stack, "GET")["webhooks"][0]["state"] == "dead")
    lake.publish({"orders": [("insert", 2, "new")]})
    [dead] = call(lake.stack, "GET")["webhooks"]
    assert "410" in dead["last_error"]
    assert len(receiver.requests) == 1
    receiver.status = 204
    tested = call(lake.stack, "POST", f"/{made['id']}/test")
    assert (tested["accepted"], tested["status"]) == (True, 204)
    assert receiver.requests[-1].json["type"] == "test"
    assert call(lake.stack, "POST", f"/{made['id']}/resume")["state"] == "active"
    receiver.wait_for(lambda: [id_ for one in receiver.accepted() for id_ in one.ids] == [1, 2])
    # Or from now on.
    receiver.status = 410
    lake.publish({"orders": [("insert", 3, "new")]})
    receiver.wait_for(lambda: call(lake.stack, "GET")["webhooks"][0]["state"] == "dead")
    receiver.status = 204
    call(lake.stack, "POST", f"/{made['id']}/resume", **{"from": "now"})
    lake.publish({"orders": [("insert", 4, "new")]})
    receiver.wait_for(lambda: [id_ for one in receiver.accepted() for id_ in one.ids] == [1, 2, 4])


HASTY = {
    "CALVE_WEBHOOK_PRIVATE_ADDRESSES": "true",
    "CALVE_KEPT_MOMENTS": "all:500ms",  # so history rows are deleted after three seconds
    "CALVE_MAINTENANCE_INTERVAL_S": "0.2",
    "CALVE_READER_PIN_S": "1",
    "CALVE_READER_GRACE_S": "0",
}


@pytest.mark.parametrize("name", STACKS)
def test_a_receiver_may_be_down_for_longer_than_the_history_is_kept(
    stacks: Stacks, tmp_path: Path, receiver: Receiver, name: StackName
) -> None:
    with stacks.started(name, tmp_path / "hasty", HASTY) as stack:
        lake = FeedLake.on(stack)
        lake.create("orders")
        receiver.status = 503
        made = call(stack, "POST", url=receiver.url)
        for number in range(3):
            published = lake.publish({"orders": [("insert", number, "new")]})
            finished_job(lake, published, lake.commit_us, "orders")
        receiver.wait_for(lambda: metric(stack, 'calve_webhook_requests_total{result="failed"}') > 0)
        # Rows of another warehouse that are younger, and that no webhook needs, are deleted.
        url = f"{stack.url}/lake/v1/warehouses"
        httpx.post(url, json={"name": "without"}, timeout=60).raise_for_status()
        other = FeedLake.on(stack, "without")
        other.create("orders")
        first = other.publish({"orders": [("insert", 1, "new")]})
        other.publish({"orders": [("insert", 2, "new")]})

        def is_deleted() -> bool:
            for warehouse in ("main", "without"):  # maintenance is due after a commit
                body = {"namespace": [f"n{time.time_ns()}"]}
                httpx.post(f"{stack.url}/v1/{warehouse}/namespaces", json=body).raise_for_status()
            return first not in numbers_of(other)

        receiver.wait_for(is_deleted)
        receiver.wait_for(lambda: metric(stack, "calve_webhook_lag_seconds") > 0)
        receiver.status = 204
        call(stack, "POST", f"/{made['id']}/resume")
        receiver.wait_for(lambda: [id_ for one in receiver.accepted() for id_ in one.ids] == [0, 1, 2])
        assert metric(stack, 'calve_feed_changes_total{transport="webhook"}') == 3
        receiver.wait_for(lambda: metric(stack, "calve_webhook_lag_seconds") == 0)
        assert metric(stack, 'calve_webhooks{state="active"}') == 1


def numbers_of(lake: FeedLake) -> set[int]:
    """The numbers of the changes of `orders` that the history has."""
    with database(lake.stack) as connection:
        found = sa.select(history.c.number).where(
            history.c.warehouse == lake.warehouse, history.c.name == "orders"
        )
        return set(connection.execute(found).scalars())


@contextlib.contextmanager
def database(stack: Stack) -> Iterator[sa.Connection]:
    engine = sa.create_engine(stack.database.replace("postgresql://", "postgresql+psycopg://"))
    with engine.connect() as connection:
        yield connection
    engine.dispose()


def metric(stack: Stack, name: str) -> float:
    lines = httpx.get(f"{stack.url}/metrics", timeout=60).text.splitlines()
    return float(next((line.split()[-1] for line in lines if line.startswith(f"{name} ")), "0"))


def test_the_database_does_not_have_the_secret(stack: Stack) -> None:
    made = call(stack, "POST", url="https://localhost:1/")
    with database(stack) as connection:
        row = connection.execute(sa.select(webhooks).where(webhooks.c.id == made["id"])).one()
    call(stack, "DELETE", f"/{made['id']}")
    assert made["secret"].removeprefix("whsec_") not in repr(row)


def test_postgresql_needs_a_key(stacks: Stacks, tmp_path: Path) -> None:
    """Otherwise each server process would have one of its own."""
    with stacks.started("postgres-s3", tmp_path, {"CALVE_WEBHOOK_KEY": ""}) as stack:
        error = refused(stack, url="https://example.com/")
        assert (error["code"], "webhook_key" in error["message"]) == (400, True)


def test_only_one_of_several_processes_delivers(stacks: Stacks, tmp_path: Path, receiver: Receiver) -> None:
    settings = {"CALVE_WEBHOOK_PRIVATE_ADDRESSES": "true", "CALVE_WORKERS": "2"}
    with stacks.started("embedded", tmp_path / "two", settings) as stack:
        lake = FeedLake.on(stack)
        lake.create("orders")
        call(stack, "POST", url=receiver.url)
        for number in range(5):
            lake.publish({"orders": [("insert", number, "new")]})
        receiver.wait_for(lambda: len(receiver.requests) >= 5)
        lake.publish({"orders": [("insert", 5, "new")]})
        receiver.wait_for(lambda: receiver.requests[-1].ids == [5])
        assert [id_ for one in receiver.requests for id_ in one.ids] == list(range(6))


def test_private_addresses_are_refused(stack: Stack) -> None:
    assert "https" in refused(stack, url="http://127.0.0.1/x")["message"]
    assert "https" in refused(stack, url="ftp://example.com/")["message"]
    assert "user" in refused(stack, url="https://a:b@example.com/")["message"]
    assert "secret" in refused(stack, url="https://example.com/", secret="short")["message"]
    assert "namespace.table" in refused(stack, url="https://example.com/", tables=["x"])["message"]
    with contextlib.closing(httpx.Client(base_url=stack.url, timeout=60)) as client:
        made = client.post("/lake/v1/main/webhooks", json={"url": "https://localhost:1/"}).json()
        tested = client.post(f"/lake/v1/main/webhooks/{made['id']}/test").json()
        assert tested["accepted"] is False
        assert "private address" in tested["message"]
        assert client.delete(f"/lake/v1/main/webhooks/{made['id']}").status_code == 204
        assert client.get(f"/lake/v1/main/webhooks/{made['id']}").status_code == 404
