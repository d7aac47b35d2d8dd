"""The OpenAPI description of the server.

`describe` makes `app.openapi()` return the description of all routes; `/openapi.json` and `/docs` show it.
`write` and `check` keep the two files of `openapi/` equal to it: `iceberg-rest.yaml` has the operations of
the Iceberg REST specification, `lake.yaml` everything else.

FastAPI describes the routes. The operations of the specification replace that by the `openapi_extra` of their
routes, whose names are components in `iceberg_components.yaml`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute, iter_route_contexts

from calve import api_reference

ICEBERG_FILE = "iceberg-rest.yaml"
LAKE_FILE = "lake.yaml"
REFERENCE_FILE = "reference.md"
COMPONENTS_FILE = Path(__file__).with_name("iceberg_components.yaml")

Node = dict[str, Any]

_VERSION = "3.1.1"
_LAKE_NOTE = "# Written by `calve openapi` from the routes of the app. Edit the routes, not this file.\n"
_ICEBERG_NOTE = (
    "# Written by `calve openapi` from the routes under /v1 and calve/iceberg_components.yaml.\n"
    "# Edit those, not this file.\n"
)
_TAGS = ("Configuration API", "OAuth2 API", "Catalog API")
_METHODS = ("get", "head", "post", "put", "patch", "delete")

# Errors that every route under /lake may return, in addition to those it declares; all but one are the
# specification's.
_LAKE_ERRORS = {
    "400": "BadRequestErrorResponse",
    "401": "UnauthorizedResponse",
    "403": "ForbiddenResponse",
    "404": "NotFoundResponse",
    "409": "ConflictResponse",
    "413": "PayloadTooLargeResponse",
    "503": "ServiceUnavailableResponse",
    "5XX": "ServerErrorResponse",
}
_ERROR_CONTENT: Node = {"application/json": {"schema": {"$ref": "#/components/schemas/IcebergErrorResponse"}}}
_NOT_FOUND: Node = {"description": "It does not exist.", "content": _ERROR_CONTENT}


def describe(app: FastAPI) -> None:
    """Make `app.openapi()` return the description of all routes."""

    def openapi() -> Node:
        if app.openapi_schema is None:
            app.openapi_schema = document(app)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def document(app: FastAPI) -> Node:
    """The whole description."""
    lake, iceberg = lake_document(app), iceberg_document(app)
    components = {kind: dict(found) for kind, found in iceberg["components"].items()}
    for kind, found in lake["components"].items():
        components.setdefault(kind, {}).update(found)
    info = {**lake["info"], "title": app.title}
    return {**iceberg, "info": info, "paths": {**lake["paths"], **iceberg["paths"]}, "components": components}


def iceberg_document(app: FastAPI) -> Node:
    """The operations of the Iceberg REST specification."""
    components = _iceberg_components()
    paths: dict[str, Node] = {}
    for route in sorted(_iceberg_routes(app), key=lambda route: _TAGS.index(str(route.tags[0]))):
        names = re.findall(r"\{([^}]+)\}", route.path)
        shared = {"parameters": [_ref("parameters", name) for name in names]} if names else {}
        item = paths.setdefault(route.path, shared)
        for method in route.methods or ():
            item[method.lower()] = _iceberg_operation(route, method, components)
    return {
        "openapi": _VERSION,
        "info": {
            "title": "Calve: the Iceberg REST catalog",
            "version": "0.0.1",
            "description": "The operations of the Iceberg REST catalog specification that Calve serves.",
            "license": {"name": "Apache 2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        # The empty choice: a server that runs open, on loopback only, asks for no token.
        "security": [{"OAuth2": ["catalog"]}, {"BearerAuth": []}, {}],
        "tags": [{"name": tag} for tag in _TAGS],
        "paths": paths,
        "components": components,
    }


def lake_document(app: FastAPI) -> Node:
    """All other routes, as FastAPI describes them, with errors in Iceberg's form."""
    described = get_openapi(title=app.title, version=app.version, routes=app.routes)
    paths: dict[str, Node] = {}
    for path, item in sorted(described.get("paths", {}).items()):
        if _is_iceberg(path):
            continue
        for method in _METHODS:
            if method in item:
                _set_errors(path, method, item[method])
        paths[path] = _without_titles(item)
    own = _without_titles(described.get("components", {}).get("schemas", {}), names=True)
    iceberg = _iceberg_components()
    components = {
        "headers": iceberg["headers"],
        "responses": {**iceberg["responses"], "NotFoundResponse": _NOT_FOUND},
        "schemas": {**own, **iceberg["schemas"]},
    }
    return {
        "openapi": _VERSION,
        "info": {
            "title": "Calve: the lake",
            "version": app.version,
            "description": "All routes of Calve beside the operations of the Iceberg REST specification.",
        },
        "servers": [{"url": "/"}],
        "security": [{"BearerAuth": []}, {}],
        "paths": paths,
        "components": {
            "securitySchemes": {"BearerAuth": iceberg["securitySchemes"]["BearerAuth"]},
            **_used(paths, components),
        },
    }


def write(directory: Path, app: FastAPI) -> None:
    """Write both files, and the page about them."""
    for name, text in _files(app).items():
        (directory / name).write_text(text, encoding="utf-8")


def check(directory: Path, app: FastAPI) -> list[str]:
    """A sentence for each file that differs from the description of the routes."""
    return [
        f"{directory / name} is not current: run `calve openapi`"
        for name, text in _files(app).items()
        if not (directory / name).is_file() or (directory / name).read_text(encoding="utf-8") != text
    ]


def _files(app: FastAPI) -> dict[str, str]:
    lake, head = lake_document(app), iceberg_document(app)
    reference = api_reference.rendered({LAKE_FILE: lake, ICEBERG_FILE: head})
    del head["components"]
    components = COMPONENTS_FILE.read_text(encoding="utf-8")
    return {
        # The components as they are written by hand, line by line.
        ICEBERG_FILE: _ICEBERG_NOTE + _dump(head) + components[components.index("components:\n") :],
        LAKE_FILE: _LAKE_NOTE + _dump(lake),
        REFERENCE_FILE: reference,
    }


# The operations of the specification


@cache
def _iceberg_components() -> Node:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    components: Node = yaml.load(COMPONENTS_FILE.read_bytes(), loader)["components"]  # noqa: S506 - safe
    return components


def _iceberg_routes(app: FastAPI) -> Iterator[APIRoute]:
    for context in iter_route_contexts(app.routes):
        route = context.original_route
        if isinstance(route, APIRoute) and _is_iceberg(route.path):
            yield route


def _iceberg_operation(route: APIRoute, method: str, components: Node) -> Node:
    node: Node = {"tags": list(route.tags), "operationId": route.operation_id, "summary": route.summary}
    if route.deprecated:
        node["deprecated"] = True
    extra = route.openapi_extra or {}
    node |= {name: extra[name] for name in ("security", "parameters", "requestBody") if name in extra}
    node["responses"] = {
        status: _iceberg_response(response, method, components)
        for status, response in extra["responses"].items()
    }
    return node


def _iceberg_response(response: Node, method: str, components: Node) -> Node:
    if method != "HEAD":
        return response
    # HTTP gives a response to HEAD no body, so none is described.
    described = components["responses"][response["$ref"].rsplit("/", 1)[-1]]
    return {key: value for key, value in described.items() if key != "content"}


def _is_iceberg(path: str) -> bool:
    return path.startswith("/v1/")


def _ref(kind: str, name: str) -> Node:
    return {"$ref": f"#/components/{kind}/{name}"}


# All other routes


def _set_errors(path: str, method: str, operation: Node) -> None:
    """Put Iceberg's error form where FastAPI has its own, or where a route declares none."""
    responses = operation.setdefault("responses", {})
    if "HTTPValidationError" in str(responses.get("422")):
        del responses["422"]
    for status, name in _LAKE_ERRORS.items():
        if status not in responses and _may_answer(status, path, method, operation):
            responses[status] = _ref("responses", name)
    for status, response in responses.items():
        if status[0] in "45" and "$ref" not in response and "content" not in response:
            response["content"] = _ERROR_CONTENT
    operation["responses"] = dict(sorted(responses.items()))


def _may_answer(status: str, path: str, method: str, operation: Node) -> bool:
    if not path.startswith("/lake/"):
        return status == "5XX"
    if status == "409":
        return method not in ("get", "head")
    return status != "413" or "requestBody" in operation


def _without_titles(node: Any, *, names: bool = False) -> Any:
    """Without the titles that FastAPI makes. `names`: the keys of `node` are names, not keywords."""
    if isinstance(node, dict):
        return {
            key: _without_titles(value, names=key == "properties" and not names)
            for key, value in node.items()
            if names or key != "title"
        }
    if isinstance(node, list):
        return [_without_titles(value) for value in node]
    return node


def _used(root: object, components: Node) -> Node:
    """The components that `root` refers to, directly or not, sorted by name."""
    used: set[str] = set()
    waiting = list(_references(root))
    while waiting:
        reference = waiting.pop()
        if reference not in used:
            used.add(reference)
            kind, name = reference.rsplit("/", 2)[1:]
            waiting.extend(_references(components[kind][name]))
    found = {
        kind: {name: held[name] for name in sorted(held) if f"#/components/{kind}/{name}" in used}
        for kind, held in components.items()
    }
    return {kind: held for kind, held in found.items() if held}


def _references(node: object) -> Iterator[str]:
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "$ref" and isinstance(value, str):
                yield value
            else:
                yield from _references(value)
    elif isinstance(node, list):
        for value in node:
            yield from _references(value)


# YAML


class _Dumper(yaml.SafeDumper):
    """Indents lists below their key and writes no anchors: a reader finds each thing written out."""

    def ignore_aliases(self, data: object) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def _dump(document: Node) -> str:
    text = yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)
    return str(text)
