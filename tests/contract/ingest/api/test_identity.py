"""Who may bring changes where; signatures of webhooks; foreign web pages."""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from catalog.identity.oauth import Client, ClientCredentials
from catalog.identity.principals import PrincipalStore
from catalog.identity.tokens import TokenIdentity
from catalog.models import Role
from catalog.services.catalog import Catalog
from ingest.api import ApiSettings
from tests.contract.ingest.api.api_server import ApiServer, batch, event, events_in, new_warehouse, served

KEY = bytes(range(30))
SECRET = "whsec_" + base64.b64encode(KEY).decode()
BODY = b'{"id": 1}'


def signed(body: bytes, *, at_s: float | None = None, key: bytes = KEY) -> dict[str, str]:
    identity, timestamp = f"msg_{time.time_ns()}", str(int(at_s if at_s is not None else time.time()))
    text = f"{identity}.{timestamp}.".encode() + body
    digest = base64.b64encode(hmac.new(key, text, hashlib.sha256).digest()).decode()
    return {"webhook-id": identity, "webhook-timestamp": timestamp, "webhook-signature": f"v1,{digest}"}


def identity_of(catalog: Catalog) -> TokenIdentity:
    return TokenIdentity(catalog.database, 3600)


def token(server: ApiServer, name: str, roles: dict[str, Role]) -> dict[str, str]:
    """The header of a new principal."""
    secret = PrincipalStore(server.catalog.database).create(name, roles)
    grant = ClientCredentials(Client(name, secret), "catalog")
    issued = TokenIdentity(server.catalog.database, 3600).issue(grant)
    return {"Authorization": f"Bearer {issued['access_token']}"}


@pytest.fixture
def closed(tmp_path: Path, database: str | None) -> Iterator[ApiServer]:
    """A server that asks for tokens."""
    with served(tmp_path, database=database, identity=identity_of) as server:
        yield server


def refusal(server: ApiServer, headers: dict[str, str], query: str = "") -> int:
    """The status with which a WebSocket is refused; 101 if it is not."""
    try:
        with connect(f"{server.ws_url}{query}", additional_headers=headers):
            return 101
    except InvalidStatus as refused:
        told = orjson.loads(refused.response.body or b"{}")
        return int(told["error"]["code"])


def test_roles(closed: ApiServer) -> None:
    other = new_warehouse(closed.catalog)
    reader = token(closed, "reader", {"main": Role.READER})
    writer = token(closed, "writer", {"main": Role.WRITER})
    expected = {
        "": ({}, 401, 401, 401),
        "wrong": ({"Authorization": "Bearer calve_" + "x" * 43}, 401, 401, 401),
        "reader": (reader, 403, 200, 403),
        "writer": (writer, 202, 200, 200),
    }
    with httpx.Client(base_url=closed.url, timeout=60) as client:
        for headers, post, status, flush in expected.values():
            assert client.post("/cdc", json=[event(1)], headers=headers).status_code == post
            assert client.post("/topics/t", json=[event(1)], headers=headers).status_code in (post, 200)
            explained = client.post("/cdc/explain", json=[event(1)], headers=headers).status_code
            assert explained == (200 if post == 202 else post)
            assert client.get("/status", headers=headers).status_code == status
            assert client.get("/lake/v1/main/landed?token=main:0", headers=headers).status_code == status
            assert client.post("/flush", json={"wait": False}, headers=headers).status_code == flush
            assert refusal(closed, headers) == (101 if post == 202 else post)
        # A warehouse of others looks like one that is not there.
        answers = [
            client.post(f"/cdc?warehouse={name}", json=[event(1)], headers=writer)
            for name in (other, "nowhere")
        ]
        assert [answer.status_code for answer in answers] == [404, 404]
        assert answers[0].text.replace(other, "nowhere") == answers[1].text
        assert refusal(closed, writer, f"?warehouse={other}") == 404


def test_a_revoked_token_ends_the_connection(closed: ApiServer) -> None:
    headers = token(closed, "writer", {"main": Role.WRITER})
    with connect(closed.ws_url, additional_headers=headers) as socket:
        socket.send(batch(1, [event(1)]))
        assert orjson.loads(socket.recv())["type"] == "ack"
        PrincipalStore(closed.catalog.database).disable("writer")
        socket.send(batch(2, [event(2)]))
        assert orjson.loads(socket.recv())["type"] == "nack"
        with pytest.raises(ConnectionClosed) as ended:
            socket.recv()
        assert ended.value.rcvd is not None
        assert ended.value.rcvd.code == 1008
    assert len(events_in(closed.journal, "main")) == 1


def test_an_open_server_with_a_secret_takes_signed_requests_only(tmp_path: Path) -> None:
    with served(tmp_path, settings=ApiSettings(webhook_secret=SECRET)) as server:
        with httpx.Client(base_url=server.url, timeout=60) as client:

            def post(headers: dict[str, str]) -> Any:
                return client.post("/cdc/n/t", content=BODY, headers=headers).status_code

            assert post(signed(BODY)) == 202
            assert post({}) == 401
            assert post({"Authorization": "Bearer whatever"}) == 401
            assert post(signed(b"another")) == 401
            assert post(signed(BODY, key=b"x" * 30)) == 401
            assert post(signed(BODY, at_s=time.time() - 301)) == 401
        assert len(events_in(server.journal, "main")) == 1


def test_with_tokens_a_signature_alone_is_enough_for_its_warehouse(tmp_path: Path) -> None:
    settings = ApiSettings(webhook_secret=SECRET)
    with served(tmp_path, settings=settings, identity=identity_of) as server:
        other = new_warehouse(server.catalog)
        writer = token(server, "writer", {"*": Role.WRITER})
        with httpx.Client(base_url=server.url, timeout=60) as client:
            assert client.post("/cdc/n/t", content=BODY, headers=signed(BODY)).status_code == 202
            assert client.post("/cdc/n/t", content=BODY, headers=writer).status_code == 202
            assert client.post("/cdc/n/t", content=BODY).status_code == 401
            wrong = {**signed(b"x"), **writer}
            assert client.post("/cdc/n/t", content=BODY, headers=wrong).status_code == 401
            elsewhere = client.post(f"/cdc/n/t?warehouse={other}", content=BODY, headers=signed(BODY))
            assert elsewhere.status_code == 404


def test_a_web_page_of_another_site_cannot_connect(tmp_path: Path) -> None:
    with served(tmp_path) as server:
        assert refusal(server, {"Origin": "http://evil.example"}) == 403
        assert refusal(server, {"Origin": "http://localhost:3000"}) == 101
        assert refusal(server, {}) == 101


@pytest.mark.parametrize(
    "path",
    [
        "/lake/v1/main/landed",
        "/lake/v1/main/landed?token=x",
        "/lake/v1/main/landed?token=main:1&wait-s=x",
        "/lake/v1/main/landed?token=other:1",
        "/lake/v1/%2E%2E/landed?token=main:1",
        "/status?warehouse=..",
    ],
)
def test_the_caller_is_checked_before_the_parameters(closed: ApiServer, path: str) -> None:
    with httpx.Client(base_url=closed.url) as client:
        assert client.get(path).status_code == 401
        assert client.get(path, headers=token(closed, "reader", {"*": Role.READER})).status_code in (400, 404)
