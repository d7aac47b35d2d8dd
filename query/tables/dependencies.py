"""FastAPI dependencies of the table functions: one table, opened for a reader or for a writer.

They build on those of the catalog. A warehouse in which the caller has no role is reported as not existing.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, Path, Query, Request

from catalog.api.dependencies import ReaderWarehouse, TableDep, WriteContextWithoutKey, WriterWarehouse
from query.tables.access import TableAccess, TableOpener

TABLE = "/{warehouse}/namespaces/{namespace}/tables/{table}"
MOMENT_FORMS = (
    "a time (ISO 8601 or milliseconds since 1970), a number of the warehouse's history, `5 minutes ago`, "
    "or the id of a snapshot"
)
# Responses of reads besides those that every read under /lake/v1 declares.
NOT_VISIBLE: dict[int | str, dict[str, Any]] = {
    409: {"description": "The moment is a token, and its changes are not visible yet."}
}
TOO_LARGE: dict[int | str, dict[str, Any]] = {
    413: {"description": "The answer, or what must be read for it, is too large."}
}
PREDICATE_EXAMPLE = "status = 'new' AND amount > 10"


async def get_opener(request: Request) -> TableOpener:
    opener: TableOpener = request.app.state.tables
    return opener


OpenerDep = Annotated[TableOpener, Depends(get_opener)]


def reader_table(warehouse: ReaderWarehouse, identifier: TableDep, opener: OpenerDep) -> TableAccess:
    return opener.access(warehouse, identifier)


def writer_table(
    warehouse: WriterWarehouse, identifier: TableDep, opener: OpenerDep, context: WriteContextWithoutKey
) -> TableAccess:
    return opener.access(warehouse, identifier, context)


ReaderTable = Annotated[TableAccess, Depends(reader_table)]
WriterTable = Annotated[TableAccess, Depends(writer_table)]
AsOf = Annotated[str | None, Query(description=f"The moment: {MOMENT_FORMS}. Default: the present")]
SnapshotId = Annotated[int, Path(ge=0, le=2**63 - 1, description="The id of a snapshot")]
