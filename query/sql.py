"""Parse a statement with DuckDB's own parser, find the tables that it reads, and refuse everything but one
query.

It runs in a query process, so that a bug in the parser cannot crash the server.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import duckdb
import orjson

SQL_CHARS_MAX = 1_000_000
# Every other table function reads files, settings, secrets or the network, or runs SQL that was not checked.
TABLE_FUNCTIONS = frozenset(
    {"range", "generate_series", "unnest", "repeat", "repeat_row", "json_each", "json_tree", "summary"}
)
# Functions that show or change the process instead of the data.
FUNCTIONS_REFUSED = frozenset(
    {
        "current_setting",
        "getvariable",
        "getenv",
        "write_log",
        "parse_duckdb_log_message",
        "sleep_ms",
        "nextval",
        "currval",
        "get_table_names",
        "json_serialize_plan",
        "json_execute_serialized_sql",
        "in_search_path",
        "txid_current",
        "pg_sleep",
    }
)
# The same by the prefix of their names: functions of extensions, and those that read files or secrets.
_FUNCTION_PREFIXES_REFUSED = ("iceberg_", "duckdb_", "pragma_", "read_", "which_secret", "file_", "parquet_")
_GAP = r"(?:\s|--[^\n]*\n|/\*.*?\*/)*"
_EXPLAIN = re.compile(
    rf"{_GAP}EXPLAIN\b{_GAP}(?:ANALYZE\b|\({_GAP}(?:ANALYZE|FORMAT)\b[^)]*\))?", re.IGNORECASE | re.DOTALL
)
_WORD = r'"(?:[^"]|"")*"|\'(?:[^\']|\'\')*\'|[^\s."\'(),;]+'
_NAME = re.compile(rf"(?:{_WORD})(?:\s*\.\s*(?:{_WORD}))*".encode())
_VERSION = re.compile(rb"'(?:[^']|'')*'|\d+")


class Refused(Exception):
    """The statement may not run here; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class TableReference:
    """A table as the statement names it. `catalog` and `schema` are empty if the statement omits them."""

    catalog: str
    schema: str
    name: str
    at: str | None = None  # the unit of an AT clause: VERSION or TIMESTAMP
    at_text: str | None = None  # its value, if that is a constant

    @property
    def key(self) -> str:
        """Return what distinguishes it from the other tables of the statement."""
        return orjson.dumps(asdict(self)).decode()


@dataclass(frozen=True, slots=True)
class ResolvedTable:
    """The meaning of a reference: an attached table, and the snapshot to read if it is not the
    current one.
    """

    catalog: str
    schema: str
    name: str
    snapshot_id: int | None = None


@dataclass(frozen=True, slots=True)
class Statement:
    """One query that may run."""

    is_explain: bool
    parameters: tuple[str, ...]  # names, or "1", "2", ...
    tables: tuple[TableReference, ...]


def read_statement(connection: duckdb.DuckDBPyConnection, sql: str) -> Statement:
    """Parse and check a statement. Raises Refused."""
    if len(sql) > SQL_CHARS_MAX:
        raise Refused(f"The SQL has {len(sql)} characters: at most {SQL_CHARS_MAX} are allowed")
    if "\0" in sql:
        raise Refused("The SQL has a NUL character")
    try:
        statements = connection.extract_statements(sql)
    except duckdb.Error as error:
        raise Refused(str(error).strip()) from error
    if len(statements) != 1:
        found = "is no statement" if not statements else f"are {len(statements)} statements"
        raise Refused(f"There {found} in the SQL: send one SELECT (a PIVOT needs an IN list)")
    statement = statements[0]
    is_explain = statement.type == duckdb.StatementType.EXPLAIN
    if not is_explain and statement.type != duckdb.StatementType.SELECT:
        raise Refused(
            f"{statement.type.name} is not allowed: /query runs SELECT and EXPLAIN. "
            "Write with an engine that is attached to the catalog, or send changes to /cdc"
        )
    tree = _tree(connection, without_explain(sql) if is_explain else sql)
    _check(tree)
    tables = dict.fromkeys(_reference(node) for node in _table_nodes(tree))
    return Statement(is_explain, tuple(sorted(statement.named_parameters)), tuple(tables))


def resolved_sql(connection: duckdb.DuckDBPyConnection, sql: str, tables: Mapping[str, ResolvedTable]) -> str:
    """Return the SQL with every table under its full name, and otherwise unchanged.

    `tables` maps the keys of the references to their meaning. The result is parsed again, so that a mistake
    in the text edits cannot make it read another table.
    """
    text, edits = sql.encode(), []
    for node in _table_nodes(_tree(connection, without_explain(sql))):
        reference = _reference(node)
        table = tables[reference.key]
        edits.append((node["query_location"], _NAME, _table_text(node, reference, table)))
        if reference.at == "VERSION" and table.snapshot_id is not None:
            start = node["at_clause"]["expr"]["query_location"]
            edits.append((start, _VERSION, str(table.snapshot_id)))
    for start, pattern, replacement in sorted(edits, key=lambda edit: edit[0], reverse=True):
        found = pattern.match(text, start)
        if found is None:
            raise Refused(f'The name at byte {start} of the SQL cannot be read: write it as "name"."name"')
        text = text[:start] + replacement.encode() + text[found.end() :]
    edited = text.decode()
    expected = {(table.catalog, table.schema, table.name) for table in tables.values()}
    for node in _table_nodes(_tree(connection, without_explain(edited))):
        name = (node.get("catalog_name"), node.get("schema_name"), node["table_name"])
        if name not in expected:
            raise Refused(f'The table {node["table_name"]} cannot be read: write its name as "name"."name"')
    return edited


def without_explain(sql: str) -> str:
    """Replace EXPLAIN by blanks, so that positions in the text stay the same."""
    found = _EXPLAIN.match(sql)
    return sql if found is None else " " * len(found.group().encode()) + sql[found.end() :]


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def full_name(parts: Iterable[str]) -> str:
    return ".".join(map(quoted, parts))


def literal(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _table_text(node: dict[str, Any], reference: TableReference, table: ResolvedTable) -> str:
    name = full_name((table.catalog, table.schema, table.name))
    if table.snapshot_id is None or reference.at is not None:
        return name
    # An AT clause follows the alias, whose position is not known; so the table becomes a subquery.
    alias = "" if node.get("alias") else f" AS {quoted(table.name)}"
    return f"(FROM {name} AT (VERSION => {table.snapshot_id})){alias}"


def _tree(connection: duckdb.DuckDBPyConnection, sql: str) -> dict[str, Any]:
    found = connection.execute("SELECT json_serialize_sql(?)", [sql]).fetchone()
    assert found is not None
    try:
        tree: dict[str, Any] = orjson.loads(found[0])
    except orjson.JSONDecodeError as error:
        raise Refused("The SQL is nested too deeply") from error
    if tree.get("error"):
        raise Refused(str(tree.get("error_message")))
    return tree


def _check(tree: dict[str, Any]) -> None:
    for node, _ in _nodes(tree):
        kind = node.get("type")
        if kind == "TABLE_FUNCTION":
            name = str(node["function"].get("function_name", "")).lower()
            if name not in TABLE_FUNCTIONS:
                raise Refused(f"The table function {name} is not allowed: a query reads tables only")
        elif kind == "SHOW_REF" and not node.get("query"):
            raise Refused("SHOW is not allowed: GET /v1/{warehouse}/namespaces lists what is there")
        elif "function_name" in node:
            name = str(node["function_name"]).lower()
            if name in FUNCTIONS_REFUSED or name.startswith(_FUNCTION_PREFIXES_REFUSED):
                raise Refused(f"The function {name} is not allowed in a query")


def _table_nodes(tree: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Return the tables of the statement without those that a WITH clause defines."""
    for node, named in _nodes(tree):
        if node.get("type") == "BASE_TABLE":
            is_named = not node.get("schema_name") and not node.get("catalog_name")
            if not (is_named and node["table_name"].lower() in named):
                yield node


def _reference(node: dict[str, Any]) -> TableReference:
    at = node.get("at_clause") or {}
    expression = at.get("expr") or {}
    constant = expression.get("child", expression) if expression.get("class") == "CAST" else expression
    value = constant.get("value") if constant.get("class") == "CONSTANT" else None
    text = value.get("value") if isinstance(value, dict) else None
    return TableReference(
        node.get("catalog_name") or "",
        node.get("schema_name") or "",
        node["table_name"],
        at.get("unit"),
        None if text is None else str(text),
    )


def _nodes(tree: Any) -> Iterator[tuple[dict[str, Any], frozenset[str]]]:
    """Yield every object of the tree, with the names that WITH clauses define there.

    Without recursion: a deep expression must not crash the process.
    """
    pending: list[tuple[Any, frozenset[str]]] = [(tree, frozenset())]
    while pending:
        found, named = pending.pop()
        if isinstance(found, list):
            pending.extend((value, named) for value in found)
        elif isinstance(found, dict):
            named = _define(found, named, pending)
            yield found, named
            pending.extend((value, named) for key, value in found.items() if key != "cte_map")


def _define(
    node: dict[str, Any], named: frozenset[str], pending: list[tuple[Any, frozenset[str]]]
) -> frozenset[str]:
    """Return the names inside a node with a WITH clause. Each of its queries sees the names before its own; a
    recursive one contains another node, which sees its own name too.
    """
    for entry in (node.get("cte_map") or {}).get("map", ()):
        name = str(entry["key"]).lower()
        is_recursive = any(
            inner.get("type") == "RECURSIVE_CTE_NODE" for inner in _query_nodes(entry["value"])
        )
        pending.append((entry["value"], named | {name} if is_recursive else named))
        named |= {name}
    return named


def _query_nodes(value: dict[str, Any]) -> Iterator[dict[str, Any]]:
    query = value.get("query") or {}
    yield query
    yield query.get("node") or {}
