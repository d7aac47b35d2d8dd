"""The door says of itself what it does: every route is described, and answers are as described."""

from __future__ import annotations

from typing import Any

import httpx
import jsonschema
import pytest
from fastapi import FastAPI
from openapi_spec_validator import validate

from calve.openapi import lake_document
from tests.contract.ingest.door.door_server import DoorServer, event


@pytest.fixture
def document(server: DoorServer) -> dict[str, Any]:
    app = FastAPI(title="test", version="1")
    app.include_router(server.door.router)
    server.door.describe_in(app)
    return lake_document(app)


def test_it_is_a_document_of_openapi(document: dict[str, Any]) -> None:
    validate(document)


def test_every_route_is_in_it(server: DoorServer, document: dict[str, Any]) -> None:
    served = {route.path for route in server.door.routes}
    served |= {route.path for route in server.door.router.routes}  # type: ignore[attr-defined]
    assert served == set(document["paths"])
    operations = [node["operationId"] for item in document["paths"].values() for node in item.values()]
    assert len(set(operations)) == len(operations)


def test_asking_twice_gives_the_same(server: DoorServer) -> None:
    app = FastAPI(title="test", version="1")
    app.include_router(server.door.router)
    server.door.describe_in(app)
    assert lake_document(app) == lake_document(app)


@pytest.mark.parametrize(
    ("path", "operation", "body"),
    [
        ("/cdc", "/cdc", [event(1)]),
        ("/cdc?verbose=1", "/cdc", [event(2), {"bad": True}]),
        ("/cdc?wait=commit&timeout_s=0", "/cdc", [event(3)]),
        ("/cdc", "/cdc", []),
        ("/cdc?wait=x", "/cdc", [event(3)]),
        ("/cdc/n/t", "/cdc/{namespace}/{table}", {"id": 1}),
        ("/cdc/explain", "/cdc/explain", [event(4)]),
        ("/cdc/explain/n/t", "/cdc/explain/{namespace}/{table}", {"id": 1}),
        ("/topics/t", "/topics/{topic}", {"records": [{"value": {"id": 1}}]}),
        ("/topics/t?wait=commit&timeout_s=0", "/topics/{topic}", {"records": [{"value": {"id": 2}}]}),
        ("/flush", "/flush", {"wait": False}),
        ("/flush", "/flush", {"timeout_s": 0}),
    ],
)
def test_answers_are_as_described(
    document: dict[str, Any], client: httpx.Client, path: str, operation: str, body: Any
) -> None:
    answer = client.post(path, json=body)
    responses = document["paths"][operation]["post"]["responses"]
    response = responses[str(answer.status_code)]
    schema = response["content"][answer.headers["content-type"]]["schema"]
    jsonschema.validate(answer.json(), {**schema, "components": document["components"]})
