"""FastAPI dependencies of ingest routes: the context, the warehouse, the caller and the names in the path."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Path, Query, Request

from catalog.errors import Invalid
from catalog.names import decode_segment, namespace_from_segment
from ingest.api.context import ApiContext, ContextOf
from ingest.change import TableName, reserved

WarehouseQuery = Annotated[str | None, Query(description="The warehouse; main if left out")]


async def _warehouse(context: ContextOf, warehouse: WarehouseQuery = None) -> str:
    return warehouse or context.settings.default_warehouse


WarehouseOf = Annotated[str, Depends(_warehouse)]


async def _reader(request: Request, context: ContextOf, warehouse: WarehouseOf) -> str:
    return await _known(request, context, warehouse, writes=False)


async def _writer(request: Request, context: ContextOf, warehouse: WarehouseOf) -> str:
    return await _known(request, context, warehouse, writes=True)


async def _path_reader(
    request: Request,
    context: ContextOf,
    warehouse: Annotated[str, Path(description="The name of a warehouse, such as main")],
) -> str:
    return await _known(request, context, warehouse, writes=False)


async def _known(request: Request, context: ApiContext, warehouse: str, *, writes: bool) -> str:
    """Return the name of a warehouse in which the caller has the role. Sets the caller for the log."""
    require = context.access.writer if writes else context.access.reader
    authorization = request.headers.get("authorization")
    caller = await context.run_query(lambda: require(authorization, warehouse))
    request.scope["calve.caller"] = caller.name
    return warehouse


# The name of a warehouse in which the caller may read or write.
Readable = Annotated[str, Depends(_reader)]
Writable = Annotated[str, Depends(_writer)]
ReadablePath = Annotated[str, Depends(_path_reader)]


async def _table(
    namespace: Annotated[
        str, Path(min_length=1, description="Levels of the namespace, joined with %1F or with dots")
    ],
    table: Annotated[
        str,
        Path(
            min_length=1,
            description="The name of the table, percent-encoded; it overrides the name in the events",
        ),
    ],
) -> TableName:
    """Parse the table name. The path has not been decoded, so an encoded slash stays inside its name."""
    name = decode_segment(table)
    reason = reserved(name)
    if reason is not None:
        raise Invalid(f"the table {name} is reserved: {reason}")
    return (*namespace_from_segment(namespace, ".").levels, name)


async def _topic(
    topic: Annotated[
        str, Path(min_length=1, description="A Kafka topic; the table, if the records do not name one")
    ],
) -> str:
    return decode_segment(topic)


TableOf = Annotated[TableName, Depends(_table)]
TopicOf = Annotated[str, Depends(_topic)]
