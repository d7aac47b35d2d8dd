"""Every exception has one status and one form, whatever raises it."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import orjson
import pytest
from fastapi import FastAPI
from pydantic import BaseModel

from catalog.api.errors import add_exception_handlers
from catalog.errors import CommitStateUnknown, NoSuchTable, NotAuthorized, Unavailable
from catalog.identity.oauth import OAuthError
from catalog.identity.open import OpenIdentity


class Body(BaseModel):
    pages: int


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


RAISED: dict[str, Exception] = {
    "missing": NoSuchTable("Table does not exist: a.b"),
    "unknown": CommitStateUnknown("look before you retry"),
    "busy": Unavailable("try again", retry_after_s=7),
    "nobody": NotAuthorized("a valid bearer token is needed"),
    "oauth": OAuthError(401, "invalid_client", "the client id or the client secret is wrong"),
    "bug": RuntimeError("SELECT secret FROM principals"),
    "type": TypeError("SELECT secret FROM principals"),
}


def application() -> FastAPI:
    app = FastAPI(redirect_slashes=False)
    app.state.identity = OpenIdentity()
    add_exception_handlers(app)

    @app.get("/raise/{name}")
    def fail(name: str) -> None:
        raise RAISED[name]

    @app.get("/deep")
    def deep() -> None:
        orjson.dumps(nested(2000))

    @app.post("/body")
    def body(_body: Body) -> None: ...

    return app


def send(method: str, path: str, **options: Any) -> httpx.Response:
    async def scenario() -> httpx.Response:
        transport = httpx.ASGITransport(application(), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://calve") as http:
            return await http.request(method, path, **options)

    return asyncio.run(scenario())


@pytest.mark.parametrize(
    ("method", "path", "status", "type_"),
    [
        ("GET", "/raise/missing", 404, "NoSuchTableException"),
        ("GET", "/raise/unknown", 500, "CommitStateUnknownException"),
        ("GET", "/raise/busy", 503, "ServiceUnavailableException"),
        ("GET", "/raise/nobody", 401, "NotAuthorizedException"),
        ("GET", "/raise/bug", 500, "InternalServerError"),
        ("GET", "/raise/type", 500, "InternalServerError"),
        ("GET", "/deep", 400, "BadRequestException"),
        ("GET", "/nowhere", 404, "NotFoundException"),
        ("DELETE", "/deep", 405, "MethodNotAllowedException"),
    ],
)
def test_errors_have_icebergs_form(method: str, path: str, status: int, type_: str) -> None:
    response = send(method, path)
    error = response.json()["error"]
    assert (response.status_code, error["code"], error["type"]) == (status, status, type_)
    assert response.headers["content-type"] == "application/json"
    assert "secret" not in response.text


def test_headers_tell_clients_what_to_do() -> None:
    assert send("GET", "/raise/busy").headers["retry-after"] == "7"
    assert send("GET", "/raise/nobody").headers["www-authenticate"] == "Bearer"
    assert send("DELETE", "/deep").headers["allow"] == "GET"


def test_a_wrong_body_is_400_and_names_the_field() -> None:
    response = send("POST", "/body", json={"pages": "many"})
    assert response.status_code == 400
    assert response.json()["error"]["message"].startswith("body.pages: ")


def test_oauth_errors_have_oauths_form() -> None:
    response = send("GET", "/raise/oauth")
    assert response.status_code == 401
    assert response.json() == {
        "error": "invalid_client",
        "error_description": "the client id or the client secret is wrong",
    }
    assert response.headers["cache-control"] == "no-store"
