"""What the client returns: the result of a query, and the acknowledgement of a write."""

from __future__ import annotations

import importlib
import importlib.util
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import httpx

from calve.client.values import from_json
from calve.errors import MissingPackage, QueryFailed

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

ARROW = "application/vnd.apache.arrow.stream"


@dataclass(frozen=True, slots=True)
class Result:
    """The rows of a query, and which state of the lake they show.

    Iterate over it for rows as dicts. Values are Python's own: int, Decimal, datetime, list, dict.
    """

    columns: list[str]
    as_of: Mapping[str, Any]  #: warehouse, number, time, commit_time
    snapshots: Mapping[str, int | None]  #: the snapshot of each table
    freshness_ms: int  #: the age of the oldest acknowledged change that the rows do not show; 0 if none
    elapsed_ms: float  #: from the request to the last row, at the client
    query_id: str
    _rows: list[dict[str, Any]] | None = field(default=None, repr=False)
    _table: Any = field(default=None, repr=False)  # pyarrow.Table

    @property
    def rows(self) -> list[dict[str, Any]]:
        """All rows as dicts."""
        if self._rows is None:
            object.__setattr__(self, "_rows", rows_of(self._table, self.columns))
        assert self._rows is not None
        return self._rows

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self._rows) if self._rows is not None else int(self._table.num_rows)

    def arrow(self) -> pyarrow.Table:
        """The rows as an Arrow table, with exact types. Needs pyarrow."""
        require("pyarrow", "arrow()")
        if self._table is None:
            raise MissingPackage("pyarrow was installed after this query ran: run it again.")
        return self._table

    def df(self) -> pandas.DataFrame:
        """The rows as a pandas data frame. Needs pandas and pyarrow."""
        require("pandas", "df()")
        return self.arrow().to_pandas()

    def pl(self) -> polars.DataFrame:
        """The rows as a polars data frame. Needs polars and pyarrow."""
        found: polars.DataFrame = require("polars", "pl()").from_arrow(self.arrow())
        return found


@dataclass(frozen=True, slots=True)
class WriteResult:
    """The rows are durable, and with wait="commit" visible if `committed` says so."""

    accepted: int
    duplicates: int  #: sent before, and recognised
    dead_lettered: int  #: kept because they cannot land; `problems` says why
    token: str  #: names the position, for consistency="at_least:TOKEN"
    committed: bool | None  #: None without wait="commit"
    snapshots: list[dict[str, Any]]
    problems: list[dict[str, Any]]


def has_arrow() -> bool:
    return importlib.util.find_spec("pyarrow") is not None


def require(package: str, method: str) -> Any:
    """The package; MissingPackage with the command that installs it."""
    try:
        return importlib.import_module(package)
    except ImportError:
        raise MissingPackage(f"{method} needs {package}: pip install {package}") from None


def result_of(response: httpx.Response, elapsed_ms: float) -> Result:
    """The result that a response of /query holds, in Arrow or in JSON."""
    if response.headers.get("content-type", "").startswith(ARROW):
        return _from_arrow(response, elapsed_ms)
    body = response.json()
    if error := body.get("error"):
        raise QueryFailed(error["message"], status=error.get("code"), type=error.get("type", ""))
    types = {column["name"]: column["type"] for column in body["columns"]}
    rows = [
        {name: from_json(value, types.get(name, "")) for name, value in row.items()} for row in body["rows"]
    ]
    names = list(rows[0]) if rows else [column["name"] for column in body["columns"]]
    return Result(
        columns=names,
        as_of=body["as_of"],
        snapshots=body["snapshots"],
        freshness_ms=body["freshness_ms"],
        elapsed_ms=elapsed_ms,
        query_id=body["query_id"],
        _rows=rows,
    )


def _from_arrow(response: httpx.Response, elapsed_ms: float) -> Result:
    import pyarrow as pa

    headers = response.headers
    table = pa.ipc.open_stream(response.content).read_all()
    return Result(
        columns=unique_names(table.column_names),
        as_of=json.loads(headers["calve-as-of"]),
        snapshots=json.loads(headers["calve-snapshots"]),
        freshness_ms=int(headers["calve-freshness-ms"]),
        elapsed_ms=elapsed_ms,
        query_id=headers["calve-query-id"],
        _table=table,
    )


def rows_of(table: Any, names: Sequence[str]) -> list[dict[str, Any]]:
    """The rows of an Arrow table. Nanoseconds are cut to microseconds, which is what Python has."""
    import pyarrow as pa

    columns = []
    for column in table.columns:
        if pa.types.is_timestamp(column.type) and column.type.unit == "ns":
            column = column.cast(pa.timestamp("us", tz=column.type.tz), safe=False)  # noqa: PLW2901
        elif pa.types.is_time64(column.type) and column.type.unit == "ns":
            column = column.cast(pa.time64("us"), safe=False)  # noqa: PLW2901
        columns.append(column.to_pylist())
    if not columns:
        return [{} for _ in range(table.num_rows)]
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def unique_names(names: Sequence[str]) -> list[str]:
    """As the server names columns in JSON objects: a second `id` becomes `id_1`."""
    used: set[str] = set()
    found = []
    for name in names:
        unique, number = name, 0
        while unique in used or (number and unique in names):
            number += 1
            unique = f"{name}_{number}"
        used.add(unique)
        found.append(unique)
    return found
