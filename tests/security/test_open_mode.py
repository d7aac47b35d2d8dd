"""A server without tokens serves this machine only, and nothing but an explicit choice makes one."""

from __future__ import annotations

import socket
from pathlib import Path

import httpx
import pytest

from tests.harness.server import CalveServer
from tests.harness.stacks import Stack

OUTSIDE = ["0.0.0.0", "::", "10.0.0.1", "example.com", "127.0.0.1.evil.example", "*"]


@pytest.mark.parametrize("host", OUTSIDE)
def test_open_mode_refuses_every_address_but_loopback(tmp_path: Path, host: str) -> None:
    ended = CalveServer(tmp_path, {"CALVE_HOST": host}).command("serve", timeout_s=60)
    assert ended.returncode == 2, ended.stdout + ended.stderr
    assert "Traceback" not in ended.stderr
    assert len(ended.stderr.strip().splitlines()) == 1, ended.stderr
    assert not (tmp_path / "lake" / "catalog.db").exists()


def test_the_flag_is_refused_like_the_variable(tmp_path: Path) -> None:
    ended = CalveServer(tmp_path).command("serve", "--host", "0.0.0.0", timeout_s=60)
    assert ended.returncode == 2
    assert "auth" in ended.stderr


def test_with_tokens_every_address_is_allowed(tmp_path: Path) -> None:
    with CalveServer.started(tmp_path, {"CALVE_HOST": "0.0.0.0", "CALVE_AUTH": "tokens"}) as server:
        assert httpx.get(f"{server.url}/v1/config", timeout=30).status_code == 401


def test_a_request_without_a_token_is_told_how_to_get_one(tmp_path: Path) -> None:
    with CalveServer.started(tmp_path, {"CALVE_AUTH": "tokens"}) as server:
        refused = httpx.get(f"{server.url}/v1/config", timeout=30)
        message = refused.json()["error"]["message"]
        assert refused.status_code == 401
        assert "/v1/oauth/tokens" in message
        assert "calve principal create NAME --role" in message
        created = server.command("principal", "create", "ci", "--role", "writer")
        secret = created.stdout.strip()
        form = {"grant_type": "client_credentials", "client_id": "ci", "client_secret": secret}
        token = httpx.post(f"{server.url}/v1/oauth/tokens", data=form, timeout=30).json()["access_token"]
        headers = {"Authorization": f"Bearer {token}"}
        assert httpx.get(f"{server.url}/v1/config", headers=headers, timeout=30).status_code == 200


def test_an_open_server_listens_on_loopback_only(stack: Stack) -> None:
    addresses = {info[4][0] for info in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)}
    for address in sorted(str(address) for address in addresses if not str(address).startswith("127.")):
        with socket.socket() as probe:
            probe.settimeout(5)
            assert probe.connect_ex((address, stack.server.port)) != 0


def test_an_open_server_issues_no_tokens(stack: Stack) -> None:
    form = {"grant_type": "client_credentials", "client_id": "root", "client_secret": "x"}
    answer = httpx.post(f"{stack.url}/v1/oauth/tokens", data=form, timeout=30)
    assert (answer.status_code, answer.json()["error"]) == (400, "unauthorized_client")
