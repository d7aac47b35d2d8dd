"""A row that gets another key is one row, in every format, from the bytes of a request to the mirror."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from tests.contract.ingest.staging_lake import Row, StagingLake, opened


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StagingLake]:
    """Each test has a table of its own."""
    with opened(tmp_path_factory.mktemp("lake")) as found:
        yield found


Event = dict[str, Any]
_tables = itertools.count()


class Producer:
    """Writes changes in one format, all in one source transaction until `end`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._numbers = itertools.count(1)
        self._transaction = 1
        self._last: Event = {}

    def end(self) -> None:
        if self.name == "maxwell":
            self._last["commit"] = True
        self._transaction += 1

    def count_anew(self) -> None:
        """The log of another server has other positions."""
        self._numbers = itertools.count(1)

    def truncate(self) -> Event:
        number = next(self._numbers)
        event: Event = {
            "native": {"sequence": number, "timestamp": number, "operation": "TRUNCATE", "table": "shop.t"},
            "wal2json": {"action": "T", "xid": self._transaction, "lsn": f"0/{number:X}"},
            "canal": {"id": number, "type": "TRUNCATE", "isDdl": True, "es": 1_700_000_000_000 + number},
            "debezium": self._debezium(None, None, number) | {"op": "t"} if self.name == "debezium" else {},
        }[self.name]
        if self.name == "native":
            event["metadata"] = {"transactionId": f"x{self._transaction}"}
        if self.name in ("wal2json", "canal"):
            event |= {"schema": "shop", "database": "shop", "table": "t"}
        self._last = event
        return event

    def event(self, old: Row | None, new: Row | None) -> Event:
        """`old` None: an insert. `new` None: a delete."""
        self._last = getattr(self, f"_{self.name}")(old, new, next(self._numbers))
        return self._last

    def _native(self, old: Row | None, new: Row | None, number: int) -> Event:
        operation = "INSERT" if old is None else "DELETE" if new is None else "UPDATE"
        row = new if new is not None else old
        assert row is not None
        return {
            "sequence": number,
            "timestamp": number,
            "operation": operation,
            "table": "shop.t",
            "rowId": str(row["id"]),
            "before": old,
            "after": new,
            "metadata": {"primaryKey": ["id"], "transactionId": f"x{self._transaction}"},
        }

    def _maxwell(self, old: Row | None, new: Row | None, number: int) -> Event:
        kind = "insert" if old is None else "delete" if new is None else "update"
        changed = {k: v for k, v in (old or {}).items() if new is not None and new.get(k) != v}
        return {
            "database": "shop",
            "table": "t",
            "type": kind,
            "ts": 1_700_000_000 + number,
            "xid": self._transaction,
            "xoffset": number,
            "position": f"bin.000001:{number * 100}",
            "primary_key_columns": ["id"],
            "data": new if new is not None else old,
            **({"old": changed} if kind == "update" else {}),
        }

    def _wal2json(self, old: Row | None, new: Row | None, number: int) -> Event:
        action = "I" if old is None else "D" if new is None else "U"
        event: Event = {
            "action": action,
            "xid": self._transaction,
            "lsn": f"0/{number:X}",
            "schema": "shop",
            "table": "t",
            "pk": [{"name": "id", "type": "integer"}],
        }
        if new is not None:
            event["columns"] = [{"name": k, "type": _type(v), "value": v} for k, v in new.items()]
        if old is not None:
            event["identity"] = [{"name": "id", "type": "integer", "value": old["id"]}]
        return event

    def _canal(self, old: Row | None, new: Row | None, number: int) -> Event:
        kind = "INSERT" if old is None else "DELETE" if new is None else "UPDATE"
        changed = {k: _text(v) for k, v in (old or {}).items() if new is not None and new.get(k) != v}
        data = new if new is not None else old
        return {
            "id": number,
            "database": "shop",
            "table": "t",
            "pkNames": ["id"],
            "isDdl": False,
            "type": kind,
            "es": 1_700_000_000_000 + number,
            "ts": 1_700_000_000_000 + number,
            "mysqlType": {"id": "bigint", "name": "text", "big": "text"},
            "data": [{k: _text(v) for k, v in (data or {}).items()}],
            "old": [changed] if kind == "UPDATE" else None,
        }

    def _supabase(self, old: Row | None, new: Row | None, number: int) -> Event:
        kind = "INSERT" if old is None else "DELETE" if new is None else "UPDATE"
        return {"type": kind, "table": "t", "schema": "shop", "record": new, "old_record": old}

    def _sequin(self, old: Row | None, new: Row | None, number: int) -> Event:
        action = "insert" if old is None else "delete" if new is None else "update"
        changed = {k: v for k, v in (old or {}).items() if new is not None and new.get(k) != v}
        return {
            "record": new if new is not None else old,
            "changes": changed if action == "update" else None,
            "action": action,
            "metadata": {
                "table_schema": "shop",
                "table_name": "t",
                "commit_lsn": self._transaction,
                "commit_idx": number,
                "commit_timestamp": "2026-01-01T00:00:00Z",
                "idempotency_key": f"k{number}",
            },
        }

    def _dms(self, old: Row | None, new: Row | None, number: int) -> Event:
        operation = "insert" if old is None else "delete" if new is None else "update"
        return {
            "data": new if new is not None else old,
            "before-image": old if operation == "update" else None,
            "metadata": {
                "timestamp": f"2026-01-01T00:00:00.{number:06d}Z",
                "record-type": "data",
                "operation": operation,
                "schema-name": "shop",
                "table-name": "t",
                "transaction-id": self._transaction,
                "transaction-record-id": number,
            },
        }

    def _hasura(self, old: Row | None, new: Row | None, number: int) -> Event:
        operation = "INSERT" if old is None else "DELETE" if new is None else "UPDATE"
        return {
            "id": f"h{number}",
            "created_at": f"2026-01-01T00:00:00.{number:06d}Z",
            "event": {"op": operation, "data": {"old": old, "new": new}},
            "table": {"schema": "shop", "name": "t"},
        }

    def _debezium(self, old: Row | None, new: Row | None, number: int) -> Event:
        return {
            "before": old,
            "after": new,
            "op": "c" if old is None else "d" if new is None else "u",
            "source": {
                "name": "pg",
                "db": "d",
                "schema": "shop",
                "table": "t",
                "connector": "postgresql",
                "lsn": number,
                "sequence": f'["{self._transaction}","{number}"]',
            },
            "transaction": {"id": f"{self._transaction}:{number}", "total_order": number},
        }


FORMATS = ("native", "maxwell", "wal2json", "canal", "supabase", "sequin", "dms", "hasura", "debezium")
IN_TRANSACTIONS = ("native", "maxwell", "wal2json", "sequin", "dms", "debezium")


def _type(value: object) -> str:
    return "integer" if isinstance(value, int) else "text"


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def row(id_: int, name: str) -> Row:
    return {"id": id_, "name": name, "big": name.upper()}


class Source:
    """A table of a source, its producer, and the mirror that must equal it."""

    def __init__(self, lake: StagingLake, format_: str) -> None:
        self.lake, self.producer = lake, Producer(format_)
        self.table = f"t{next(_tables)}"
        self.context: dict[str, Any] = {"key": ("id",), "source": self.table}
        self._events: list[Event] = []

    def change(self, old: Row | None, new: Row | None) -> None:
        self._events.append(self.producer.event(old, new))

    def land(self) -> None:
        self.producer.end()
        self.lake.post(*self._events, table=("shop", self.table), **self.context)
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
    source.change(row(1, "a"), {"id": 2, "name": "a2"})
    source.change(row(2, "b"), {"id": 1, "name": "b2"})
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
