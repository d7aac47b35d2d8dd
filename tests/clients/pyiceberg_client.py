"""PyIceberg as a black-box user."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.table import Table

from tests.harness.stacks import Stack


def catalog(stack: Stack, warehouse: str = "main") -> RestCatalog:
    properties = {key: value for key, value in stack.client_properties.items() if key != "type"}
    return RestCatalog("lake", **properties, warehouse=warehouse)


def rows(table: Table, **scan: Any) -> list[tuple[Any, ...]]:
    """All rows, sorted, so that two engines can be compared."""
    read = table.scan(**scan).to_arrow()
    return sorted((tuple(row.values()) for row in read.to_pylist()), key=repr)


def arrow(*records: dict[str, Any], schema: pa.Schema | None = None) -> pa.Table:
    return pa.Table.from_pylist(list(records), schema=schema)
