"""`calve worker` as docs/worker.md tells an operator to start it, against a server that requires tokens."""

from __future__ import annotations

import os
from pathlib import Path

import httpx
import pytest

from tests.harness import components
from tests.harness.process import Child
from tests.harness.server import environment
from tests.harness.stacks import Stack, Stacks
from tests.pipeline.worker import START_S

pytestmark = pytest.mark.xdist_group("pipeline")


def test_a_worker_with_a_credential_lands_changes(stacks: Stacks, tmp_path: Path) -> None:
    with stacks.started("embedded", tmp_path, {"CALVE_AUTH": "tokens"}) as stack:
        secret = _create(stack, "lander", "--role", "writer", "--warehouse", "all")
        credential = f"lander:{secret}"
        variables = {"CALVE_WORKER_CREDENTIAL": credential, "CALVE_JARS": os.environ["CALVE_JARS"]}
        words = [str(components.calve()), "worker", "--uri", stack.url, "--spark-master", "local[2]"]
        log = tmp_path / "worker.log"
        worker = Child(words, log=log, environment=environment(variables), folder=tmp_path)
        with httpx.Client(base_url=stack.url, headers=_bearer(stack, credential), timeout=120) as client:
            try:
                worker.start(lambda: bool(_workers(client)), timeout_s=START_S)
                event = {"sequence": 1, "timestamp": 1, "operation": "INSERT", "table": "shop.orders"}
                events = [{**event, "rowId": "1", "after": {"id": 1}}]
                sent = client.post("/cdc", params={"wait": "commit"}, json={"events": events})
                assert (sent.status_code, sent.json()["eventsAccepted"]) == (200, 1), sent.text
                assert client.get("/v1/main/namespaces/shop/tables/orders").status_code == 200
            finally:
                worker.kill()
        assert secret not in log.read_text()


def _create(stack: Stack, *words: str) -> str:
    created = stack.server.command("principal", "create", *words)
    assert created.returncode == 0, created.stderr
    return created.stdout.strip()


def _bearer(stack: Stack, credential: str) -> dict[str, str]:
    name, _, secret = credential.partition(":")
    form = {"grant_type": "client_credentials", "client_id": name, "client_secret": secret}
    token = httpx.post(f"{stack.url}/v1/oauth/tokens", data=form, timeout=60).json()["access_token"]
    return {"authorization": f"Bearer {token}"}


def _workers(client: httpx.Client) -> list[object]:
    """The workers that have asked the server for a batch."""
    found: list[object] = client.get("/status").json()["landing"]["workers"]
    return found
