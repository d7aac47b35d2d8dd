"""What `openapi/iceberg-rest.yaml` contains for each operation of the Iceberg REST specification.

    @router.get(TABLE, operation_id="loadTable", **spec.operation("LoadTableResponse", errors=spec.NO_TABLE))

`operation` returns keyword arguments for a route decorator. All names are names under `components` of that
file, and become `$ref`s in the `openapi_extra` of the route. Its `parameters`, `requestBody` and `responses`
are complete and replace those that FastAPI would generate.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from fastapi import Response
from fastapi.routing import APIRoute, iter_route_contexts
from starlette.routing import BaseRoute

PREFIX: Final = "/v1/{prefix}"
NAMESPACE: Final = f"{PREFIX}/namespaces/{{namespace}}"
TABLE: Final = f"{NAMESPACE}/tables/{{table}}"
VIEW: Final = f"{NAMESPACE}/views/{{view}}"

JSON: Final = "application/json"
FORM: Final = "application/x-www-form-urlencoded"
PAGES: Final = ("page-token", "page-size")

NO_WAREHOUSE: Final = {"404": "NoSuchWarehouseResponse"}
NO_NAMESPACE: Final = {"404": "NoSuchNamespaceResponse"}
NO_TABLE: Final = {"404": "NoSuchTableResponse"}
NO_VIEW: Final = {"404": "NoSuchViewResponse"}
EXISTS: Final = {"409": "AlreadyExistsResponse"}
UNSUPPORTED: Final = {"406": "UnsupportedOperationResponse"}
COMMIT: Final = {
    "409": "CommitFailedResponse",
    "500": "CommitStateUnknownResponse",
    "502": "CommitStateUnknownResponse",
    "504": "CommitStateUnknownResponse",
}
# The specification lists these for every operation that has a caller.
_EVERYWHERE: Final = {
    "400": "BadRequestErrorResponse",
    "401": "UnauthorizedResponse",
    "403": "ForbiddenResponse",
    "419": "AuthenticationTimeoutResponse",
    "503": "ServiceUnavailableResponse",
    "5XX": "ServerErrorResponse",
}


def operation(
    ok: str | None = None,
    *,
    errors: Mapping[str, str],
    parameters: Iterable[str] = (),
    body: str | None = None,
    writes: bool = False,
    takes_key: bool = False,
) -> dict[str, Any]:
    """An operation with a caller: 200 with the response `ok`, or 204.

    `writes`: the response may be 409, because the transaction is closed or the table is protected.
    `takes_key`: it has the header Idempotency-Key.
    """
    success = {"204": "NoContentResponse"} if ok is None else {"200": ok}
    beyond = {"409": "ConflictResponse"} if writes else {}
    if body is not None:
        beyond["413"] = "PayloadTooLargeResponse"
    names = (*parameters, "idempotency-key") if takes_key else tuple(parameters)
    return _route({**_EVERYWHERE, **beyond, **errors, **success}, names, body)


def token_operation(ok: str, *, errors: Mapping[str, str], body: str) -> dict[str, Any]:
    """The token operation: it has no caller, takes a form, and its errors have OAuth's form."""
    responses = {"413": "PayloadTooLargeResponse", **errors, "200": ok}
    route = _route(responses, (), body, FORM)
    route["openapi_extra"]["security"] = [{}]
    return route | {"deprecated": True}


def endpoints(routes: Iterable[BaseRoute]) -> list[str]:
    """Methods and paths as `/v1/config` advertises them: all operations below a prefix."""
    found = [context.original_route for context in iter_route_contexts(list(routes))]
    return [
        f"{method} {route.path}"
        for route in found
        if isinstance(route, APIRoute) and route.path.startswith(f"{PREFIX}/")
        for method in sorted(route.methods or ())
    ]


def _route(
    responses: Mapping[str, str], parameters: tuple[str, ...], body: str | None, media_type: str = JSON
) -> dict[str, Any]:
    extra: dict[str, Any] = {
        "responses": {status: _ref("responses", name) for status, name in sorted(responses.items())}
    }
    if parameters:
        extra["parameters"] = [_ref("parameters", name) for name in parameters]
    if body is not None:
        content = {media_type: {"schema": _ref("schemas", body)}}
        extra["requestBody"] = {"required": True, "content": content}
    return {"openapi_extra": extra, "response_class": Response}


def _ref(kind: str, name: str) -> dict[str, str]:
    return {"$ref": f"#/components/{kind}/{name}"}
