"""The view operations of the specification."""

from __future__ import annotations

from fastapi import APIRouter, Response

from catalog.api import spec
from catalog.api.context import WriteDep, WriteWithoutKeyDep, list_field
from catalog.api.dependencies import NamespaceDep, ReaderState, ViewDep
from catalog.api.pagination import SpecPageDep
from catalog.api.responses import identifiers_response, no_content, view_response
from catalog.names import Identifier, check_name, identifier_from_body, require_same_identifier
from catalog.services import namespaces, tables, views
from catalog.services.writes import restore_entry

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
def create_view(write: WriteWithoutKeyDep, namespace: NamespaceDep) -> Response:
    body = write.json()
    view = Identifier(namespace, check_name(body.get("name"), "view"))
    return view_response(views.create(write.catalog, write.state, write.context, view, body))


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
def replace_view(write: WriteDep, view: ViewDep) -> Response:
    body = write.json()
    require_same_identifier(view, body)
    requirements, updates = list_field(body, "requirements"), list_field(body, "updates")
    entry = write.run_once(
        work=lambda: views.replace(write.catalog, write.state, write.context, view, requirements, updates),
        restore=lambda saved: restore_entry(write.catalog, write.state, view, saved, "view"),
    )
    return view_response(entry)


@router.delete(
    spec.VIEW,
    operation_id="dropView",
    summary="Drop a view",
    **spec.operation(errors=spec.NO_VIEW, writes=True, takes_key=True),
)
def drop_view(write: WriteDep, view: ViewDep) -> Response:
    write.run_once(
        work=lambda: tables.drop(write.catalog, write.state, write.context, view, "view"),
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
def rename_view(write: WriteDep) -> Response:
    body = write.json()
    source = identifier_from_body(body.get("source"))
    target = identifier_from_body(body.get("destination"))
    write.run_once(
        work=lambda: tables.rename(write.catalog, write.state, write.context, source, target, "view"),
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
def register_view(write: WriteDep, namespace: NamespaceDep) -> Response:
    body = write.json()
    view = Identifier(namespace, check_name(body.get("name"), "view"))
    location = body.get("metadata-location")
    entry = write.run_once(
        work=lambda: views.register(write.catalog, write.state, write.context, view, location),
        restore=lambda saved: restore_entry(write.catalog, write.state, view, saved, "view"),
    )
    return view_response(entry)
