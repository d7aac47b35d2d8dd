"""The operations of the Iceberg REST spec that Calve serves, as data.

One table, three readers: the HTTP edge builds its routes from it, `/v1/config` advertises it, and
`calve/openapi.py` writes the paths of `openapi/iceberg-rest.yaml` from it. So what is routed, what a client
is told and what is described cannot differ. Names of parameters, schemas and responses are those under
`components` of that file. Plain data: importing it costs nothing at start-up.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

PREFIX: Final = "/v1/{prefix}"
NAMESPACE: Final = f"{PREFIX}/namespaces/{{namespace}}"
TABLE: Final = f"{NAMESPACE}/tables/{{table}}"
VIEW: Final = f"{NAMESPACE}/views/{{view}}"

# What the spec lists for every operation that has a caller.
_EVERYWHERE: Final = {
    "400": "BadRequestErrorResponse",
    "401": "UnauthorizedResponse",
    "403": "ForbiddenResponse",
    "419": "AuthenticationTimeoutResponse",
    "503": "ServiceUnavailableResponse",
    "5XX": "ServerErrorResponse",
}


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation. `path` is the template on the wire; `parameters` are those outside the path.

    `success` and `errors` map a status code to a name under components/responses.
    """

    id: str
    method: str
    path: str
    summary: str
    success: Mapping[str, str]
    errors: Mapping[str, str]  # its own, beside those of every operation
    parameters: tuple[str, ...] = ()  # names under components/parameters, without Idempotency-Key
    request_schema: str | None = None
    request_type: str = "application/json"
    idempotent_key: bool = False  # takes the header Idempotency-Key
    writes: bool = False  # changes the warehouse: needs the writer role
    secured: bool = True  # needs a caller
    deprecated: bool = False
    tag: str = "Catalog API"

    @property
    def endpoint(self) -> str:
        """Method and path as clients know it from `endpoints` in `/v1/config`."""
        return f"{self.method} {self.path}"

    @property
    def path_parameters(self) -> tuple[str, ...]:
        return tuple(re.findall(r"\{([^}]+)\}", self.path))

    @property
    def responses(self) -> dict[str, str]:
        """All its status codes: its own, those of every operation, and what only Calve sends."""
        everywhere = _EVERYWHERE if self.secured else {}
        return dict(sorted({**everywhere, **self._beyond_the_spec(), **self.errors, **self.success}.items()))

    def _beyond_the_spec(self) -> dict[str, str]:
        added = {}
        if "prefix" in self.path_parameters:
            # The prefix is a warehouse, a past moment or an open transaction, and that may not be there.
            added["404"] = "NoSuchWarehouseResponse"
        if self.writes:
            # The open transaction that a write belongs to may be over; the table may be protected.
            added["409"] = "ConflictResponse"
        if self.request_schema is not None:
            # Bodies have a limit, and it is kept before they are parsed.
            added["413"] = "PayloadTooLargeResponse"
        return added


_PAGING: Final = ("page-token", "page-size")
_NO_CONTENT: Final = {"204": "NoContentResponse"}
_TABLE_LOADED: Final = {"200": "LoadTableResponse"}
_VIEW_LOADED: Final = {"200": "LoadViewResponse"}
_NO_NAMESPACE: Final = {"404": "NoSuchNamespaceResponse"}
_NO_TABLE: Final = {"404": "NoSuchTableResponse"}
_NO_VIEW: Final = {"404": "NoSuchViewResponse"}
_EXISTS: Final = {"409": "AlreadyExistsResponse"}
_UNSUPPORTED: Final = {"406": "UnsupportedOperationResponse"}
_COMMIT: Final = {
    "409": "CommitFailedResponse",
    "500": "CommitStateUnknownResponse",
    "502": "CommitStateUnknownResponse",
    "504": "CommitStateUnknownResponse",
}

_OPENING: Final = (
    Operation(
        "getConfig",
        "GET",
        "/v1/config",
        "What a client must know before its first call",
        success={"200": "CatalogConfigResponse"},
        errors={"404": "NoSuchWarehouseResponse"},
        parameters=("warehouse",),
        tag="Configuration API",
    ),
    # The one operation that speaks OAuth's form of errors and knows no caller yet.
    Operation(
        "getToken",
        "POST",
        "/v1/oauth/tokens",
        "A bearer token for the name and secret of a principal",
        success={"200": "OAuthTokenResponse"},
        errors={"400": "OAuthErrorResponse", "401": "OAuthErrorResponse", "5XX": "OAuthErrorResponse"},
        request_schema="OAuthTokenRequest",
        request_type="application/x-www-form-urlencoded",
        secured=False,
        deprecated=True,
        tag="OAuth2 API",
    ),
)

_NAMESPACES: Final = (
    Operation(
        "listNamespaces",
        "GET",
        f"{PREFIX}/namespaces",
        "The namespaces at the top, or below a parent",
        success={"200": "ListNamespacesResponse"},
        errors=_NO_NAMESPACE,
        parameters=(*_PAGING, "parent"),
    ),
    Operation(
        "createNamespace",
        "POST",
        f"{PREFIX}/namespaces",
        "Make a namespace",
        success={"200": "CreateNamespaceResponse"},
        errors={**_UNSUPPORTED, **_EXISTS},
        request_schema="CreateNamespaceRequest",
        idempotent_key=True,
        writes=True,
    ),
    Operation(
        "loadNamespaceMetadata",
        "GET",
        NAMESPACE,
        "A namespace and its properties",
        success={"200": "GetNamespaceResponse"},
        errors=_NO_NAMESPACE,
    ),
    Operation(
        "namespaceExists",
        "HEAD",
        NAMESPACE,
        "Whether a namespace is there",
        success=_NO_CONTENT,
        errors=_NO_NAMESPACE,
    ),
    Operation(
        "dropNamespace",
        "DELETE",
        NAMESPACE,
        "Drop an empty namespace",
        success=_NO_CONTENT,
        errors={**_NO_NAMESPACE, "409": "NamespaceNotEmptyResponse"},
        idempotent_key=True,
        writes=True,
    ),
    Operation(
        "updateProperties",
        "POST",
        f"{NAMESPACE}/properties",
        "Set and remove properties of a namespace",
        success={"200": "UpdateNamespacePropertiesResponse"},
        errors={**_NO_NAMESPACE, **_UNSUPPORTED, "422": "UnprocessableEntityResponse"},
        request_schema="UpdateNamespacePropertiesRequest",
        idempotent_key=True,
        writes=True,
    ),
)

_TABLES: Final = (
    Operation(
        "listTables",
        "GET",
        f"{NAMESPACE}/tables",
        "The tables of a namespace",
        success={"200": "ListTablesResponse"},
        errors=_NO_NAMESPACE,
        parameters=_PAGING,
    ),
    Operation(
        "createTable",
        "POST",
        f"{NAMESPACE}/tables",
        "Make a table, or stage one that its first commit will make",
        success={"200": "CreateTableResponse"},
        errors={**_NO_NAMESPACE, **_EXISTS},
        parameters=("data-access",),
        request_schema="CreateTableRequest",
        idempotent_key=True,
        writes=True,
    ),
    Operation(
        "registerTable",
        "POST",
        f"{NAMESPACE}/register",
        "Give a name to a table that exists as files",
        success=_TABLE_LOADED,
        errors={**_NO_NAMESPACE, **_EXISTS},
        parameters=("data-access",),
        request_schema="RegisterTableRequest",
        idempotent_key=True,
        writes=True,
    ),
    Operation(
        "loadTable",
        "GET",
        TABLE,
        "A table with its metadata",
        success={**_TABLE_LOADED, "304": "NotModifiedResponse"},
        errors=_NO_TABLE,
        parameters=("data-access", "if-none-match", "snapshots", "referenced-by"),
    ),
    Operation(
        "updateTable",
        "POST",
        TABLE,
        "Commit changes to a table",
        success={"200": "CommitTableResponse"},
        errors={**_NO_TABLE, **_COMMIT},
        request_schema="CommitTableRequest",
        idempotent_key=True,
        writes=True,
    ),
    Operation(
        "dropTable",
        "DELETE",
        TABLE,
        "Drop a table, and its files if asked",
        success=_NO_CONTENT,
        errors=_NO_TABLE,
        parameters=("purge-requested",),
        idempotent_key=True,
        writes=True,
    ),
    Operation(
        "tableExists",
        "HEAD",
        TABLE,
        "Whether a table is there",
        success=_NO_CONTENT,
        errors=_NO_TABLE,
    ),
    Operation(
        "unregisterTable",
        "POST",
        f"{TABLE}/unregister",
        "Forget a table and leave all its files",
        success={"200": "UnregisterTableResponse"},
        errors=_NO_TABLE,
        idempotent_key=True,
        writes=True,
    ),
    Operation(
        "renameTable",
        "POST",
        f"{PREFIX}/tables/rename",
        "Give a table another name",
        success=_NO_CONTENT,
        errors={**_NO_TABLE, **_UNSUPPORTED, **_EXISTS},
        request_schema="RenameTableRequest",
        idempotent_key=True,
        writes=True,
    ),
    # Whoever may scan a table may tell how the scan went: not a write.
    Operation(
        "reportMetrics",
        "POST",
        f"{TABLE}/metrics",
        "Tell how a scan or a commit went",
        success=_NO_CONTENT,
        errors=_NO_TABLE,
        request_schema="ReportMetricsRequest",
    ),
    Operation(
        "commitTransaction",
        "POST",
        f"{PREFIX}/transactions/commit",
        "Commit changes to several tables, all or nothing",
        success=_NO_CONTENT,
        errors={**_NO_TABLE, **_COMMIT},
        request_schema="CommitTransactionRequest",
        idempotent_key=True,
        writes=True,
    ),
)

_VIEWS: Final = (
    Operation(
        "listViews",
        "GET",
        f"{NAMESPACE}/views",
        "The views of a namespace",
        success={"200": "ListTablesResponse"},
        errors=_NO_NAMESPACE,
        parameters=_PAGING,
    ),
    Operation(
        "createView",
        "POST",
        f"{NAMESPACE}/views",
        "Make a view",
        success=_VIEW_LOADED,
        errors={**_NO_NAMESPACE, **_EXISTS},
        request_schema="CreateViewRequest",
        writes=True,
    ),
    Operation(
        "loadView",
        "GET",
        VIEW,
        "A view with its metadata",
        success=_VIEW_LOADED,
        errors=_NO_VIEW,
        parameters=("referenced-by",),
    ),
    Operation(
        "replaceView",
        "POST",
        VIEW,
        "Commit changes to a view",
        success=_VIEW_LOADED,
        errors={**_NO_VIEW, **_COMMIT},
        request_schema="CommitViewRequest",
        idempotent_key=True,
        writes=True,
    ),
    Operation(
        "dropView",
        "DELETE",
        VIEW,
        "Drop a view",
        success=_NO_CONTENT,
        errors=_NO_VIEW,
        idempotent_key=True,
        writes=True,
    ),
    Operation(
        "viewExists",
        "HEAD",
        VIEW,
        "Whether a view is there",
        success=_NO_CONTENT,
        errors=_NO_VIEW,
    ),
    Operation(
        "renameView",
        "POST",
        f"{PREFIX}/views/rename",
        "Give a view another name",
        success=_NO_CONTENT,
        errors={**_NO_VIEW, **_UNSUPPORTED, **_EXISTS},
        request_schema="RenameTableRequest",
        idempotent_key=True,
        writes=True,
    ),
    Operation(
        "registerView",
        "POST",
        f"{NAMESPACE}/register-view",
        "Give a name to a view that exists as a metadata file",
        success=_VIEW_LOADED,
        errors={**_NO_NAMESPACE, **_EXISTS},
        request_schema="RegisterViewRequest",
        idempotent_key=True,
        writes=True,
    ),
)

OPERATIONS: Final[tuple[Operation, ...]] = (*_OPENING, *_NAMESPACES, *_TABLES, *_VIEWS)

BY_ID: Final[Mapping[str, Operation]] = {operation.id: operation for operation in OPERATIONS}


def endpoint_strings() -> list[str]:
    """What `/v1/config` advertises: all operations below a prefix. Config and tokens go without saying."""
    return [operation.endpoint for operation in OPERATIONS if operation.path.startswith(PREFIX)]
