"""What a query process attaches, keeps and detaches."""

from __future__ import annotations

from typing import Any, cast

import duckdb

from query import attachments
from query.attachments import Attachments


class Recorded:
    """In place of DuckDB: the statements that it is given."""

    def __init__(self) -> None:
        self.statements: list[str] = []

    def execute(self, statement: str) -> None:
        self.statements.append(statement)

    def taken(self) -> list[str]:
        """The verb and the name of each statement since the last call."""
        words = [statement.replace(" AS ", " ").split() for statement in self.statements]
        self.statements.clear()
        return [f"{one[0]} {one[2] if one[0] == 'ATTACH' else one[1]}" for one in words]


def _on(database: Recorded) -> Attachments:
    return Attachments(cast(duckdb.DuckDBPyConnection, database), "http://127.0.0.1:1")


def _one(name: str = "a", **more: Any) -> dict[str, Any]:
    return {"name": name, "reference": f"{name}@7", "token": "t", "is_fixed": True, "made_ms": 1} | more


def test_a_warehouse_at_a_number_is_kept() -> None:
    database = Recorded()
    attached = _on(database)
    attached.attach([_one()])
    attached.attach([_one()])
    assert len(database.statements) == 1
    assert "MAX_TABLE_STALENESS" in database.statements[0]
    assert "TOKEN 't'" in database.statements[0]


def test_nothing_else_is_attached_while_a_query_runs() -> None:
    database = Recorded()
    attached = _on(database)
    attached.attach([_one("a"), _one("b")])
    assert database.taken() == ['ATTACH "a"', 'ATTACH "b"']
    attached.attach([_one("b")])
    assert database.taken() == ['DETACH "a"']
    attached.attach([])
    assert database.taken() == ['DETACH "b"']


def test_another_caller_number_or_warehouse_is_another_attachment() -> None:
    for more in ({"token": "u"}, {"token": None}, {"reference": "a@8"}, {"made_ms": 2}):
        database = Recorded()
        attached = _on(database)
        attached.attach([_one()])
        attached.attach([_one(**more)])
        assert database.taken() == ['ATTACH "a"', 'DETACH "a"', 'ATTACH "a"'], more


def test_an_open_transaction_is_attached_for_each_query() -> None:
    database = Recorded()
    attached = _on(database)
    for _ in range(2):
        attached.attach([_one(reference="a~tx", is_fixed=False)])
    assert "MAX_TABLE_STALENESS" not in " ".join(database.statements)
    assert database.taken() == ['ATTACH "a"', 'DETACH "a"', 'ATTACH "a"']


def test_an_error_and_many_queries_end_it() -> None:
    database = Recorded()
    attached = _on(database)
    attached.attach([_one()])
    attached.forget()
    assert database.taken() == ['ATTACH "a"', 'DETACH "a"']
    for _ in range(2 * attachments.QUERIES_MAX + 1):
        attached.attach([_one()])
    assert database.taken() == ['ATTACH "a"', *['DETACH "a"', 'ATTACH "a"'] * 2]
