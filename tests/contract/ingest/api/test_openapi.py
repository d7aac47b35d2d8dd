"""Every route is described, and responses are as described."""

from __future__ import annotations

from typing import Any

import httpx
import jsonschema
import pytest
from fastapi.routing import APIRoute
from openapi_spec_validator import validate

from calve.openapi import lake_document
from ingest.api import routers
from tests.contract.ingest.api.api_server import ApiServer, event, web_app


@pytest.fixture
def document(server: ApiServer) -> dict[str, Any]:
    return lake_document(web_app(server.api))


def test_it_is_a_document_of_openapi(document: dict[str, Any]) -> None:
    validate(document)


def test_every_route_is_in_it(document: dict[str, Any]) -> None:
    served = {route.path for router in routers() for route in router.routes if isinstance(route, APIRoute)}
    assert served == set(document["paths"])
    operations = [node["operationId"] for item in document["paths"].values() for node in item.values()]
    assert len(set(operations)) == len(operations)


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
def test_responses_match_their_description(
    document: dict[str, Any], client: httpx.Client, path: str, operation: str, body: Any
) -> None:
    answer = client.post(path, json=body)
    responses = document["paths"][operation]["post"]["responses"]
    response = responses[str(answer.status_code)]
    schema = response["content"][answer.headers["content-type"]]["schema"]
    jsonschema.validate(answer.json(), {**schema, "components": document["components"]})
