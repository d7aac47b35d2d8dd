"""A web page in somebody's browser must not reach a server that asks for no tokens.

Its requests show it: cross-site ones carry an `Origin`, and those of a page whose name was bound to 127.0.0.1
(DNS rebinding) carry that name as `Host`.
"""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from tests.harness.rest import Rest
from tests.harness.server import CalveServer
from tests.harness.stacks import Stack
from tests.security.raw_http import ask

FOREIGN = [
    {"origin": "https://evil.example"},
    {"origin": "null"},
    {"origin": "http://127.0.0.1.evil.example"},
    {"host": "evil.example"},
    {"host": "evil.example", "origin": "http://evil.example"},
]


@pytest.fixture
def rest(stack: Stack) -> Rest:
    return Rest(stack.url)


@pytest.mark.parametrize("headers", FOREIGN)
def test_an_open_server_refuses_a_foreign_page(rest: Rest, headers: dict[str, str]) -> None:
    before = rest.head()
    requests = [
        ("POST", rest.path("namespaces"), {"namespace": ["from_a_page"]}),
        ("POST", "/lake/v1/main/transactions", {"name": "page"}),
        ("GET", rest.path("namespaces"), None),
        ("GET", "/lake/v1/warehouses", None),
        ("GET", "/health", None),
        ("OPTIONS", rest.path("namespaces"), None),
    ]
    for method, path, body in requests:
        # As a form or `no-cors` sends it: a type that needs no question beforehand.
        answer = rest.call(method, path, json=body, headers={**headers, "content-type": "text/plain"})
        assert (path, answer.status_code) == (path, 403)
        assert answer.json()["error"]["type"] == "ForbiddenException"
        assert "access-control-allow-origin" not in answer.headers
    assert rest.head() == before


@pytest.mark.parametrize("origin", ["http://127.0.0.1:3000", "http://localhost:8181", "http://[::1]"])
def test_a_page_of_this_machine_is_heard(rest: Rest, origin: str) -> None:
    assert rest.call("GET", rest.path("namespaces"), headers={"origin": origin}).status_code == 200


def test_the_public_name_is_heard(tmp_path: Path) -> None:
    with CalveServer.started(tmp_path, {"CALVE_BASE_URL": "http://lake.example:8181"}) as server:
        path = f"{server.url}/v1/config"
        assert httpx.get(path, headers={"host": "lake.example:8181"}).status_code == 200
        refused = httpx.get(path, headers={"host": "other.example:8181"})
        assert refused.status_code == 403
        assert "base_url" in refused.json()["error"]["message"]


def test_a_program_that_sends_no_host_is_heard(stack: Stack) -> None:
    answer = ask(stack.server.port, b"GET /health HTTP/1.0\r\n\r\n")
    assert answer.status == 200


def test_with_tokens_names_do_not_matter(tmp_path: Path) -> None:
    """The token is the proof, and a page has none."""
    with CalveServer.started(tmp_path, {"CALVE_AUTH": "tokens"}) as server:
        headers = {"host": "lake.example", "origin": "https://page.example"}
        assert httpx.get(f"{server.url}/health", headers=headers).status_code == 200
        assert httpx.get(f"{server.url}/v1/config", headers=headers).status_code == 401
