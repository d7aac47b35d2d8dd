"""The table operations of the specification."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator, Sequence
from typing import Annotated

import orjson
from fastapi import APIRouter, Header, Query, Request, Response
from starlette.datastructures import Headers
from starlette.types import Receive, Scope, Send

from catalog.api import spec
from catalog.api.context import CommitDep, WriteDep, list_field, parse_namespace
from catalog.api.dependencies import (
    CallerDep,
    CatalogDep,
    JsonBody,
    NamespaceDep,
    ReaderState,
    TableDep,
    WriteSlot,
    boolean_field,
    raw_query,
)
from catalog.api.pagination import SpecPageDep
from catalog.api.responses import JSON, identifiers_response, json_response, no_content, with_location
from catalog.errors import Invalid
from catalog.metadata.tables import with_refs_only
from catalog.models import CatalogEntry, Text
from catalog.names import (
    Identifier,
    check_name,
    decode_segment,
    identifier_from_body,
    require_same_identifier,
)
from catalog.services import commits, namespaces, reports, tables
from catalog.services.catalog import Catalog
from catalog.services.warehouse_state import WarehouseState
from catalog.services.writes import restore_entry, restore_from_file

router = APIRouter(tags=["Catalog API"])

REFERENCED_BY_MAX = 32
PIECE_BYTES = 256 * 1024
END = b',"config":{}}'


def etag(entry: CatalogEntry, snapshots: str = "all") -> str:
    """It depends on the version of the table and on the parameter `snapshots`."""
    text = f"{entry.uuid}\0{entry.version}\0{entry.metadata_location}\0{snapshots}"
    return f'"{hashlib.blake2b(text.encode(), digest_size=12).hexdigest()}"'


def etag_matches(if_none_match: str, tag: str) -> bool:
    return any(part.strip() in ("*", tag, f"W/{tag}") for part in if_none_match.split(","))


def table_response(entry: CatalogEntry, document: bytes | None = None, snapshots: str = "all") -> Response:
    """LoadTableResult and CommitTableResponse: the table with its whole document, or with `document`."""
    text = document if document is not None else entry.text
    assert text is not None, "the entry of a response carries its document"
    # The stored text is not parsed again.
    before = b'{"metadata-location":%s,"metadata":' % orjson.dumps(entry.metadata_location)
    headers = {"ETag": etag(entry, snapshots)}
    if len(text) > PIECE_BYTES:
        return LongResponse(before, text, END, headers)
    return Response(b"".join((before, bytes(text), END)), headers=headers, media_type=JSON)


class LongResponse(Response):
    """A response whose body is sent in pieces. A text that has its gzip form is sent as that, if the client
    accepts it; other texts are left to the middleware.

    The HTTP library copies what it gets. In one piece, 28 MB of metadata took 48 ms of processor time, most
    of it for memory that the kernel has to clear; in pieces 10 ms.
    """

    def __init__(self, before: bytes, text: Text, after: bytes, headers: dict[str, str]) -> None:
        super().__init__(headers=headers, media_type=JSON)
        self._before, self._text, self._after = before, text, after

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        text = self._text
        parts: Sequence[bytes]
        if not isinstance(text, bytes) and "gzip" in Headers(scope=scope).get("accept-encoding", ""):
            parts = await asyncio.to_thread(text.gzipped, self._before, self._after)
            self.headers["content-encoding"] = "gzip"
            self.headers.add_vary_header("Accept-Encoding")
        else:
            inner = [text] if isinstance(text, bytes) else text.parts()
            parts = [self._before, *inner, self._after]
        self.headers["content-length"] = str(sum(map(len, parts)))
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        for body in _pieces(parts):
            await send({"type": "http.response.body", "body": body, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


def _pieces(parts: Sequence[bytes]) -> Iterator[bytes]:
    """The parts in pieces of at most `PIECE_BYTES`. Short ones are joined."""
    joined: list[bytes] = []
    for part in parts:
        for begin in range(0, len(part), PIECE_BYTES):
            piece = part[begin : begin + PIECE_BYTES]
            if sum(map(len, joined)) + len(piece) > PIECE_BYTES:
                yield b"".join(joined)
                joined = []
            joined.append(piece)
    yield b"".join(joined)


@router.get(
    spec.TABLE,
    operation_id="loadTable",
    summary="A table with its metadata",
    **spec.operation(
        "LoadTableResponse",
        errors={**spec.NO_TABLE, "304": "NotModifiedResponse"},
        parameters=("data-access", "if-none-match", "snapshots", "referenced-by"),
    ),
)
def load_table(
    request: Request,
    catalog: CatalogDep,
    state: ReaderState,
    table: TableDep,
    snapshots: Annotated[str, Query()] = "all",
    if_none_match: Annotated[str | None, Header()] = None,
) -> Response:
    if snapshots not in ("all", "refs"):
        raise Invalid("snapshots must be all or refs")
    _check_referenced_by(request)
    if if_none_match is not None:
        entry = tables.require(state, table)
        tag = etag(entry, snapshots)
        if etag_matches(if_none_match, tag):
            _require_file(catalog, state, entry)
            return Response(status_code=304, headers={"ETag": tag})
    entry = tables.load(state, table)
    _require_file(catalog, state, entry)
    if snapshots == "refs":
        document = orjson.dumps(with_refs_only(orjson.loads(entry.document or b"{}")))
        return table_response(entry, document, snapshots)
    return table_response(entry)


@router.post(
    spec.TABLE,
    operation_id="updateTable",
    summary="Commit changes to a table",
    **spec.operation(
        "CommitTableResponse",
        errors={**spec.NO_TABLE, **spec.COMMIT},
        body="CommitTableRequest",
        writes=True,
        takes_key=True,
    ),
)
def commit_table(write: CommitDep, table: TableDep) -> Response:
    body = write.json()
    require_same_identifier(table, body)
    commit = commits.TableCommit(table, list_field(body, "requirements"), list_field(body, "updates"))
    entry = write.run_once(
        work=lambda: commits.commit_tables(write.catalog, write.state, write.context, [commit])[0],
        restore=lambda saved: restore_entry(write.catalog, write.state, table, saved),
    )
    return table_response(entry)


@router.head(
    spec.TABLE,
    operation_id="tableExists",
    summary="Whether a table exists",
    **spec.operation(errors=spec.NO_TABLE),
)
def table_exists(state: ReaderState, table: TableDep) -> Response:
    tables.require(state, table)
    return no_content()


@router.delete(
    spec.TABLE,
    operation_id="dropTable",
    summary="Drop a table, and purge its files if requested",
    **spec.operation(errors=spec.NO_TABLE, parameters=("purge-requested",), writes=True, takes_key=True),
)
def drop_table(
    write: WriteDep, table: TableDep, purge_requested: Annotated[str, Query(alias="purgeRequested")] = "false"
) -> Response:
    if purge_requested.lower() not in ("true", "false"):
        raise Invalid("purgeRequested must be true or false")
    purge = purge_requested.lower() == "true"
    write.run_once(
        work=lambda: tables.drop_table(write.catalog, write.state, write.context, table, purge=purge),
        restore=lambda _saved: None,
    )
    return no_content()


@router.get(
    f"{spec.NAMESPACE}/tables",
    operation_id="listTables",
    summary="The tables of a namespace",
    **spec.operation("ListTablesResponse", errors=spec.NO_NAMESPACE, parameters=spec.PAGES),
)
def list_tables(state: ReaderState, namespace: NamespaceDep, page: SpecPageDep) -> Response:
    namespaces.require_namespace(state, namespace)
    (after,) = page.after("")
    names = state.names(namespace.key, "table", after, page.rows_max)
    return identifiers_response(namespace, *page.cut(names, lambda name: (name,)))


@router.post(
    f"{spec.NAMESPACE}/tables",
    operation_id="createTable",
    summary="Create a table, or stage one that its first commit creates",
    **spec.operation(
        "CreateTableResponse",
        errors={**spec.NO_NAMESPACE, **spec.EXISTS},
        parameters=("data-access",),
        body="CreateTableRequest",
        writes=True,
        takes_key=True,
    ),
)
def create_table(write: WriteDep, namespace: NamespaceDep) -> Response:
    body = write.json()
    table = Identifier(namespace, check_name(body.get("name"), "table"))
    if boolean_field(body, "stage-create"):
        metadata = tables.stage(write.catalog, write.state, table, body)
        return json_response({"metadata-location": None, "metadata": metadata, "config": {}})
    entry = write.run_once(
        work=lambda: tables.create(write.catalog, write.state, write.context, table, body),
        restore=lambda saved: restore_entry(write.catalog, write.state, table, saved),
    )
    return table_response(entry)


@router.post(
    f"{spec.NAMESPACE}/register",
    operation_id="registerTable",
    summary="Create a table from an existing metadata file",
    **spec.operation(
        "LoadTableResponse",
        errors={**spec.NO_NAMESPACE, **spec.EXISTS},
        parameters=("data-access",),
        body="RegisterTableRequest",
        writes=True,
        takes_key=True,
    ),
)
def register_table(write: WriteDep, namespace: NamespaceDep) -> Response:
    body = write.json()
    table = Identifier(namespace, check_name(body.get("name"), "table"))
    overwrite = boolean_field(body, "overwrite")
    location = body.get("metadata-location")
    entry = write.run_once(
        work=lambda: tables.register(
            write.catalog, write.state, write.context, table, location, overwrite=overwrite
        ),
        restore=lambda saved: restore_entry(write.catalog, write.state, table, saved),
    )
    return table_response(entry)


@router.post(
    f"{spec.TABLE}/unregister",
    operation_id="unregisterTable",
    summary="Remove a table from the catalog and keep its files",
    **spec.operation("UnregisterTableResponse", errors=spec.NO_TABLE, writes=True, takes_key=True),
)
def unregister_table(write: WriteDep, table: TableDep) -> Response:
    entry = write.run_once(
        work=lambda: tables.unregister(write.catalog, write.state, write.context, table),
        restore=lambda saved: restore_from_file(write.catalog, table, saved),
    )
    return Response(with_location(entry, b"}"), media_type=JSON)


@router.post(
    f"{spec.PREFIX}/tables/rename",
    operation_id="renameTable",
    summary="Rename a table",
    **spec.operation(
        errors={**spec.NO_TABLE, **spec.UNSUPPORTED, **spec.EXISTS},
        body="RenameTableRequest",
        writes=True,
        takes_key=True,
    ),
)
def rename_table(write: WriteDep) -> Response:
    body = write.json()
    source = identifier_from_body(body.get("source"))
    target = identifier_from_body(body.get("destination"))
    write.run_once(
        work=lambda: tables.rename(write.catalog, write.state, write.context, source, target),
        restore=lambda _saved: None,
    )
    return no_content()


# A caller that may scan a table may report on the scan, so the role reader is enough.
@router.post(
    f"{spec.TABLE}/metrics",
    operation_id="reportMetrics",
    summary="Report metrics of a scan or a commit",
    **spec.operation(errors=spec.NO_TABLE, body="ReportMetricsRequest"),
)
def report_metrics(
    catalog: CatalogDep, caller: CallerDep, state: ReaderState, table: TableDep, body: JsonBody, _: WriteSlot
) -> Response:
    reports.keep(catalog, state, caller.name, table, body)
    return no_content()


def _require_file(catalog: Catalog, state: WarehouseState, entry: CatalogEntry) -> None:
    # The file of a past version may have been deleted; its document is then rebuilt from a later one.
    if state.is_present:
        tables.require_file(catalog, entry)


def _check_referenced_by(request: Request) -> None:
    """Check the chain of views that leads to the table. It is not used yet."""
    raw = raw_query(request, "referenced-by")
    views = raw.split(",") if raw else []
    if len(views) > REFERENCED_BY_MAX:
        raise Invalid(f"referenced-by may name at most {REFERENCED_BY_MAX} views")
    for view in views:
        namespace, separator, name = view.replace("%1f", "%1F").rpartition("%1F")
        if not separator:
            raise Invalid("referenced-by must be a list of namespace, separator and view name")
        parse_namespace(request, namespace)
        decode_segment(name)
