"""Statements for many rows, and list parameters that both databases take."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import orjson
import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.expression import ColumnElement
from sqlalchemy.sql.visitors import InternalTraversal


class _Among(ColumnElement[bool]):
    inherit_cache = True
    _traverse_internals = [  # noqa: RUF012 - SQLAlchemy declares it as a list
        ("column", InternalTraversal.dp_clauseelement),
        ("parameter", InternalTraversal.dp_clauseelement),
    ]
    type = sa.Boolean()

    def __init__(self, column: sa.Column[Any], name: str) -> None:
        self.column = column
        self.parameter: sa.BindParameter[Any] = sa.bindparam(name, type_=sa.types.NullType())


@compiles(_Among, "sqlite")
def _sqlite(element: _Among, compiler: Any, **options: Any) -> str:
    column, listed = compiler.process(element.column, **options), compiler.process(element.parameter)
    return f"{column} IN (SELECT value FROM json_each({listed}))"  # noqa: S608 - both are SQLAlchemy's


@compiles(_Among, "postgresql")
def _postgresql(element: _Among, compiler: Any, **options: Any) -> str:
    column, listed = compiler.process(element.column, **options), compiler.process(element.parameter)
    return f"{column} = ANY({listed})"


def among(column: sa.Column[Any], name: str) -> ColumnElement[bool]:
    return _Among(column, name)


def listed(connection: sa.Connection, values: Collection[Any]) -> Any:
    """The list as the driver wants it, for the parameter of `among`."""
    plain = list(values)
    return orjson.dumps(plain).decode() if connection.dialect.name == "sqlite" else plain


def run_many(statement: sa.Executable, connection: sa.Connection, rows: Sequence[Mapping[str, Any]]) -> None:
    """An INSERT, UPDATE or DELETE for each row; its results are not read."""
    if rows:
        connection.execute(statement, rows)
