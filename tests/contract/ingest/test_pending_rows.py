"""Pending changes of a whole table, compared with the source after random histories with publishes between:
the journal, staging, the worker's fold, and the SQL of the overlay in DuckDB.
"""

from __future__ import annotations

import random
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from calve.querying import open_pending
from ingest.staging.pending_fold import PendingFold
from ingest.staging.pending_rows import CannotFold, PendingRows
from query.overlay import overlay_sql
from query.overlay_rows import encoded
from tests.contract.ingest.staging_lake import WAREHOUSE, StagingLake, opened
from tests.contract.ingest.test_hot_rows import Row, Source

NAME = ("ns", "t")
SCHEMA = pa.schema([("id", pa.int64()), ("a", pa.string()), ("b", pa.string())])


def pending_rows(lake: StagingLake, pending: PendingFold) -> PendingRows | None:
    landed = pending.landed(WAREHOUSE, {NAME})
    number = (lake.catalog.entries.number(WAREHOUSE) or (0, 0))[0]
    cut = pending.cut(WAREHOUSE, landed)
    table = pending.table(lake.catalog, WAREHOUSE, landed[NAME], number)
    assert table is not None
    rows = pending.rows(lake.catalog, WAREHOUSE, table, cut)
    assert pending.is_unchanged(WAREHOUSE, landed)
    return rows


def shown(lake: StagingLake, rows: PendingRows | None) -> dict[int, Row]:
    """The published rows with the pending ones, as a query reads them."""
    with duckdb.connect() as connection:
        own = [{name: row[name] for name in SCHEMA.names} for row in lake.rows()]
        connection.register("mirror", pa.Table.from_pylist(own, SCHEMA))
        text = "FROM mirror"
        if rows is not None:
            shape, data = encoded(rows)
            connection.register("overlay", pa.ipc.open_stream(data).read_all())
            types = [("id", "BIGINT"), ("a", "VARCHAR"), ("b", "VARCHAR")]
            text = overlay_sql("mirror", types, "overlay", shape)
        found = connection.execute(text).to_arrow_table().to_pylist()
    by_key = {row["id"]: row for row in found}
    assert len(by_key) == len(found), "a key is there twice"
    return by_key


@pytest.mark.parametrize("seed", range(8))
def test_pending_rows_make_the_table_equal_to_its_source(seed: int, tmp_path: Any) -> None:
    rng = random.Random(seed)
    with opened(tmp_path) as lake:
        source, pending = Source(lake, rng), open_pending(lake.ingest)()
        source.change()
        lake.land()
        added = 0
        for _ in range(60):
            action = rng.randint(0, 14)
            if action == 0:
                lake.land() if lake.ingest.journal.pending(WAREHOUSE) else None
            elif action == 1:
                source.truncate()
            else:
                source.change()
            rows = pending_rows(lake, pending)
            added += rows is not None
            assert shown(lake, rows) == source.rows, seed
        assert added > 20


def test_a_publish_between_the_reads_is_noticed(tmp_path: Any) -> None:
    with opened(tmp_path) as lake:
        source, pending = Source(lake, random.Random(1)), open_pending(lake.ingest)()
        source.change()
        landed = pending.landed(WAREHOUSE, {NAME})
        assert pending.is_unchanged(WAREHOUSE, landed)
        lake.land()
        assert not pending.is_unchanged(WAREHOUSE, landed)


def swapped(lake: StagingLake, transaction: str | None) -> None:
    """Rows 1 and 2 exchange their keys by way of a key change each."""
    metadata = {} if transaction is None else {"transactionId": transaction, "transactionEnd": True}
    lake.post(
        {"operation": "UPDATE", "table": "ns.t", "rowId": "2", "sequence": 10, "timestamp": 1,
         "before": {"id": 1}, "after": {"id": 2}, "metadata": metadata},
        {"operation": "UPDATE", "table": "ns.t", "rowId": "1", "sequence": 11, "timestamp": 1,
         "before": {"id": 2}, "after": {"id": 1}, "metadata": metadata},
        source="s",
    )  # fmt: skip


def test_rows_that_swap_their_keys_in_one_transaction_wait(tmp_path: Any) -> None:
    with opened(tmp_path) as lake:
        pending = open_pending(lake.ingest)()
        source = Source(lake, random.Random(1))
        for key in (1, 2):
            source._number = key
            row = {"id": key, "a": f"a{key}", "b": f"b{key}"}
            lake.post(source._event("INSERT", None, row), source="s")
        lake.land()
        swapped(lake, "t")
        with pytest.raises(CannotFold, match="exchange"):
            pending_rows(lake, pending)
        lake.land()
        assert {row["id"]: row["a"] for row in lake.rows()} == {1: "a2", 2: "a1"}


@pytest.mark.parametrize(
    ("settings", "event", "reason"),
    [
        ({}, {"after": {"id": 1, "a": "x", "new": 1}}, "new column"),
        ({}, {"after": {"id": "no number", "a": "x"}}, "dead letter"),
        ({"truncate": "hold"}, {"operation": "TRUNCATE", "after": None}, "truncated"),
    ],
)
def test_what_needs_more_than_rows_waits(tmp_path: Any, settings: Row, event: Row, reason: str) -> None:
    with opened(tmp_path) as lake:
        pending = open_pending(lake.ingest)()
        source = Source(lake, random.Random(1))
        lake.post(source._event("INSERT", None, {"id": 1, "a": "x", "b": "y"}), source="s")
        lake.land()
        if settings:
            path = "/lake/v1/main/namespaces/ns/tables/t/ingest"
            assert lake.call("PUT", path, settings).is_success
        source._number += 1
        lake.post({**source._event("INSERT", None, {"id": 2}), **event}, source="s")
        with pytest.raises(CannotFold, match=reason):
            pending_rows(lake, pending)


def test_soft_deletes(tmp_path: Any) -> None:
    with opened(tmp_path) as lake:
        pending = open_pending(lake.ingest)()
        source = Source(lake, random.Random(1))
        lake.post(source._event("INSERT", None, {"id": 1, "a": "x", "b": "y"}), source="s")
        assert lake.call("PUT", "/lake/v1/main/namespaces/ns/tables/t/ingest", {"deletes": "soft"}).is_success
        lake.land()
        source._number += 1
        lake.post(source._event("DELETE", {"id": 1}, None), source="s")
        rows = pending_rows(lake, pending)
        assert rows is not None
        assert rows.rows.column("_is_deleted").to_pylist() == [True]
        assert rows.is_deleted.to_pylist() == [False]
        assert set(rows.missing) == {"a", "b"}


def test_a_table_to_which_rows_are_only_added(tmp_path: Any) -> None:
    with opened(tmp_path) as lake:
        pending = open_pending(lake.ingest)()
        source = Source(lake, random.Random(1))
        assert lake.call("PUT", "/lake/v1/main/namespaces/ns/tables/t/ingest", {"mode": "append"}).is_success
        lake.post(source._event("INSERT", None, {"id": 1, "a": "x", "b": "y"}), source="s")
        lake.land()
        source._number += 1
        lake.post(source._event("INSERT", None, {"id": 1, "a": "x", "b": "y"}), source="s")
        rows = pending_rows(lake, pending)
        assert rows is not None
        assert (rows.key, rows.rows.num_rows) == ((), 1)


def test_the_same_changes_are_folded_once(tmp_path: Any) -> None:
    with opened(tmp_path) as lake:
        pending = open_pending(lake.ingest)()
        source = Source(lake, random.Random(1))
        source.change()
        lake.land()
        source.change()
        first = pending_rows(lake, pending)
        assert first is not None
        assert pending_rows(lake, pending) is first
        lake.post(source._event("INSERT", None, {"id": 1}), source="s", table=("ns", "other"))
        source.change()
        assert pending_rows(lake, pending) is not first
        assert shown(lake, pending_rows(lake, pending)) == source.rows
