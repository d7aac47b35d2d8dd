"""Renamed columns, from the DDL statements of the source. Pure.

A change with the operation `rename` has the old name in `before` and the new one in `after`, both with the
value null. It has a position among the changes of its table.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from ingest.change import Change, Refused, RequestContext, Row, TableName, table_of
from ingest.formats.debezium_position import log_position

_NAME = r'(?:`(?:[^`]|``)+`|"(?:[^"]|"")+"|\[[^\]]+\]|[\w$]+)'
_RENAME = re.compile(
    rf"\bRENAME\s+COLUMN\s+({_NAME})\s+TO\s+({_NAME})|\bCHANGE\s+(?:COLUMN\s+)?({_NAME})\s+({_NAME})\s",
    re.IGNORECASE,
)
_QUOTES = {"`": "`", '"': '"', "[": "]"}


def renames_of(statement: object) -> list[tuple[str, str]]:
    """Return (old name, new name) of each column that an ALTER TABLE renames."""
    if not isinstance(statement, str):
        return []
    found = [(_plain(a or c), _plain(b or d)) for a, b, c, d in _RENAME.findall(statement)]
    return [(old, new) for old, new in found if old != new]


def rename_changes(
    index: int,
    table: TableName,
    statement: object,
    *,
    source: str,
    position: str = "",
    columns: Collection[str] | None = None,
) -> list[Change]:
    """Return a change for each renamed column. `columns` are the columns of the table after the statement, if
    the producer sends them.
    """
    return [
        Change(
            index,
            table,
            "rename",
            before={old: None},
            after={new: None},
            source=source,
            position=position,
            identity=f"{source}/{'.'.join(table)}/{position}/rename/{old}/{new}" if position else "",
        )
        for old, new in renames_of(statement)
        if columns is None or (new in columns and old not in columns)
    ]


def debezium_renames(index: int, payload: Row, context: RequestContext) -> list[Change]:
    """Return the renamed columns in a record of Debezium's schema change topic. Other schema changes follow
    from the rows.
    """
    about = payload.get("source")
    origin: Row = about if isinstance(about, dict) else {}
    source = context.source or str(origin.get("name") or "")
    try:
        position = log_position(origin, None, payload, deletes=False).position
        return [
            change
            for space, table, columns in _altered(payload.get("tableChanges"))
            for change in rename_changes(
                index,
                table_of(space, table, context),
                payload.get("ddl"),
                source=source,
                position=position,
                columns=columns,
            )
        ]
    except Refused:
        return []  # not a change of a row: the new name becomes a new column


def _altered(given: Any) -> list[tuple[str | None, str, set[str]]]:
    """Return database, name and columns of each altered table."""
    found: list[tuple[str | None, str, set[str]]] = []
    for altered in given if isinstance(given, list) else ():
        if isinstance(altered, dict) and altered.get("type") == "ALTER":
            *_, space, table = [None, *str(altered.get("id")).replace('"', "").split(".")]
            about = altered.get("table")
            columns = about.get("columns") if isinstance(about, dict) else None
            names = {str(one.get("name")) for one in columns or () if isinstance(one, dict)}
            found.append((space, str(table), names))
    return found


def _plain(name: str) -> str:
    quote = _QUOTES.get(name[0])
    return name if quote is None else name[1:-1].replace(quote * 2, quote)
