"""Secrets are shown to nobody: not in logs, metrics, configuration, errors, nor by `calve config`."""

from __future__ import annotations

import base64
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.harness.postgres import PostgresServer
from tests.harness.server import CalveServer
from tests.harness.stacks import Stacks

CANARY = "canary4f9c1e"
LOG_TIMEOUT_S = 30
DATABASE_PASSWORD = "canary7d20aa%2Fx"


@dataclass(frozen=True, slots=True)
class Watched:
    """A server whose every secret is known to the test."""

    server: CalveServer
    secret: str  # of the principal `root`
    token: str
    s3_secret: str


@pytest.fixture(scope="module")
def watched(stacks: Stacks, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    folder = tmp_path_factory.mktemp("watched")
    # The PostgreSQL of the tests trusts this machine, so it takes any password.
    database = stacks.postgres.database().replace("@", f":{DATABASE_PASSWORD}@")
    settings = {"CALVE_AUTH": "tokens", "CALVE_LOG_LEVEL": "debug", "CALVE_DATABASE": database}
    with stacks.started("postgres-s3", folder, settings) as stack:
        assert stack.s3 is not None
        created = stack.server.command("principal", "create", "root", "--role", "admin", "--warehouse", "all")
        assert created.returncode == 0, created.stderr
        secret = created.stdout.strip()
        form = {"grant_type": "client_credentials", "client_id": "root", "client_secret": secret}
        answer = httpx.post(f"{stack.url}/v1/oauth/tokens", data=form, timeout=60)
        token = answer.json()["access_token"]
        yield Watched(stack.server, secret, token, stack.s3.secret_access_key)


def _carriers(secret: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Requests that all carry a secret where clients really put one, and all go wrong in some way."""
    basic = base64.b64encode(f"root:{secret}".encode()).decode()
    form = {"grant_type": "client_credentials", "client_id": "root", "client_secret": secret}
    yield "GET /v1/config", {"headers": {"Authorization": f"Bearer {secret}"}}
    yield "GET /v1/config", {"headers": {"Authorization": f"Basic {basic}"}}
    yield f"GET /v1/config?warehouse=main&token={secret}&access_token={secret}", {}
    yield f"GET /v1/nowhere?client_secret={secret}", {}
    yield "GET /lake/v1/warehouses", {"headers": {"Authorization": f"Bearer {secret}"}}
    yield "GET /v1/config", {"headers": {"Cookie": f"session={secret}", "X-Api-Key": secret}}
    yield "POST /v1/oauth/tokens", {"data": form}
    yield "POST /v1/oauth/tokens", {"data": form | {"grant_type": "password", "password": secret}}
    yield "POST /v1/oauth/tokens", {"json": form}
    yield "POST /v1/oauth/tokens", {"content": f"client_secret={secret}&%ff".encode(), "headers": _FORM}
    yield "POST /v1/oauth/tokens", {"data": form, "headers": {"Authorization": f"Basic {basic}x"}}
    yield "POST /v1/oauth/tokens", {"data": _exchange(secret)}
    yield "POST /v1/main/namespaces", {"content": f'{{"namespace": ["x"], "secret": "{secret}" '.encode()}
    yield "POST /v1/main/namespaces", {"content": f'"{secret}"'.encode()}


_FORM = {"Content-Type": "application/x-www-form-urlencoded"}


def _exchange(secret: str) -> dict[str, str]:
    return {
        "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
        "subject_token": secret,
        "subject_token_type": "urn:ietf:params:oauth:token-type:access_token",
    }


def _sent(watched: Watched, secret: str, *, authorized: bool) -> list[str]:
    """Everything that was answered to requests which carry the secret."""
    texts = []
    with httpx.Client(base_url=watched.server.url, timeout=60) as http:
        for line, options in _carriers(secret):
            method, path = line.split(" ")
            headers = {"Authorization": f"Bearer {watched.token}"} if authorized else {}
            headers |= options.pop("headers", {})
            answer = http.request(method, path, headers=headers, **options)
            assert answer.status_code < 500, answer.text
            if not answer.is_success:
                texts += [answer.text, str(dict(answer.headers))]
        headers = {"Authorization": f"Bearer {watched.token}"}
        texts.append(http.get("/metrics").text)
        texts.append(http.get("/v1/config", headers=headers).text)
        texts.append(http.get("/lake/v1/main/events", headers=headers).text)
        texts.append(http.get("/ready").text)
    return texts


def _log(server: CalveServer) -> str:
    """The log, with the line of a request that is made now: so all lines before it are there too."""
    last = httpx.get(f"{server.url}/v1/nowhere", timeout=60).headers["x-request-id"]
    until_s = time.monotonic() + LOG_TIMEOUT_S
    while last not in (text := Path(server.log).read_text()):
        assert time.monotonic() < until_s, "a request that failed is not in the log"
        time.sleep(0.05)
    return text


@pytest.mark.parametrize("authorized", [False, True])
def test_a_secret_that_a_client_sends_is_repeated_nowhere(watched: Watched, authorized: bool) -> None:
    canary = f"calve_secret_{CANARY}{uuid.uuid4().hex}"
    encoded = base64.b64encode(f"root:{canary}".encode()).decode()
    texts = _sent(watched, canary, authorized=authorized)
    for text in (*texts, _log(watched.server)):
        assert CANARY not in text
        assert encoded not in text


def test_the_secrets_of_the_server_are_repeated_nowhere(watched: Watched) -> None:
    texts = [*_sent(watched, watched.token, authorized=True), _log(watched.server)]
    shown = watched.server.command("config")
    assert shown.returncode == 0
    texts += [shown.stdout, shown.stderr]
    for text in texts:
        assert watched.token not in text
        assert watched.secret not in text
        assert f'"{watched.s3_secret}"' not in text
        assert f"={watched.s3_secret}" not in text
        assert DATABASE_PASSWORD[:12] not in text


def test_a_database_that_fails_is_not_quoted(
    postgres: PostgresServer, stacks: Stacks, tmp_path: Path
) -> None:
    """Drivers put the whole address into their errors."""
    host = postgres.database().split("@")[1]
    settings = {"CALVE_DATABASE": f"postgresql://{CANARY}user:{CANARY}secret@{host}x"}
    server = CalveServer(tmp_path, settings)
    ended = server.command("serve")
    assert ended.returncode == 1
    assert f"{CANARY}secret" not in ended.stdout + ended.stderr
    assert "Traceback" not in ended.stderr


def test_properties_that_look_like_credentials_are_not_logged(watched: Watched) -> None:
    """Some put keys into table properties. They get them back, but they do not enter the log."""
    headers = {"Authorization": f"Bearer {watched.token}"}
    canary = f"{CANARY}{uuid.uuid4().hex}"
    with httpx.Client(base_url=watched.server.url, headers=headers, timeout=60) as http:
        properties = {"s3.secret-access-key": canary, "location": "file:///outside"}
        answer = http.post("/v1/main/namespaces", json={"namespace": ["x"], "properties": properties})
        assert answer.status_code == 400
        assert canary not in answer.text
    assert canary not in _log(watched.server)
