"""A row that gets another key is one row, in every format, from the bytes of a request to the mirror."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from tests.contract.ingest.producers import (
    FORMATS,
    IN_TRANSACTIONS,
    PARTIAL,
    UNCHANGED,
    WHOLE,
    Event,
    FormatProducer,
)
from tests.contract.ingest.staging_lake import WAREHOUSE, Row, StagingLake, opened


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StagingLake]:
    """Each test has a table of its own."""
    with opened(tmp_path_factory.mktemp("lake")) as found:
        yield found


_tables = itertools.count()


def row(id_: int, name: str) -> Row:
    return {"id": id_, "name": name, "big": name.upper()}


class Source:
    """A table of a source, its producer, and the mirror that must equal it."""

    def __init__(self, lake: StagingLake, format_: str) -> None:
        self.lake, self.producer = lake, FormatProducer(format_)
        self.table = f"t{next(_tables)}"
        self.context: dict[str, Any] = {"key": ("id",), "source": self.table}
        self._events: list[Event] = []

    def change(self, old: Row | None, new: Row | None) -> None:
        self._events += self.producer.change(old, new)

    def land(self) -> None:
        self.producer.end()
        body = orjson.dumps(self.producer.body(self._events))
        self.lake.post_body(body, table=("shop", self.table), **self.context)
        self._events = []
        while self.lake.ingest.journal.pending("main"):
            self.lake.land()

    def rows(self) -> list[Row]:
        return [{name: found[name] for name in ("id", "name", "big")} for found in self.lake.rows(self.table)]


@pytest.mark.parametrize("format_", FORMATS)
def test_a_key_change_leaves_no_row_under_the_old_key(lake: StagingLake, format_: str) -> None:
    source = Source(lake, format_)
    for number, name in ((1, "a"), (2, "b"), (3, "c")):
        source.change(None, row(number, name))
    source.land()
    source.change(row(1, "a"), row(10, "a"))
    source.land()
    assert source.rows() == [row(2, "b"), row(3, "c"), row(10, "a")]
    source.change(row(2, "b"), row(20, "b2"))  # changed again in the batch, then deleted
    source.change(row(20, "b2"), row(21, "b2"))
    source.change(row(3, "c"), row(30, "c"))
    source.change(row(30, "c"), None)
    source.land()
    assert source.rows() == [row(10, "a"), row(21, "b2")]


@pytest.mark.parametrize("format_", IN_TRANSACTIONS)
@pytest.mark.parametrize("batches", [1, 2])
def test_rows_that_swap_their_keys(lake: StagingLake, format_: str, batches: int) -> None:
    """With constraints that are checked at the end of the transaction, or of the statement."""
    source = Source(lake, format_)
    for number, name in ((1, "a"), (2, "b"), (3, "c")):
        source.change(None, row(number, name))
    if batches == 2:
        source.land()
    source.producer.end()
    source.change(row(1, "a"), row(2, "a"))
    source.change(row(2, "b"), row(3, "b"))
    source.change(row(3, "c"), row(1, "c"))
    source.land()
    assert source.rows() == [row(1, "c"), row(2, "a"), row(3, "b")]


@pytest.mark.parametrize("format_", FORMATS)
def test_rows_that_swap_their_keys_by_way_of_a_free_one(lake: StagingLake, format_: str) -> None:
    source = Source(lake, format_)
    for number, name in ((1, "a"), (2, "b")):
        source.change(None, row(number, name))
    source.land()
    source.change(row(1, "a"), row(99, "a"))
    source.change(row(2, "b"), row(1, "b"))
    source.change(row(99, "a"), row(2, "a"))
    source.land()
    assert source.rows() == [row(1, "b"), row(2, "a")]


def test_missing_values_come_from_the_old_row(lake: StagingLake) -> None:
    """wal2json leaves out large values that did not change."""
    source = Source(lake, "wal2json")
    source.change(None, row(1, "a"))
    source.change(None, row(2, "b"))
    source.land()
    source.change(row(1, "a"), {"id": 2, "name": "a2", "big": UNCHANGED})
    source.change(row(2, "b"), {"id": 1, "name": "b2", "big": UNCHANGED})
    source.land()
    assert source.rows() == [
        {"id": 1, "name": "b2", "big": "B"},
        {"id": 2, "name": "a2", "big": "A"},
    ]


def test_the_two_events_of_debezium_for_rows_that_swap(lake: StagingLake) -> None:
    source = Source(lake, "debezium")
    source.change(None, row(1, "a"))
    source.change(None, row(2, "b"))
    source.land()
    source.change(row(1, "a"), None)
    source.change(None, row(2, "a"))
    source.change(row(2, "b"), None)
    source.change(None, row(1, "b"))
    source.land()
    assert source.rows() == [row(1, "b"), row(2, "a")]


@pytest.mark.parametrize("format_", WHOLE)
def test_a_column_that_a_whole_row_lacks_is_null(lake: StagingLake, format_: str) -> None:
    """It was dropped at the source. AWS DMS also leaves out a column that became null."""
    source = Source(lake, format_)
    source.change(None, row(1, "a"))
    source.change(None, row(2, "b"))
    source.land()
    source.change({"id": 1, "name": "a"}, {"id": 1, "name": "a2"})
    source.land()
    source.change({"id": 2, "name": "b"}, {"id": 3, "name": "b2"})  # with another key
    source.land()
    assert source.rows() == [
        {"id": 1, "name": "a2", "big": None},
        {"id": 3, "name": "b2", "big": None},
    ]


@pytest.mark.parametrize("format_", IN_TRANSACTIONS)
def test_a_new_row_takes_no_values_of_the_row_deleted_before_it(lake: StagingLake, format_: str) -> None:
    """Its producer leaves out nulls, or the column was dropped at the source."""
    source = Source(lake, format_)
    source.change(None, row(1, "a"))
    source.land()
    source.change(row(1, "a"), None)
    source.change(None, {"id": 2, "name": "b"})
    source.land()
    assert source.rows() == [{"id": 2, "name": "b", "big": None}]


@pytest.mark.parametrize("format_", PARTIAL)
@pytest.mark.parametrize("deletes", ["hard", "soft"])
def test_a_large_value_moves_with_its_row(lake: StagingLake, format_: str, deletes: str) -> None:
    source = Source(lake, format_)
    url = f"/lake/v1/{WAREHOUSE}/namespaces/shop/tables/{source.table}/ingest"
    assert lake.call("PUT", url, {"deletes": deletes}).is_success
    source.change(None, row(1, "a"))
    source.land()
    source.change(row(1, "a"), {"id": 2, "name": "a2", "big": UNCHANGED})
    source.land()
    assert source.rows()[-1] == {"id": 2, "name": "a2", "big": "A"}


def test_values_that_debezium_invents_are_no_old_key(lake: StagingLake) -> None:
    """REPLICA IDENTITY USING INDEX: the other columns of `before` are null, 0 or empty."""
    source = Source(lake, "debezium")
    source.change(None, row(0, "zero"))
    source.change(None, row(5, "a"))
    source.land()
    source.change({"id": 0, "name": "a", "big": ""}, row(5, "b"))
    source.land()
    assert source.rows() == [row(0, "zero"), row(5, "b")]


def test_a_key_change_that_does_not_fit_is_one_dead_letter(lake: StagingLake) -> None:
    source = Source(lake, "native")
    source.change(None, row(1, "a"))
    source.land()
    source.change(row(1, "a"), {"id": "not a number", "name": "a", "big": "A"})
    source.land()
    assert source.rows() == [row(1, "a")]
    letters = [letter for letter in lake.letters() if letter.table[-1] == source.table]
    assert [letter.code for letter in letters] == ["unfit"]
