"""The operations of a lake, as steps that `Connection` and `AsyncConnection` run."""

from __future__ import annotations

import itertools
import time
import uuid
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote, unquote

from calve.client.calls import Call, Steps
from calve.client.names import TableName, dotted, levels_of, namespace_path, table_path
from calve.client.results import Result, WriteResult, has_arrow, result_of
from calve.client.rows import Chunk, Row, Source, chunks, is_change
from calve.client.times import Moment, moment_parameter
from calve.errors import CalveError, DeadLetterWarning, QueryFailed

Params = Mapping[str, Any] | Sequence[Any]
Wait = Literal["journal", "commit"]
Progress = Callable[[int], None]

RESPONSE_MARGIN_S = 10.0  # the server answers at the end of its own time limit
QUERY_TIMEOUT_S = 600.0
QUERY_STATUSES = frozenset({400, 409, 413})


@dataclass(frozen=True, slots=True)
class WarehouseAddress:
    """A warehouse of a server: where calls go."""

    url: str
    token: str | None
    warehouse: str
    prefix: str  # of the warehouse in paths of the catalog
    separator: str  # of the levels of a namespace
    defaults: Mapping[str, str]  # what the server tells engines about its storage

    def table(self, levels: Sequence[str], rest: str = "") -> str:
        """A path of Calve's own routes."""
        return f"/lake/v1/{quote(self.warehouse, safe='')}/{table_path(levels, self.separator)}{rest}"

    def catalog(self, path: str) -> str:
        """A path of the Iceberg REST specification."""
        return f"/v1/{quote(self.prefix, safe='')}/{path}"


def open_warehouse(url: str, token: str | None, warehouse: str) -> Steps[WarehouseAddress]:
    """Check that the server answers and the warehouse is there."""
    response = yield Call("GET", "/v1/config", {"warehouse": warehouse})
    found = response.json()
    overrides = found.get("overrides", {})
    separator = unquote(overrides.get("namespace-separator", "%1F"))
    prefix = overrides.get("prefix", warehouse)
    return WarehouseAddress(url, token, warehouse, prefix, separator, found.get("defaults", {}))


# -- queries


def query_call(  # noqa: PLR0913 - the fields of the request
    address: WarehouseAddress,
    sql: str,
    params: Params | None = None,
    *,
    as_of: Moment | None = None,
    snapshot_id: int | None = None,
    consistency: str | None = None,
    warehouse: str | None = None,
    namespace: str | None = None,
    format: str = "json",  # noqa: A002 - the API's word
) -> Call:
    """`POST /query`."""
    body = {
        "sql": sql,
        "params": None if params is None else dict(params) if isinstance(params, Mapping) else list(params),
        "as_of": moment_parameter(as_of),
        "snapshot_id": snapshot_id,
        "consistency": consistency,
        "warehouse": warehouse or address.warehouse,
        "namespace": namespace,
        "format": format,
    }
    given = {name: value for name, value in body.items() if value is not None}
    return Call("POST", "/query", json=given, timeout_s=QUERY_TIMEOUT_S)


def query(address: WarehouseAddress, sql: str, params: Params | None, **more: Any) -> Steps[Result]:
    began_s = time.monotonic()
    response = yield query_call(address, sql, params, format="arrow" if has_arrow() else "json", **more)
    return result_of(response, (time.monotonic() - began_s) * 1000)


def query_error(error: CalveError) -> CalveError:
    """The error of a query: what the SQL caused is a QueryFailed."""
    if error.status in QUERY_STATUSES:
        return QueryFailed(error.message, status=error.status, type=error.type)
    return error


# -- writes


def write(  # noqa: PLR0913 - the arguments of Lake.write
    address: WarehouseAddress,
    source: Source,
    table: TableName,
    rows: Iterable[Row] | Row,
    *,
    key: str | Sequence[str] | None = None,
    wait: Wait = "journal",
    timeout_s: float | None = None,
    idempotency_key: str | None = None,
    progress: Progress | None = None,
) -> Steps[WriteResult]:
    """Send rows or changes in as many requests as their size needs. The last one waits, if any does."""
    columns = [key] if isinstance(key, str) else list(key or ())
    iterator = iter([rows] if isinstance(rows, Mapping) else rows)
    first = next(iterator, None)
    headers: dict[str, str] = {}
    whole: Iterable[Row] = itertools.chain([] if first is None else [first], iterator)
    are_changes = first is not None and is_change(first)
    if are_changes:
        whole = source.events(whole, columns)
        headers["X-Source-Id"] = source.name
    name = idempotency_key or uuid.uuid4().hex
    answers: list[dict[str, Any]] = []
    for number, (chunk, is_last) in enumerate(_marked(chunks(whole))):
        call = _write_call(address, levels_of(table), chunk, "native" if are_changes else "rows", columns)
        named = headers if are_changes else {"Idempotency-Key": f"{name}-{number}"}
        response = yield _waiting(call, wait if is_last else "journal", timeout_s, named)
        answers.append(response.json())
        if progress is not None:
            progress(chunk.count)
    return _summed(answers)


def _marked(found: Iterable[Chunk]) -> Iterable[tuple[Chunk, bool]]:
    """Each chunk, and whether it is the last."""
    held: Chunk | None = None
    for chunk in found:
        if held is not None:
            yield held, False
        held = chunk
    if held is not None:
        yield held, True


def _write_call(
    address: WarehouseAddress, levels: Sequence[str], chunk: Chunk, format_: str, columns: Sequence[str]
) -> Call:
    path = f"/cdc/{namespace_path(levels[:-1], address.separator)}/{quote(levels[-1], safe='')}"
    params = {"warehouse": address.warehouse, "format": format_}
    if columns and format_ == "rows":
        params["key"] = ",".join(columns)
    return Call("POST", path, params, content=chunk.body, is_repeatable=True)


def _waiting(call: Call, wait: Wait, timeout_s: float | None, headers: Mapping[str, str]) -> Call:
    params = dict(call.params)
    http_timeout_s = None
    if wait == "commit":
        params["wait"] = "commit"
        if timeout_s is not None:
            params["timeout_s"] = timeout_s
            http_timeout_s = timeout_s + RESPONSE_MARGIN_S
    return Call(
        call.method,
        call.path,
        params,
        content=call.content,
        headers={"Content-Type": "application/x-ndjson", **headers},
        timeout_s=http_timeout_s,
        is_repeatable=True,
    )


def _summed(answers: Sequence[dict[str, Any]]) -> WriteResult:
    last = answers[-1] if answers else {}
    problems = [
        event for answer in answers for event in answer["events"] if event["status"] == "dead_lettered"
    ]
    dead = sum(answer["deadLettered"] for answer in answers)
    if dead:
        reason = problems[0]["reason"] if problems else "see `calve dead-letters list`"
        message = f"{dead} rows cannot land and are kept as dead letters: {reason}"
        warnings.warn(message, DeadLetterWarning, stacklevel=2)
    return WriteResult(
        accepted=sum(answer["eventsAccepted"] for answer in answers),
        duplicates=sum(answer["duplicates"] for answer in answers),
        dead_lettered=dead,
        token=last.get("token", ""),
        committed=last.get("committed"),
        snapshots=last.get("snapshots", []),
        problems=problems,
    )


def flush(
    address: WarehouseAddress, tables: Sequence[TableName] | None, *, wait: bool, timeout_s: float
) -> Steps[dict[str, Any]]:
    body: dict[str, Any] = {"wait": wait, "timeout_s": timeout_s}
    if tables is not None:
        body["tables"] = [list(levels_of(table)) for table in tables]
    response = yield Call(
        "POST",
        "/flush",
        {"warehouse": address.warehouse},
        json=body,
        timeout_s=timeout_s + RESPONSE_MARGIN_S,
        is_repeatable=True,
    )
    found: dict[str, Any] = response.json()
    return found


# -- what there is


def status(address: WarehouseAddress) -> Steps[dict[str, Any]]:
    response = yield Call("GET", "/status", {"warehouse": address.warehouse})
    found: dict[str, Any] = response.json()
    return found


def events(address: WarehouseAddress, after: int, limit: int, wait_s: float) -> Steps[dict[str, Any]]:
    path = f"/lake/v1/{quote(address.warehouse, safe='')}/events"
    params = {"after": after, "limit": limit, "wait_s": wait_s}
    response = yield Call("GET", path, params, timeout_s=wait_s + RESPONSE_MARGIN_S)
    found: dict[str, Any] = response.json()
    return found


def maintenance(address: WarehouseAddress) -> Steps[dict[str, Any]]:
    response = yield Call("GET", f"/lake/v1/{quote(address.warehouse, safe='')}/maintenance")
    found: dict[str, Any] = response.json()
    return found


def set_maintenance(address: WarehouseAddress, policy: dict[str, Any]) -> Steps[dict[str, Any]]:
    path = f"/lake/v1/{quote(address.warehouse, safe='')}/maintenance"
    response = yield Call("PUT", path, json=policy)
    found: dict[str, Any] = response.json()
    return found


def tables(address: WarehouseAddress, namespace: str | None = None) -> Steps[list[str]]:
    """The names of all tables, of one namespace and those below it or of all, sorted."""
    waiting: list[tuple[str, ...]] = [tuple(namespace.split("."))] if namespace else [()]
    names: list[str] = []
    while waiting:
        levels = waiting.pop()
        if levels:
            path = address.catalog(f"namespaces/{namespace_path(levels, address.separator)}/tables")
            found = yield from _pages(Call("GET", path), "identifiers")
            names += [dotted((*one["namespace"], one["name"])) for one in found]
        parent = address.separator.join(levels) or None
        below = yield from _pages(
            Call("GET", address.catalog("namespaces"), {"parent": parent}), "namespaces"
        )
        waiting += [tuple(one) for one in below]
    return sorted(names)


def _pages(call: Call, name: str) -> Steps[list[Any]]:
    """All elements of a list that comes in pages."""
    found: list[Any] = []
    token: str | None = None
    while True:
        params = {**call.params, "pageToken": token}
        page = (yield Call(call.method, call.path, params)).json()
        found += page[name]
        token = page.get("next-page-token")
        if not token:
            return found


# -- settings for engines


def moment_name(address: WarehouseAddress, as_of: Moment | None) -> str:
    """The warehouse at a moment, as engines name it: main@2026-11-15T00:00:00Z."""
    moment = moment_parameter(as_of)
    return address.warehouse if moment is None else f"{address.warehouse}@{moment}"


def catalog_properties(address: WarehouseAddress, warehouse: str) -> dict[str, str]:
    """For `pyiceberg.catalog.load_catalog(name, **properties)`."""
    found = {"type": "rest", "uri": address.url, "warehouse": warehouse}
    return found | ({"token": address.token} if address.token else {})


def spark_properties(address: WarehouseAddress, warehouse: str, name: str) -> dict[str, str]:
    """For `SparkSession.builder.config`: a catalog of this name."""
    start = f"spark.sql.catalog.{name}"
    found = {start: "org.apache.iceberg.spark.SparkCatalog"}
    found |= {f"{start}.{key}": value for key, value in catalog_properties(address, warehouse).items()}
    return found | {f"{start}.cache-enabled": "false"}


def duckdb_sql(address: WarehouseAddress, warehouse: str, name: str) -> str:
    """The statements that attach the warehouse in DuckDB under this name."""
    options = f"TYPE iceberg, ENDPOINT {_literal(address.url)}"
    if not address.token:
        return f"ATTACH {_literal(warehouse)} AS {name} ({options}, AUTHORIZATION_TYPE 'none');"
    secret = f"CREATE OR REPLACE SECRET {name}_secret (TYPE iceberg, TOKEN {_literal(address.token)});"
    return f"{secret}\nATTACH {_literal(warehouse)} AS {name} ({options}, SECRET {name}_secret);"


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
