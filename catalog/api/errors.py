"""Errors in HTTP: the only module that turns an exception into a status and a body.

Errors have Iceberg's form, `{"error": {"message", "type", "code"}}`, except those of `/v1/oauth/tokens`,
which have OAuth's form.
"""

from __future__ import annotations

import logging

import orjson
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from catalog.api.context import get_caller
from catalog.errors import CatalogError, Invalid, NotAuthorized, Unavailable
from catalog.identity.oauth import OAuthError

JSON = "application/json"
UNREADABLE_BODY = 400  # what FastAPI raises for a body that is not UTF-8
STATUS_TYPES = {404: "NotFoundException", 405: "MethodNotAllowedException"}

log = logging.getLogger(__name__)


def error_body(message: str, type_: str, code: int) -> bytes:
    return orjson.dumps({"error": {"message": message, "type": type_, "code": code}})


def error_response(error: CatalogError) -> Response:
    headers = {}
    if isinstance(error, Unavailable):
        headers["Retry-After"] = str(error.retry_after_s)
    if isinstance(error, NotAuthorized):
        headers["WWW-Authenticate"] = "Bearer"
    body = error_body(error.message, error.type, error.status)
    return Response(body, error.status, headers, media_type=JSON)


def add_exception_handlers(app: FastAPI) -> None:
    app.add_exception_handler(CatalogError, _catalog_error)
    app.add_exception_handler(OAuthError, _oauth_error)
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_exception_handler(HTTPException, _http_exception)
    app.add_exception_handler(orjson.JSONEncodeError, _encode_error)
    app.add_exception_handler(Exception, _unexpected)


async def _catalog_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, CatalogError)
    if error.status >= 500:
        operation = getattr(request.scope.get("route"), "operation_id", None)
        log.warning("a request failed", extra={"operation": operation}, exc_info=error)
    return error_response(error)


async def _oauth_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, OAuthError)
    return Response(orjson.dumps(error.body), error.status, dict(error.headers), media_type=JSON)


async def _validation_error(request: Request, error: Exception) -> Response:
    """A body or a parameter of the wrong form: one sentence that names the first wrong field."""
    assert isinstance(error, RequestValidationError)
    refusal = await _refusal_of_caller(request)
    if refusal is not None:
        return refusal
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    return error_response(Invalid(f"{where}: {first['msg']}"))


async def _refusal_of_caller(request: Request) -> Response | None:
    """FastAPI parses the body before it calls dependencies, so the caller may not be known yet."""
    try:
        await get_caller(request)
    except CatalogError as error:
        return error_response(error)
    return None


async def _http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == UNREADABLE_BODY:
        refusal = await _refusal_of_caller(request)
        if refusal is not None:
            return refusal
    type_ = STATUS_TYPES.get(error.status_code, "BadRequestException")
    hint = ": no such route here" if error.status_code in STATUS_TYPES else ""
    body = error_body(f"{error.detail}{hint}", type_, error.status_code)
    return Response(body, error.status_code, error.headers, media_type=JSON)


async def _encode_error(request: Request, error: Exception) -> Response:
    """orjson raises a plain TypeError. Its text shows whether the client sent a value nested too deeply."""
    if "Recursion limit" in str(error):
        return error_response(Invalid("The request is nested too deeply to be stored"))
    log.error("unexpected error", exc_info=error)
    return await _unexpected(request, error)


async def _unexpected(_request: Request, _error: Exception) -> Response:
    """Starlette raises the exception again after this response, and calve/http/context.py logs it."""
    message = "The server failed; its log says why under the request id of this response"
    return Response(error_body(message, "InternalServerError", 500), 500, media_type=JSON)
