"""A subscription has the rights of its caller, from the first event to the last."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from catalog.models import Role
from tests.security.guarded import Guarded


def events(response: httpx.Response) -> Iterator[tuple[str, dict[str, object]]]:
    kind = ""
    for line in response.iter_lines():
        if line.startswith("event: "):
            kind = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield kind, json.loads(line.removeprefix("data: "))


@pytest.mark.parametrize("way", ["revoke", "disable", "delete"])
def test_a_stream_ends_when_its_caller_loses_its_rights(guarded: Guarded, way: str) -> None:
    principal = guarded.principal(f"p{uuid.uuid4().hex[:8]}", {"acme": Role.READER})
    maker = guarded.makers["acme"]
    with (
        guarded.client(principal) as http,
        http.stream("GET", "/subscribe", params={"warehouse": "acme"}) as response,
    ):
        assert response.status_code == 200
        found = events(response)
        assert next(found)[0] == "progress"
        maker.rest.fresh_namespace()
        assert next(found)[0] == "progress"
        if way == "revoke":
            guarded.principals.revoke(principal.name, "acme")
        elif way == "disable":
            guarded.principals.disable(principal.name)
        else:
            guarded.principals.delete(principal.name)
        kind, data = "", dict[str, object]()
        while kind != "error":
            maker.rest.fresh_namespace()
            kind, data = next(found)
        assert data["code"] == (404 if way == "revoke" else 401)
        assert list(found) == []


def test_others_warehouses_look_absent(guarded: Guarded) -> None:
    with guarded.client(guarded.reader) as http:
        for path, params in (("/subscribe", {"warehouse": "blue"}), ("/lake/v1/blue/changes", {})):
            answer = http.get(path, params={**params, "timeout-s": 0})
            absent = http.get(path.replace("blue", "dune"), params={"warehouse": "dune", "timeout-s": 0})
            assert answer.status_code == absent.status_code == 404
            assert answer.json() == json.loads(absent.text.replace("dune", "blue"))


def test_a_reader_may_subscribe_over_a_websocket_and_send_no_changes(guarded: Guarded) -> None:
    url = guarded.url.replace("http", "ws") + "/ws?warehouse="
    with connect(url + "acme", additional_headers=guarded.reader.header) as socket:
        socket.send(json.dumps({"type": "subscribe", "id": "a"}))
        assert json.loads(socket.recv(timeout=60))["type"] == "progress"
        event = {"sequence": 1, "timestamp": 1, "operation": "INSERT", "table": "n.t", "after": {}}
        batch = {"type": "cdc_batch", "sourceDoId": "x", "sequenceNumber": 1, "events": [event]}
        socket.send(json.dumps(batch))
        answer = json.loads(socket.recv(timeout=60))
        assert (answer["type"], answer["shouldRetry"]) == ("nack", True)
        assert "needs the role writer" in answer["errorMessage"]
    with (
        pytest.raises(InvalidStatus) as refusal,
        connect(url + "blue", additional_headers=guarded.reader.header),
    ):
        pass
    assert refusal.value.response.status_code == 404
