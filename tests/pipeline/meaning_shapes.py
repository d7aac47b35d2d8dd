"""The rules about keys, columns, types and soft deletes, as changes of tables (see `meaning_cases.py`)."""

from __future__ import annotations

from typing import Any

from tests.contract.ingest.producers import NAMING_KEYS, TYPED, WHOLE
from tests.pipeline.source_table import Rounds, SourceTable


def shape(table: SourceTable) -> Rounds:
    """A composite key by the producer's word, or by a setting. Deletes are soft."""
    table.configure(deletes="soft", **({} if table.format in NAMING_KEYS else {"key": ["tenant", "id"]}))
    declares = table.format in TYPED
    if declares:
        table.producer.types = {"price": "long", "note": "text", "extra": "text"}
    tenants = (("a", 1), ("b", 1), ("a", 2), ("b", 2))
    table.insert(
        *({"tenant": tenant, "id": id_, "price": id_, "note": f"{tenant}{id_}"} for tenant, id_ in tenants)
    )
    table.commit()
    yield

    # ALTER TABLE: another type of `price`, and a new column. Old rows have null in it.
    table.columns = (*table.columns, "extra")
    if declares:
        table.producer.types["price"] = "text"
    table.update(("a", 1), price="two" if declares else 2.5, extra="x")
    table.delete(("a", 2))
    table.commit()
    for shown in table.rows.values():
        shown["price"] = str(shown["price"]) if declares else float(shown["price"])
    yield
    assert table.state["key-reason"].startswith("producer: " if table.format in NAMING_KEYS else "setting: ")

    # DROP COLUMN note. A row that was deleted comes again.
    lacks_note = {"tenant": "a", "id": 2, "price": "9" if declares else 9.0, "extra": "y"}
    del table.rows["a", 2]
    table.insert(lacks_note)
    old = table.rows["b", 1]["note"]
    table.drop("note", ("b", 1), extra="z")
    table.commit()
    if table.format not in WHOLE:
        table.rows["b", 1]["note"] = old  # a column that such a row lacks has kept its value
    yield


def split(table: SourceTable) -> Rounds:
    """The new type gets a column of its own."""
    table.configure(type_changes="split")
    yield from _type_change(table)
    table.columns = ("id", "n", "n__long")
    for shown in table.rows.values():
        shown |= {"n": None, "n__long": shown["n"]}
    _change_type(table)
    table.commit()
    yield


def reject(table: SourceTable) -> Rounds:
    """Values of another type are dead letters, and the row stays as it was."""
    table.configure(type_changes="reject")
    yield from _type_change(table)
    kept = {key: dict(shown) for key, shown in table.rows.items()}
    _change_type(table)
    table.commit()
    table.rows = kept
    yield
    reasons = [letter["reason"] for letter in table.dead_letters()]
    assert len(reasons) == 2, reasons
    assert all("does not fit long" in reason for reason in reasons), reasons


def _type_change(table: SourceTable) -> Rounds:
    if table.format in TYPED:
        table.producer.types = {"n": "long"}
    table.insert({"id": 1, "n": 1}, {"id": 2, "n": 2})
    table.commit()
    yield


def _change_type(table: SourceTable) -> None:
    value: Any = 2.5
    if table.format in TYPED:
        table.producer.types, value = {"n": "text"}, "two"
    table.update(2, n=value)
    table.insert({"id": 3, "n": value})


def renamed(table: SourceTable) -> Rounds:
    """Debezium's schema change topic says which column it was. Without it, the name is a new column."""
    table.producer.types = {"a": "text"}
    table.insert({"id": 1, "a": "a1"})
    table.commit()
    yield
    table.insert({"id": 2, "a": "a2"})
    table.rename("a", "b")
    table.insert({"id": 3, "b": "b3"})
    table.commit()
    yield
    table.rename("b", "c")  # with no row behind it
    table.commit()
    yield
    assert {"a", "b"}.isdisjoint(table.schema[0])


def default_of_a_new_column(table: SourceTable) -> Rounds:
    """In format 3, old rows have the default that the source declares."""
    table.configure(format_version=3)
    table.producer.types = {"id": "long"}
    table.insert({"id": 1}, {"id": 2})
    table.commit()
    yield
    table.columns = ("id", "n")
    table.producer.types["n"] = "long"
    table.producer.defaults = {"n": 7}
    for shown in table.rows.values():
        shown["n"] = 7
    table.insert({"id": 3, "n": 8})
    table.update(2, n=None)
    table.commit()
    yield


# -- keys that are known late


def key_set_later(table: SourceTable) -> Rounds:
    yield from _guessed(table)
    table.configure(key=["tenant", "id"])
    table.insert({"tenant": "b", "id": 2, "name": "b2"})
    table.commit()
    yield
    assert table.state["key-reason"].startswith("setting: ")
    assert table.schema[1] == {"tenant", "id"}


def key_named_later(table: SourceTable) -> Rounds:
    yield from _guessed(table)
    table.names_key = True
    table.insert({"tenant": "b", "id": 2, "name": "b2"})
    table.commit()
    yield
    assert table.state["key-reason"].startswith("producer: ")


def _guessed(table: SourceTable) -> Rounds:
    """Rows of two tenants, by a key that is guessed: the second replaces the first until the key is known."""
    table.insert({"tenant": "a", "id": 1, "name": "a1"})
    table.commit()
    table.insert({"tenant": "b", "id": 1, "name": "b1"})
    table.commit()
    first = table.rows.pop(("a", 1))
    yield
    assert "in-doubt" in table.status, table.status
    table.rows["a", 1] = first


def key_by_evidence(table: SourceTable) -> Rounds:
    """Deletes have the true key, and invented values of the other columns."""
    yield from _guessed(table)
    table.insert(*({"tenant": "a", "id": number, "name": f"a{number}"} for number in (2, 3)))
    table.insert({"tenant": "b", "id": 2, "name": "b2"})
    for key in (("a", 2), ("a", 3), ("b", 2)):
        table.rows[key] |= {"name": ""}
        table.delete(key)
    table.commit()
    table.is_settled = False
    yield
    table.is_settled = True
    table.insert({"tenant": "b", "id": 3, "name": "b3"})  # lands behind the rebuild
    table.commit()
    yield
    found = table.state
    assert (found["key"], found["doubt"]) == (["tenant", "id"], None), found
    assert found["key-reason"].startswith("evidence: "), found
