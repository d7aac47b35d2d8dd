"""What a statement is and which tables it reads, by DuckDB's own parser. Refuses everything but one query.

Runs in a query process, because a parser that reads what strangers send must not be able to end the server.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import duckdb

SQL_CHARS_MAX = 1_000_000
# Every other table function reads files, settings, secrets or the network, or runs SQL that we cannot see.
TABLE_FUNCTIONS = frozenset(
    {"range", "generate_series", "unnest", "repeat", "repeat_row", "json_each", "json_tree", "summary"}
)
# Functions that tell of, or act on, the process instead of the data.
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
    }
)
# Views that DuckDB itself brings.
SYSTEM_SCHEMAS = frozenset({"information_schema", "pg_catalog"})
SYSTEM_CATALOGS = frozenset({"system", "temp", "memory"})
_SYSTEM_NAMES = re.compile(r"(duckdb|pragma|sqlite|pg)_", re.IGNORECASE)
_EXPLAIN = re.compile(r"\s*EXPLAIN(\s+ANALYZE)?\b", re.IGNORECASE)
_IDENTIFIER = re.compile(rb'"(?:[^"]|"")*"|[^\s."]+')
_STRING = re.compile(rb"'(?:[^']|'')*'")


class Refused(Exception):
    """The statement may not run here; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class TableReference:
    """A table as the statement names it. `catalog` and `schema` are empty where it leaves them out."""

    catalog: str
    schema: str
    name: str
    version: str | None = None  # the text of AT (VERSION => 'name'): a branch or tag

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Statement:
    """One query that may run."""

    sql: str
    is_explain: bool
    parameters: tuple[str, ...]  # names, or "1", "2", ...
    tables: tuple[TableReference, ...]


def read_statement(connection: duckdb.DuckDBPyConnection, sql: str) -> Statement:
    """Parse and check. Raises Refused."""
    if len(sql) > SQL_CHARS_MAX:
        raise Refused(f"The SQL has {len(sql)} characters: at most {SQL_CHARS_MAX} are allowed")
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
    tree = _tree(connection, _without_explain(sql) if is_explain else sql)
    _check(tree)
    return Statement(sql, is_explain, tuple(sorted(statement.named_parameters)), tuple(_tables(tree)))


def rewritten(
    connection: duckdb.DuckDBPyConnection, sql: str, aliases: dict[str, str], versions: dict[str, int]
) -> str:
    """The SQL with the names that DuckDB cannot take replaced, and all else as it was written.

    `aliases` maps a catalog to the name under which it is attached (DuckDB keeps `main` for itself). `versions`
    maps `version_key` of a table to the snapshot id of the branch or tag in AT (VERSION => 'name').
    """
    text, edits = sql.encode(), []
    for node in _nodes(_tree(connection, _without_explain(sql))):
        if node.get("type") != "BASE_TABLE":
            continue
        reference = _reference(node)
        if reference.catalog in aliases:
            start = node["query_location"]
            edits.append((start, _IDENTIFIER, aliases[reference.catalog]))
        if reference.version is not None:
            start = node["at_clause"]["expr"]["query_location"]
            edits.append((start, _STRING, str(versions[version_key(reference)])))
    for start, pattern, replacement in sorted(edits, key=lambda edit: edit[0], reverse=True):
        found = pattern.match(text, start)
        if found is None:
            raise Refused(f'The name at character {start} cannot be read: write it as "name"')
        text = text[:start] + replacement.encode() + text[found.end() :]
    return text.decode()


def version_key(reference: TableReference) -> str:
    return f"{reference.catalog}.{reference.schema}.{reference.name}@{reference.version}"


def _without_explain(sql: str) -> str:
    """Blanks instead of the word, so that positions in the text stay the same."""
    return _EXPLAIN.sub(lambda found: " " * len(found.group()), sql, count=1)


def _tree(connection: duckdb.DuckDBPyConnection, sql: str) -> dict[str, Any]:
    found = connection.execute("SELECT json_serialize_sql(?)", [sql]).fetchone()
    assert found is not None
    tree: dict[str, Any] = json.loads(found[0])
    if tree.get("error"):
        raise Refused(str(tree.get("error_message")))
    return tree


def _check(tree: dict[str, Any]) -> None:
    for node in _nodes(tree):
        if node.get("type") == "TABLE_FUNCTION":
            name = str(node["function"].get("function_name", "")).lower()
            if name not in TABLE_FUNCTIONS:
                raise Refused(
                    f"The table function {name} is not allowed: a query reads tables of the lake only"
                )
        elif node.get("class") == "FUNCTION":
            name = str(node.get("function_name", "")).lower()
            if name in FUNCTIONS_REFUSED:
                raise Refused(f"The function {name} is not allowed in a query")
        elif node.get("type") == "BASE_TABLE":
            _check_table(_reference(node))


def _check_table(reference: TableReference) -> None:
    shown = ".".join(part for part in (reference.catalog, reference.schema, reference.name) if part)
    if reference.catalog.lower() in SYSTEM_CATALOGS or reference.schema.lower() in SYSTEM_SCHEMAS:
        raise Refused(f"{shown} is DuckDB's own: ask GET /v1/{{warehouse}}/namespaces for what is there")
    if not reference.schema:
        if _SYSTEM_NAMES.match(reference.name):
            raise Refused(f"{shown} is DuckDB's own: ask GET /v1/{{warehouse}}/namespaces for what is there")
        if "/" in reference.name or ":" in reference.name or "*" in reference.name:
            raise Refused(f"{shown} looks like a file: a query reads tables of the lake only")


def _tables(tree: dict[str, Any]) -> Iterator[TableReference]:
    named_queries = {
        str(entry["key"]).lower()
        for node in _nodes(tree)
        if isinstance(node.get("cte_map"), dict)
        for entry in node["cte_map"].get("map", ())
    }
    seen = set()
    for node in _nodes(tree):
        if node.get("type") != "BASE_TABLE":
            continue
        reference = _reference(node)
        # A name without a schema may be that of a WITH query; then there is no table to look up.
        if not reference.schema and reference.name.lower() in named_queries:
            continue
        if reference not in seen:
            seen.add(reference)
            yield reference


def _reference(node: dict[str, Any]) -> TableReference:
    return TableReference(
        node.get("catalog_name") or "", node.get("schema_name") or "", node["table_name"], _version(node)
    )


def _version(node: dict[str, Any]) -> str | None:
    at = node.get("at_clause")
    if not at or at.get("unit") != "VERSION":
        return None
    value = at["expr"].get("value")
    if isinstance(value, dict) and isinstance(value.get("value"), str) and not value["value"].isdigit():
        return value["value"]
    return None


def _nodes(value: Any) -> Iterator[dict[str, Any]]:
    """Every object of the tree. Without recursion: a deep expression must not end the process."""
    pending = [value]
    while pending:
        found = pending.pop()
        if isinstance(found, dict):
            yield found
            pending.extend(found.values())
        elif isinstance(found, list):
            pending.extend(found)
