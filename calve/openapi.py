"""Keeps `openapi/` equal to what the code serves.

- `iceberg-rest.yaml`: everything above `components:` is written from the routes under `/v1`; the components
  are written by hand in that file and left as they are.
- `lake.yaml`: Calve's own routes, from the running app's description of itself.

`write` brings the files up to date, `check` says which are not. Neither starts a server.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from fastapi import FastAPI
from fastapi.routing import APIRoute, iter_route_contexts

ICEBERG_FILE = "iceberg-rest.yaml"
LAKE_FILE = "lake.yaml"

Node = dict[str, Any]

_VERSION = "3.1.1"
_COMPONENTS = re.compile(r"^components:$", re.MULTILINE)
_ICEBERG_NOTE = (
    "# `calve openapi` writes everything above `components` from the routes under /v1.\n"
    "# The components are written by hand: edit them here.\n"
)
_LAKE_NOTE = "# Written by `calve openapi` from the routes of the app. Edit the routes, not this file.\n"

TAGS = ("Configuration API", "OAuth2 API", "Catalog API")
_METHODS = ("get", "head", "post", "put", "patch", "delete")


def write(directory: Path, app: FastAPI) -> None:
    """Bring both files up to date."""
    for name, text in _generated(directory, app).items():
        (directory / name).write_text(text, encoding="utf-8")


def check(directory: Path, app: FastAPI) -> list[str]:
    """A sentence for each file that is not what the code says."""
    return [
        f"{directory / name} is not current: run `calve openapi`"
        for name, text in _generated(directory, app).items()
        if not (directory / name).is_file() or (directory / name).read_text(encoding="utf-8") != text
    ]


def iceberg_text(current: str, app: FastAPI) -> str:
    """The text of `iceberg-rest.yaml`: generated down to `components:`, from there on as in `current`."""
    marks = list(_COMPONENTS.finditer(current))
    if len(marks) != 1:
        raise ValueError(f"{ICEBERG_FILE} must hold exactly one line 'components:', found {len(marks)}")
    by_hand = current[marks[0].start() :]
    components = yaml.safe_load(by_hand)["components"]
    return _ICEBERG_NOTE + _dump(_iceberg_head(components, app)) + by_hand


def lake_document(app: FastAPI) -> Node:
    """Calve's own routes: the app's description without the spec's paths, with errors in Iceberg's form."""
    document = copy.deepcopy(app.openapi())
    paths: dict[str, Node] = {}
    for path, item in sorted(document.get("paths", {}).items()):
        if _is_iceberg(path):
            continue
        for method in _METHODS:
            if method in item:
                _set_errors(path, method, item[method])
        paths[path] = _without_titles(item)
    schemas = _without_titles(document.get("components", {}).get("schemas", {}), names=True)
    used = set(_references(paths))
    responses = {
        name: {"description": words, "content": _error_content()}
        for _, name, words in _LAKE_ERRORS
        if f"#/components/responses/{name}" in used
    }
    return {
        "openapi": _VERSION,
        "info": {
            "title": "Calve: the lake",
            "version": document["info"]["version"],
            "description": "What Calve answers beside the operations of the Iceberg REST specification.",
        },
        "servers": [{"url": "/"}],
        "security": [{"BearerAuth": []}, {}],
        "paths": paths,
        "components": {
            "securitySchemes": {"BearerAuth": {"type": "http", "scheme": "bearer"}},
            "responses": responses,
            "schemas": _reachable([paths, responses], {**schemas, **_ERROR_SCHEMAS}),
        },
    }


def _generated(directory: Path, app: FastAPI) -> dict[str, str]:
    current = (directory / ICEBERG_FILE).read_text(encoding="utf-8")
    return {ICEBERG_FILE: iceberg_text(current, app), LAKE_FILE: _LAKE_NOTE + _dump(lake_document(app))}


# The spec's operations


def _iceberg_head(components: Node, app: FastAPI) -> Node:
    paths: dict[str, Node] = {}
    routes = sorted(_iceberg_routes(app), key=lambda route: TAGS.index(str(route.tags[0])))
    for route in routes:
        names = re.findall(r"\{([^}]+)\}", route.path)
        shared = {"parameters": [_ref("parameters", name) for name in names]} if names else {}
        item = paths.setdefault(route.path, shared)
        for method in route.methods or ():
            item[method.lower()] = _operation_node(route, method, components)
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
        "tags": [{"name": tag} for tag in TAGS],
        "paths": paths,
    }


def _iceberg_routes(app: FastAPI) -> Iterator[APIRoute]:
    for context in iter_route_contexts(app.routes):
        route = context.original_route
        if isinstance(route, APIRoute) and _is_iceberg(route.path):
            yield route


def _operation_node(route: APIRoute, method: str, components: Node) -> Node:
    node: Node = {"tags": list(route.tags), "operationId": route.operation_id, "summary": route.summary}
    if route.deprecated:
        node["deprecated"] = True
    extra = route.openapi_extra or {}
    node |= {name: extra[name] for name in ("security", "parameters", "requestBody") if name in extra}
    node["responses"] = {
        status: _response_node(response, method, components)
        for status, response in extra["responses"].items()
    }
    return node


def _response_node(response: Node, method: str, components: Node) -> Node:
    if method != "HEAD":
        return response
    # HTTP gives a response to HEAD no body, so none is described.
    described = components["responses"][response["$ref"].rsplit("/", 1)[-1]]
    return {key: value for key, value in described.items() if key != "content"}


def _ref(kind: str, name: str) -> Node:
    return {"$ref": f"#/components/{kind}/{name}"}


# Calve's own routes

# Status codes that routes under /lake may answer with, whatever they declare themselves.
_LAKE_ERRORS = (
    ("400", "BadRequestErrorResponse", "The request cannot be understood."),
    ("401", "UnauthorizedResponse", "No caller, or a token that is wrong or over."),
    ("403", "ForbiddenResponse", "The caller may not do this, or the warehouse is read-only."),
    ("404", "NotFoundResponse", "There is no such thing."),
    ("409", "ConflictResponse", "The state of the catalog is against it."),
    ("413", "PayloadTooLargeResponse", "The body is larger than the server takes."),
    ("503", "ServiceUnavailableResponse", "Surely not done; try again later."),
    ("5XX", "ServerErrorResponse", "The server failed."),
)
_ERROR_SCHEMAS: Node = {
    "IcebergErrorResponse": {
        "description": "The one form of every error.",
        "type": "object",
        "required": ["error"],
        "properties": {"error": {"$ref": "#/components/schemas/ErrorModel"}},
        "additionalProperties": False,
    },
    "ErrorModel": {
        "description": "What went wrong.",
        "type": "object",
        "required": ["message", "type", "code"],
        "properties": {
            "message": {"type": "string"},
            "type": {"type": "string"},
            "code": {"type": "integer", "minimum": 400, "maximum": 600},
            "stack": {"type": "array", "items": {"type": "string"}},
        },
    },
}


def _is_iceberg(path: str) -> bool:
    return path.startswith("/v1/")


def _set_errors(path: str, method: str, operation: Node) -> None:
    """Put Iceberg's error form where FastAPI has its own, or where a route declares none."""
    responses = operation.setdefault("responses", {})
    if "HTTPValidationError" in str(responses.get("422")):
        del responses["422"]
    for status, name, _ in _LAKE_ERRORS:
        if status not in responses and _may_answer(status, path, method, operation):
            responses[status] = _ref("responses", name)
    for status, response in responses.items():
        if status[0] in "45" and "$ref" not in response and "content" not in response:
            response["content"] = _error_content()
    operation["responses"] = dict(sorted(responses.items()))


def _may_answer(status: str, path: str, method: str, operation: Node) -> bool:
    if not path.startswith("/lake/"):
        return status == "5XX"
    if status == "409":
        return method not in ("get", "head")
    return status != "413" or "requestBody" in operation


def _error_content() -> Node:
    return {"application/json": {"schema": _ref("schemas", "IcebergErrorResponse")}}


def _without_titles(node: Any, *, names: bool = False) -> Any:
    """Without the titles that are made from names. `names`: the keys of `node` are names, not keywords."""
    if isinstance(node, dict):
        return {
            key: _without_titles(value, names=key == "properties" and not names)
            for key, value in node.items()
            if names or key != "title"
        }
    if isinstance(node, list):
        return [_without_titles(value) for value in node]
    return node


def _reachable(root: object, schemas: Node) -> Node:
    """The schemas that `root` needs, in the order of their names."""
    found: set[str] = set()
    waiting = list(_references(root))
    while waiting:
        name = waiting.pop().rsplit("/", 1)[-1]
        if name in schemas and name not in found:
            found.add(name)
            waiting.extend(_references(schemas[name]))
    return {name: schemas[name] for name in sorted(found)}


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
    """Lists indented below their key; no anchors, since a reader should find each thing written out."""

    def ignore_aliases(self, data: object) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def _dump(document: Node) -> str:
    text = yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)
    return str(text)
