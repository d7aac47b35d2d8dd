"""The reference of the API as a page, from its descriptions in OpenAPI."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

METHODS = ("get", "head", "post", "put", "patch", "delete")
HEAD = """# API reference

Written by `calve openapi` from the two descriptions in this folder, which have every schema. `/docs` of a
server shows them with a form for each operation. Errors are `{"error": {"message", "type", "code"}}`
everywhere; with tokens, a request needs `Authorization: Bearer TOKEN`
([docs/identity.md](../docs/identity.md)).
"""


def rendered(documents: Mapping[str, Mapping[str, Any]]) -> str:
    """The page for documents by their file names."""
    parts = [HEAD]
    for file, document in documents.items():
        groups: dict[str, list[str]] = {}
        for method, path, operation in _operations(document):
            tag = next(iter(operation.get("tags", ())), "Other")
            groups.setdefault(tag, []).append(_row(document, method, path, operation))
        for tag, rows in sorted(groups.items()):
            table = "\n".join(["| operation | | parameters | answers |", "|---|---|---|---|", *rows])
            parts.append(f"## {tag}\n\nIn [{file}]({file}).\n\n{table}\n")
    return "\n".join(parts)


def _operations(document: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    for path, item in document["paths"].items():
        for method in METHODS:
            if method in item:
                shared = item.get("parameters", [])
                yield (
                    method,
                    path,
                    item[method] | {"parameters": [*shared, *item[method].get("parameters", [])]},
                )


def _row(document: Mapping[str, Any], method: str, path: str, operation: Mapping[str, Any]) -> str:
    text = " ".join((operation.get("description") or operation.get("summary") or "").split())
    found = (_resolved(document, parameter) for parameter in operation["parameters"])
    names = [f"`{one['name']}`" for one in found if one["in"] == "query"]
    names += _body_fields(document, operation)
    statuses = ", ".join(sorted(map(str, operation["responses"])))
    cells = (f"`{method.upper()} {path}`", _first_sentence(text), ", ".join(names), statuses)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _body_fields(document: Mapping[str, Any], operation: Mapping[str, Any]) -> list[str]:
    content = _resolved(document, operation.get("requestBody", {})).get("content", {})
    schema = _resolved(document, content.get("application/json", {}).get("schema", {}))
    return [f"body `{name}`" for name in schema.get("properties", ())]


def _first_sentence(text: str) -> str:
    sentence, dot, _ = text.partition(". ")
    return sentence + "." if dot else text


def _resolved(document: Mapping[str, Any], value: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a `$ref` inside the document leads to."""
    while "$ref" in value:
        found: Any = document
        for part in value["$ref"].removeprefix("#/").split("/"):
            found = found[part]
        value = found
    return value
