"""The view operations of the specification."""

from __future__ import annotations

from fastapi import APIRouter, Response

from catalog.api import spec
from catalog.api.dependencies import (
    CatalogDep,
    JsonBody,
    NamespaceDep,
    ReaderState,
    ViewDep,
    WriteContextDep,
    WriteContextWithoutKey,
    WriterState,
    WriteSlot,
    list_field,
)
from catalog.api.pagination import SpecPageDep
from catalog.api.responses import identifiers_response, no_content, view_response
from catalog.names import Identifier, check_name, identifier_from_body, require_same_identifier
from catalog.services import namespaces, tables, views
from catalog.services.idempotency import restore_entry, run_once

router = APIRouter(tags=["Catalog API"])


@router.get(
    f"{spec.NAMESPACE}/views",
    operation_id="listViews",
    summary="The views of a namespace",
    **spec.operation("ListTablesResponse", errors=spec.NO_NAMESPACE, parameters=spec.PAGES),
)
def list_views(state: ReaderState, namespace: NamespaceDep, page: SpecPageDep) -> Response:
    namespaces.require_namespace(state, namespace)
    (after,) = page.after("")
    names = state.names(namespace.key, "view", after, page.rows_max)
    return identifiers_response(namespace, *page.cut(names, lambda name: (name,)))


@router.post(
    f"{spec.NAMESPACE}/views",
    operation_id="createView",
    summary="Make a view",
    **spec.operation(
        "LoadViewResponse",
        errors={**spec.NO_NAMESPACE, **spec.EXISTS},
        body="CreateViewRequest",
        writes=True,
    ),
)
def create_view(
    catalog: CatalogDep,
    state: WriterState,
    namespace: NamespaceDep,
    body: JsonBody,
    context: WriteContextWithoutKey,
    _: WriteSlot,
) -> Response:
    view = Identifier(namespace, check_name(body.get("name"), "view"))
    return view_response(views.create(catalog, state, context, view, body))


@router.get(
    spec.VIEW,
    operation_id="loadView",
    summary="A view with its metadata",
    **spec.operation("LoadViewResponse", errors=spec.NO_VIEW, parameters=("referenced-by",)),
)
def load_view(state: ReaderState, view: ViewDep) -> Response:
    return view_response(tables.load(state, view, "view"))


@router.post(
    spec.VIEW,
    operation_id="replaceView",
    summary="Commit changes to a view",
    **spec.operation(
        "LoadViewResponse",
        errors={**spec.NO_VIEW, **spec.COMMIT},
        body="CommitViewRequest",
        writes=True,
        takes_key=True,
    ),
)
def replace_view(
    catalog: CatalogDep,
    state: WriterState,
    view: ViewDep,
    body: JsonBody,
    context: WriteContextDep,
    _: WriteSlot,
) -> Response:
    require_same_identifier(view, body)
    requirements, updates = list_field(body, "requirements"), list_field(body, "updates")
    entry = run_once(
        catalog,
        context,
        work=lambda: views.replace(catalog, state, context, view, requirements, updates),
        restore=lambda saved: restore_entry(catalog, state, view, saved, "view"),
    )
    return view_response(entry)


@router.delete(
    spec.VIEW,
    operation_id="dropView",
    summary="Drop a view",
    **spec.operation(errors=spec.NO_VIEW, writes=True, takes_key=True),
)
def drop_view(
    catalog: CatalogDep, state: WriterState, view: ViewDep, context: WriteContextDep, _: WriteSlot
) -> Response:
    run_once(
        catalog,
        context,
        work=lambda: tables.drop(catalog, state, context, view, "view"),
        restore=lambda _saved: None,
    )
    return no_content()


@router.head(
    spec.VIEW,
    operation_id="viewExists",
    summary="Whether a view exists",
    **spec.operation(errors=spec.NO_VIEW),
)
def view_exists(state: ReaderState, view: ViewDep) -> Response:
    tables.require(state, view, "view")
    return no_content()


@router.post(
    f"{spec.PREFIX}/views/rename",
    operation_id="renameView",
    summary="Rename a view",
    **spec.operation(
        errors={**spec.NO_VIEW, **spec.UNSUPPORTED, **spec.EXISTS},
        body="RenameTableRequest",
        writes=True,
        takes_key=True,
    ),
)
def rename_view(
    catalog: CatalogDep, state: WriterState, body: JsonBody, context: WriteContextDep, _: WriteSlot
) -> Response:
    source = identifier_from_body(body.get("source"))
    target = identifier_from_body(body.get("destination"))
    run_once(
        catalog,
        context,
        work=lambda: tables.rename(catalog, state, context, source, target, "view"),
        restore=lambda _saved: None,
    )
    return no_content()


@router.post(
    f"{spec.NAMESPACE}/register-view",
    operation_id="registerView",
    summary="Create a view from an existing metadata file",
    **spec.operation(
        "LoadViewResponse",
        errors={**spec.NO_NAMESPACE, **spec.EXISTS},
        body="RegisterViewRequest",
        writes=True,
        takes_key=True,
    ),
)
def register_view(
    catalog: CatalogDep,
    state: WriterState,
    namespace: NamespaceDep,
    body: JsonBody,
    context: WriteContextDep,
    _: WriteSlot,
) -> Response:
    view = Identifier(namespace, check_name(body.get("name"), "view"))
    location = body.get("metadata-location")
    entry = run_once(
        catalog,
        context,
        work=lambda: views.register(catalog, state, context, view, location),
        restore=lambda saved: restore_entry(catalog, state, view, saved, "view"),
    )
    return view_response(entry)
