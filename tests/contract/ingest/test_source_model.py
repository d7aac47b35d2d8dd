"""A model of a source database drives every format with random histories; the mirror equals the model.

The histories have transactions, key changes, keys that swap inside a transaction or by way of a free key,
deletes and new rows of the same key, truncates, columns that are added, failovers after which positions count
anew, requests that overtake each other or are sent again (also much later, and from before a failover), and
batches that are cut anywhere between transactions. From the bytes of a request to the worker's fold, all code
is the real one.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import orjson
import pytest

from spark_jobs.verification import changes_fold
from tests.contract.ingest.producers import FORMATS, IN_TRANSACTIONS, POSITIONED, TRUNCATING, Event
from tests.contract.ingest.staging_lake import Mirror, Row, StagingLake, opened
from tests.contract.ingest.test_key_changes import Source

KEYS = 8
# With an identity or a position, so that a repeat is recognised however late it comes.
REPEATED = POSITIONED
# With positions that may count anew.
FAILING_OVER = tuple(format_ for format_ in POSITIONED if format_ not in ("dms", "hasura", "cockroach"))
Request = tuple[str | None, list[Event]]  # the epoch and the events


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StagingLake]:
    # A transaction is sent in one request, so there is nothing to wait for.
    with opened(tmp_path_factory.mktemp("lake"), transaction_linger_ms=1) as found:
        yield found


class ModelSource(Source):
    """A table of a source database with a primary key that is checked at the end of a transaction."""

    def __init__(self, lake: StagingLake, format_: str, seed: int) -> None:
        super().__init__(lake, format_)
        self.dice = random.Random(f"{format_} {seed}")
        self.format = format_
        self.table_rows: dict[int, Row] = {}
        self.sent: list[Request] = []
        self._waiting: list[Request] = []
        self._moves_rows = False  # whether the transaction changes keys
        # The first epoch has a name, too: it tells to which one a request belongs that is sent again.
        self._epoch = "1" if format_ in FAILING_OVER else None
        self._columns = ["id", "name", "big"]
        self._version = 0

    def transaction(self) -> None:
        """A few statements, sent as one request."""
        for _ in range(self.dice.randint(1, 4)):
            self._statement()
        self._end()
        if self.format in FAILING_OVER and self.dice.random() < 0.05:
            self._fail_over()

    def _end(self) -> None:
        self.producer.end()
        if not self._events:
            return
        self._waiting.append((self._epoch, self._events))
        self._events = []
        # A transaction that changes keys lands in its order: a key that an earlier one frees may not be free
        # yet where it lands first, and the row that had it would be taken for the one that gets it.
        if self.format not in POSITIONED or self._moves_rows or self.dice.random() < 0.5:
            self.send_waiting(in_order=self._moves_rows)
        self._moves_rows = False

    def send_waiting(self, *, in_order: bool = False) -> None:
        if not in_order:
            self.dice.shuffle(self._waiting)
        for request in self._waiting:
            self._send(request)
        self.sent += self._waiting
        self._waiting = []

    def send_again(self) -> None:
        if self.sent and self.format in REPEATED:
            self._send(self.dice.choice(self.sent))

    def _send(self, request: Request) -> None:
        epoch, events = request
        body = orjson.dumps(self.producer.body(events))
        self.lake.post_body(body, table=("shop", self.table), epoch=epoch, **self.context)

    def _fail_over(self) -> None:
        """To a server whose log begins anew. What the old one has written arrives before."""
        self.send_waiting()
        self._epoch = str(int(self._epoch or 0) + 1)
        self.producer.count_anew()

    def rows(self) -> list[Row]:
        return self.rows_of(self.lake.rows(self.table))

    def rows_of(self, found: list[Row]) -> list[Row]:
        """Rows with the columns of the source alone."""
        return [{name: row.get(name) for name in self._columns} for row in found]

    def land_all(self) -> None:
        while any(row.table[-1] == self.table for row in self.lake.ingest.journal.pending("main")):
            self.lake.land()

    def _statement(self) -> None:
        free = [key for key in range(1, KEYS + 1) if key not in self.table_rows]
        used = list(self.table_rows)
        kinds = ["insert"] * bool(free) + ["update", "delete"] * bool(used)
        kinds += ["move", "pass"] * bool(free and used) + ["insert"] * (2 * (len(used) < 2))
        if len(used) > 1 and self.format in IN_TRANSACTIONS:
            kinds.append("swap")
        kind = self.dice.choice(kinds)
        if self.format in TRUNCATING and self.dice.random() < 0.03:
            self._events.append(self.producer.truncate())
            self.table_rows.clear()
            return
        if "extra" not in self._columns and self.dice.random() < 0.03:
            self._columns.append("extra")
            for row in self.table_rows.values():
                row["extra"] = None
        if kind == "insert":
            self._set(None, self._new_row(self.dice.choice(free)))
            return
        old = self.table_rows[self.dice.choice(used)]
        if kind in ("update", "delete"):
            self._set(old, self._new_row(old["id"]) if kind == "update" else None)
            return
        self._moves_rows = True
        if kind == "move":
            self._set(old, {**old, "id": self.dice.choice(free)})
        elif kind == "pass":
            self._set(old, moved := {**old, "id": 99})
            self._set(moved, {**moved, "id": self.dice.choice(free)})
        else:
            self._swap(old, self.table_rows[self.dice.choice([key for key in used if key != old["id"]])])

    def _swap(self, one: Row, other: Row) -> None:
        """One statement; both rows have the same key in between."""
        self.change(one, {**one, "id": other["id"]})
        self.change(other, {**other, "id": one["id"]})
        self.table_rows |= {
            other["id"]: {**one, "id": other["id"]},
            one["id"]: {**other, "id": one["id"]},
        }
        self._end()  # a row that swaps once more in the transaction cannot be told from the other

    def _set(self, old: Row | None, new: Row | None) -> None:
        self.change(old, new)
        if old is not None:
            del self.table_rows[old["id"]]
        if new is not None:
            self.table_rows[new["id"]] = new

    def _new_row(self, key: int) -> Row:
        self._version += 1
        row = {"id": key, "name": f"v{self._version}", "big": self.dice.choice(["x", "y", "z"])}
        return row | ({"extra": f"e{self._version}"} if "extra" in self._columns else {})


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("seed", range(3))
def test_the_mirror_equals_the_source(lake: StagingLake, format_: str, seed: int) -> None:
    check(lake, format_, seed)


@pytest.mark.proof
@pytest.mark.parametrize("format_", FORMATS)
def test_the_mirror_equals_the_source_in_many_histories(lake: StagingLake, format_: str) -> None:
    for seed in range(100, 330):
        check(lake, format_, seed)


def check(lake: StagingLake, format_: str, seed: int) -> None:
    source = ModelSource(lake, format_, seed)
    for _ in range(4):
        for _ in range(source.dice.randint(1, 6)):
            source.transaction()
            if source.dice.random() < 0.3:
                source.send_again()
        source.send_waiting()
        source.land_all()
        expected: list[Any] = [source.table_rows[key] for key in sorted(source.table_rows)]
        assert source.rows() == expected, f"{format_}, seed {seed}"
        check_changes(lake.mirrors.get(source.table), expected, source.rows_of, f"{format_}, seed {seed}")


def check_changes(
    mirror: Mirror | None, expected: list[Row], rows_of: Callable[[list[Row]], list[Row]], where: str
) -> None:
    """The changes table has each event once, and the fold that verification uses gives the source's rows."""
    changes = mirror.changes.to_pylist() if mirror is not None and mirror.changes is not None else []
    names = [(one["_calve_source"], one["_calve_event_id"], one["_calve_operation"]) for one in changes]
    assert len(set(names)) == len(names), f"{where}: an event is in the changes table twice"
    by_key: dict[int, list[changes_fold.Change[Row]]] = {}
    truncates: list[changes_fold.Change[None]] = []
    for one in sorted(changes, key=lambda row: (row["_calve_commit_timestamp"], row["_calve_order"])):
        facts = (
            one["_calve_operation"],
            one["_calve_source"] or "",
            one["_calve_position"] or "",
            one["_calve_transaction"],
            one["_calve_commit_timestamp"].timestamp(),
            "",
            one["_calve_order"],
        )
        if one["_calve_operation"] == "truncate":
            truncates.append(changes_fold.Change(*facts, None))
        else:
            by_key.setdefault(one["id"], []).append(changes_fold.Change(*facts, one))
    folded = {key: changes_fold.fold(found, truncates) for key, found in by_key.items()}
    # Either row, where a producer does not say which one a delete means.
    possible = [
        rows_of([row for _, one in sorted(folded.items()) if (row := one[which]) is not None])
        for which in (0, 1)
    ]
    assert expected in possible, where
