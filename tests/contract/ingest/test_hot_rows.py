"""`rows/{key}?consistency=fresh`: rows with changes that are not published, compared with a model."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from calve.querying import open_hot_rows, open_pending
from catalog.names import Identifier, Namespace
from query.tables import hot_rows
from query.tables.access import TableAccess, TableOpener
from tests.contract.ingest.staging_lake import WAREHOUSE, StagingLake, opened

KEYS = range(1, 6)
Row = dict[str, Any]


class Source:
    """A source that counts its changes, and the rows that it has."""

    def __init__(self, lake: StagingLake, rng: random.Random) -> None:
        self.rows: dict[int, Row] = {}
        self._lake = lake
        self._rng = rng
        self._number = 0

    def change(self) -> None:
        """One request with some changes."""
        self._lake.post(
            *[self._change() for _ in range(self._rng.randint(1, 3))], source="s", table=("ns", "t")
        )

    def _change(self) -> Row:
        self._number += 1
        key, value = self._rng.choice(KEYS), f"v{self._number}"
        if key not in self.rows:
            self.rows[key] = {"id": key, "a": value, "b": value}
            return self._event("INSERT", None, self.rows[key])
        kind = self._rng.randint(0, 9)
        old = self.rows[key]
        free = [other for other in KEYS if other not in self.rows]
        if kind < 2:
            del self.rows[key]
            return self._event("DELETE", {"id": key}, None)
        if kind == 2 and free:
            del self.rows[key]
            self.rows[free[0]] = {**old, "id": free[0], "a": value}
            return self._event("UPDATE", {"id": key}, self.rows[free[0]])
        if kind < 6:
            self.rows[key] = {**old, "b": value}
            return self._event("UPDATE", {"id": key}, {"id": key, "b": value})
        self.rows[key] = {"id": key, "a": value, "b": None}
        return self._event("UPDATE", {"id": key}, self.rows[key])

    def truncate(self) -> None:
        self._number += 1
        self.rows.clear()
        self._lake.post(self._event("TRUNCATE", None, None), source="s", table=("ns", "t"))

    def _event(self, operation: str, before: Row | None, after: Row | None) -> Row:
        return {
            "sequence": self._number,
            "timestamp": 1_763_280_000_000 + self._number,
            "operation": operation,
            "table": "ns.t",
            "rowId": str((after or before or {}).get("id", "")),
            "before": before,
            "after": after,
        }


@pytest.fixture
def old_rows(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The mirror has no files in these tests: its rows are in memory."""
    found: dict[str, Any] = {}

    def read(asked: Any, wanted: pa.Table, columns: list[str]) -> pa.Table:
        bases = found["lake"].mirrors["t"]._bases(found["job"], found["schema"])
        table: pa.Table = bases(wanted, columns)
        return table

    monkeypatch.setattr(hot_rows, "_old_rows", read)
    return found


def access_to(lake: StagingLake) -> TableAccess:
    opener = TableOpener(lake.catalog, lake.ingest.tables, lambda _: {})
    return opener.access(WAREHOUSE, Identifier(Namespace(("ns",)), "t"))


@pytest.mark.parametrize("seed", range(3))
def test_a_fresh_row_is_that_of_the_source(seed: int, tmp_path: Any, old_rows: dict[str, Any]) -> None:
    rng = random.Random(seed)
    with opened(tmp_path) as lake:
        source, rows = Source(lake, rng), open_hot_rows(open_pending(lake.ingest))()
        for _ in range(6):
            source.change()
        job = lake.land()
        old_rows |= {
            "lake": lake,
            "job": hot_rows_job(job),
            "schema": pa.schema([("id", pa.int64()), ("a", pa.string()), ("b", pa.string())]),
        }
        answered = 0
        for _ in range(60):
            action = rng.randint(0, 11)
            if action == 0:
                lake.land() if lake.ingest.journal.pending(WAREHOUSE) else None
            elif action == 1:
                source.truncate()
            else:
                source.change()
            key = rng.choice(KEYS)
            found = rows.load_row(access_to(lake), str(key), None)
            assert found != "wait"
            published = {row["id"]: row for row in lake.rows()}
            shown = found["row"] if isinstance(found, dict) else published.get(key)
            assert _own(shown) == _own(source.rows.get(key)), (seed, key, found)
            answered += isinstance(found, dict)
        assert answered > 10


def hot_rows_job(job: dict[str, Any]) -> Any:
    from spark_jobs.messages import TableJob

    return TableJob.model_validate(
        {name: value for name, value in job["tables"][0].items() if name != "states"}
    )


def _own(row: Row | None) -> Row | None:
    return None if row is None else {name: row[name] for name in ("id", "a", "b")}


def test_a_part_of_a_transaction_is_not_shown(tmp_path: Any) -> None:
    with opened(tmp_path) as lake:
        source, rows = Source(lake, random.Random(1)), open_hot_rows(open_pending(lake.ingest))()
        lake.post(source._event("INSERT", None, {"id": 1, "a": "x", "b": "y"}), source="s")
        lake.land()
        begun = {"id": "77", "status": "BEGIN", "ts_ms": 1}
        changed = {
            "op": "u",
            "before": None,
            "after": {"id": 1, "a": "half", "b": "y"},
            "source": {"connector": "postgresql", "name": "pg", "schema": "ns", "table": "t", "lsn": 9},
            "transaction": {"id": "77", "total_order": 1, "data_collection_order": 1},
        }
        lake.post(begun, changed)
        assert rows.load_row(access_to(lake), "1", None) == "published"
        lake.post({"id": "77", "status": "END", "event_count": 1, "ts_ms": 2}, changed)
        found = rows.load_row(access_to(lake), "1", "id,a")
        assert isinstance(found, dict)
        assert found["row"] == {"id": 1, "a": "half"}


def test_what_cannot_be_folded_here_waits_for_the_publish(tmp_path: Any) -> None:
    with opened(tmp_path) as lake:
        source, rows = Source(lake, random.Random(1)), open_hot_rows(open_pending(lake.ingest))()
        lake.post(source._event("INSERT", None, {"id": 1, "a": "x", "b": "y"}))
        lake.land()
        assert rows.load_row(access_to(lake), "1", None) == "published"
        lake.post(source._event("UPDATE", {"id": 1}, {"id": 1, "a": "x", "b": "y", "new column": 3}))
        assert rows.load_row(access_to(lake), "1", None) == "wait"
        assert rows.load_row(access_to(lake), "2", None) == "published"
