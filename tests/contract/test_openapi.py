"""The files of `openapi/` are what the code serves, and are sound as documents."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from fastapi import FastAPI
from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator
from pydantic import BaseModel

from calve import openapi
from calve.app import fastapi_app
from calve.settings import Settings
from catalog.api import routers
from catalog.api.spec import PREFIX, endpoints
from tests.harness.operations import BY_ID, OPERATIONS, Operation

DIRECTORY = Path(__file__).parents[2] / "openapi"
FILES = (openapi.ICEBERG_FILE, openapi.LAKE_FILE)
METHODS = ("get", "head", "post", "put", "delete")


def load(name: str) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((DIRECTORY / name).read_text(encoding="utf-8"))
    return document


ICEBERG = load(openapi.ICEBERG_FILE)


def references(node: object) -> Iterator[str]:
    """Every component that `node` names, by `$ref` or in the mapping of a discriminator."""
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "$ref" and isinstance(value, str):
                yield value
            elif key == "mapping" and isinstance(value, dict):
                yield from value.values()
            else:
                yield from references(value)
    elif isinstance(node, list):
        for value in node:
            yield from references(value)


def described_operations() -> dict[str, tuple[str, str, dict[str, Any]]]:
    return {
        node["operationId"]: (method.upper(), path, node)
        for path, item in ICEBERG["paths"].items()
        for method, node in item.items()
        if method in METHODS
    }


def test_files_are_what_the_code_generates(tmp_path: Path) -> None:
    app = fastapi_app(Settings(home=tmp_path))
    assert openapi.check(DIRECTORY, app) == []


@pytest.mark.parametrize("name", FILES)
def test_file_is_valid_openapi(name: str) -> None:
    OpenAPIV31SpecValidator(load(name)).validate()


@pytest.mark.parametrize("name", FILES)
def test_every_component_is_used_and_every_reference_leads_somewhere(name: str) -> None:
    document = load(name)
    there = {
        f"#/components/{kind}/{key}"
        for kind, components in document["components"].items()
        if kind != "securitySchemes"
        for key in components
    }
    assert set(references(document)) == there


def test_operations_and_description_agree() -> None:
    described = described_operations()
    assert set(described) == set(BY_ID)
    for operation in OPERATIONS:
        method, path, node = described[operation.id]
        assert (method, path) == (operation.method, operation.path)
        assert set(node["responses"]) == set(operation.description["responses"])
        assert ("requestBody" in node) == (operation.request_schema is not None)


def test_operation_ids_and_endpoints_are_unique() -> None:
    assert len(BY_ID) == len(OPERATIONS)
    assert len({operation.endpoint for operation in OPERATIONS}) == len(OPERATIONS)


def test_endpoints_are_advertised_with_the_literal_prefix() -> None:
    # Clients compare these texts; the prefix stays a placeholder even where a warehouse is chosen.
    advertised = endpoints(route for router in routers() for route in router.routes)
    assert len(advertised) == len(OPERATIONS) - 2
    assert "HEAD /v1/{prefix}/namespaces/{namespace}/tables/{table}" in advertised
    assert all(" /v1/{prefix}/" in endpoint for endpoint in advertised)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.id)
def test_operation_is_consistent(operation: Operation) -> None:
    reads = operation.method in ("GET", "HEAD")
    described_key = {"$ref": "#/components/parameters/idempotency-key"}
    assert not (reads and (operation.writes or operation.request_schema or operation.takes_key))
    assert not (operation.writes and not operation.path.startswith(PREFIX))
    assert operation.writes or not operation.takes_key
    # What the route says of itself is what its dependencies do.
    assert (described_key in operation.description.get("parameters", [])) == operation.takes_key
    assert ("403" in operation.description["responses"]) == operation.secured
    assert "409" in operation.description["responses"] or not operation.writes


def test_idempotency_keys_are_accepted_where_the_spec_declares_them() -> None:
    without = {operation.id for operation in OPERATIONS if operation.method in ("POST", "DELETE")} - {
        operation.id for operation in OPERATIONS if operation.takes_key
    }
    assert without == {"getToken", "createView", "reportMetrics"}


def test_every_schema_is_described_in_words() -> None:
    schemas = ICEBERG["components"]["schemas"]
    assert [name for name, schema in schemas.items() if not schema.get("description")] == []


def examples() -> list[tuple[str, Any]]:
    schemas = ICEBERG["components"]["schemas"]
    return [(name, example) for name, schema in schemas.items() for example in schema.get("examples", ())]


@pytest.mark.parametrize(
    ("name", "example"), examples(), ids=lambda value: value if isinstance(value, str) else ""
)
def test_example_fits_its_schema(name: str, example: Any) -> None:
    schema = {"$ref": f"#/components/schemas/{name}", "components": ICEBERG["components"]}
    Draft202012Validator(schema).validate(example)


def test_every_update_and_requirement_has_an_example() -> None:
    schemas = ICEBERG["components"]["schemas"]
    names = [
        reference.rsplit("/", 1)[-1]
        for parent in ("BaseUpdate", "TableRequirement", "ViewRequirement")
        for reference in schemas[parent]["discriminator"]["mapping"].values()
    ]
    assert [name for name in names if not schemas[name].get("examples")] == []


class Book(BaseModel):
    title: str
    pages: int


def toy_app() -> FastAPI:
    app = FastAPI(title="toy", version="1")

    @app.post("/lake/v1/books", operation_id="addBook")
    def add_book(book: Book) -> Book:
        return book

    @app.get("/health", operation_id="health")
    def health() -> dict[str, str]:
        return {}

    @app.get("/v1/config", operation_id="getConfig")
    def get_config() -> dict[str, str]:
        return {}

    return app


def test_lake_document_leaves_the_spec_out_and_gives_errors_one_form() -> None:
    document = openapi.lake_document(toy_app())
    assert list(document["paths"]) == ["/health", "/lake/v1/books"]
    statuses = ["200", "400", "401", "403", "404", "409", "413", "503", "5XX"]
    assert list(document["paths"]["/lake/v1/books"]["post"]["responses"]) == statuses
    assert list(document["paths"]["/health"]["get"]["responses"]) == ["200", "5XX"]
    assert sorted(document["components"]["schemas"]) == ["Book", "ErrorModel", "IcebergErrorResponse"]


def test_lake_document_drops_made_up_titles_but_no_field_of_that_name() -> None:
    book = openapi.lake_document(toy_app())["components"]["schemas"]["Book"]
    assert book == {
        "type": "object",
        "required": ["title", "pages"],
        "properties": {"title": {"type": "string"}, "pages": {"type": "integer"}},
    }


def test_a_stale_or_missing_file_is_named(tmp_path: Path) -> None:
    app = fastapi_app(Settings(home=tmp_path / "home"))
    openapi.write(tmp_path, app)
    assert openapi.check(tmp_path, app) == []
    (tmp_path / openapi.LAKE_FILE).unlink()
    (tmp_path / openapi.ICEBERG_FILE).write_text("openapi: 3.1.1\n")
    (tmp_path / openapi.REFERENCE_FILE).write_text("# API\n")
    assert len(openapi.check(tmp_path, app)) == 3


def test_both_documents_may_be_merged(tmp_path: Path) -> None:
    """No name of a component means two things."""
    app = fastapi_app(Settings(home=tmp_path))
    lake, iceberg = openapi.lake_document(app), openapi.iceberg_document(app)
    for kind, components in lake["components"].items():
        for name in components.keys() & iceberg["components"].get(kind, {}).keys():
            assert components[name] == iceberg["components"][kind][name]
    assert not lake["paths"].keys() & iceberg["paths"].keys()
