"""The namespace operations of the specification."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from catalog.api import spec
from catalog.api.context import WriteDep, parse_namespace
from catalog.api.dependencies import NamespaceDep, ReaderState, raw_query
from catalog.api.pagination import SpecPageDep
from catalog.api.responses import json_response, no_content
from catalog.names import Namespace, namespace_from_levels
from catalog.services import namespaces

router = APIRouter(tags=["Catalog API"])

NAMESPACES = f"{spec.PREFIX}/namespaces"


@router.get(
    NAMESPACES,
    operation_id="listNamespaces",
    summary="The namespaces at the top level, or below a parent",
    **spec.operation("ListNamespacesResponse", errors=spec.NO_NAMESPACE, parameters=(*spec.PAGES, "parent")),
)
def list_namespaces(request: Request, state: ReaderState, page: SpecPageDep) -> Response:
    parent, raw_parent = "", raw_query(request, "parent")
    if raw_parent:
        namespace = parse_namespace(request, raw_parent)
        namespaces.require_namespace(state, namespace)
        parent = namespace.key
    (after,) = page.after("")
    keys, next_token = page.cut(state.children(parent, after, page.rows_max), lambda key: (key,))
    levels = [list(Namespace.from_key(key).levels) for key in keys]
    return json_response({"namespaces": levels, "next-page-token": next_token})


@router.post(
    NAMESPACES,
    operation_id="createNamespace",
    summary="Make a namespace",
    **spec.operation(
        "CreateNamespaceResponse",
        errors={**spec.NO_WAREHOUSE, **spec.UNSUPPORTED, **spec.EXISTS},
        body="CreateNamespaceRequest",
        writes=True,
        takes_key=True,
    ),
)
def create_namespace(write: WriteDep) -> Response:
    body = write.json()
    namespace = namespace_from_levels(body.get("namespace"))
    properties = write.run_once(
        work=lambda: namespaces.create(
            write.catalog, write.state, write.context, namespace, body.get("properties")
        ),
        restore=lambda saved: saved,
    )
    return _response(namespace, properties)


@router.get(
    spec.NAMESPACE,
    operation_id="loadNamespaceMetadata",
    summary="A namespace and its properties",
    **spec.operation("GetNamespaceResponse", errors=spec.NO_NAMESPACE),
)
def load_namespace(state: ReaderState, namespace: NamespaceDep) -> Response:
    return _response(namespace, namespaces.properties_of(state, namespace))


@router.head(
    spec.NAMESPACE,
    operation_id="namespaceExists",
    summary="Whether a namespace exists",
    **spec.operation(errors=spec.NO_NAMESPACE),
)
def namespace_exists(state: ReaderState, namespace: NamespaceDep) -> Response:
    namespaces.require_namespace(state, namespace)
    return no_content()


@router.delete(
    spec.NAMESPACE,
    operation_id="dropNamespace",
    summary="Drop an empty namespace",
    **spec.operation(
        errors={**spec.NO_NAMESPACE, "409": "NamespaceNotEmptyResponse"}, writes=True, takes_key=True
    ),
)
def drop_namespace(write: WriteDep, namespace: NamespaceDep) -> Response:
    write.run_once(
        work=lambda: namespaces.drop(write.catalog, write.state, write.context, namespace),
        restore=lambda _saved: None,
    )
    return no_content()


@router.post(
    f"{spec.NAMESPACE}/properties",
    operation_id="updateProperties",
    summary="Set and remove properties of a namespace",
    **spec.operation(
        "UpdateNamespacePropertiesResponse",
        errors={**spec.NO_NAMESPACE, **spec.UNSUPPORTED, "422": "UnprocessableEntityResponse"},
        body="UpdateNamespacePropertiesRequest",
        writes=True,
        takes_key=True,
    ),
)
def update_properties(write: WriteDep, namespace: NamespaceDep) -> Response:
    body = write.json()
    result = write.run_once(
        work=lambda: namespaces.update_properties(
            write.catalog, write.state, write.context, namespace, body.get("updates"), body.get("removals")
        ),
        restore=lambda saved: saved,
    )
    return json_response(result)


def _response(namespace: Namespace, properties: dict[str, str]) -> Response:
    return json_response({"namespace": list(namespace.levels), "properties": properties})
