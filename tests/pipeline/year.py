"""A year in a few minutes: changes land in five mirrors, an outside engine writes beside them, and
maintenance runs with its periods scaled down. A model of plain dicts says what each moment must show.

The model knows the number of the warehouse after each publish, and not which number the publish itself got:
maintenance commits as well. So a table at a moment shows the last state that was complete by then, or the one
that was on its way.
"""

from __future__ import annotations

import random
import time
import uuid
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Any

import duckdb
import httpx
import pyarrow as pa
import sqlalchemy as sa
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, RESTError

from tests.clients import pyiceberg_client
from tests.clients.duckdb_client import DuckLake
from tests.harness.rest import Rest
from tests.pipeline.conftest import Pipeline
from tests.pipeline.own import expire_leases
from tests.pipeline.producer import Producer, wait_until_landed
from tests.pipeline.year_sizes import Measures, Sample

TABLES = tuple(f"t{number}" for number in range(5))
KEYS = 40
EVENTS = 6  # of each table in a publish
OUTSIDE = "outside"
OUTSIDE_EVERY = 5  # publishes
SAMPLES = 50  # at most, before each mark: a sample lists all files
OUTSIDE_SCHEMA = pa.schema([("id", pa.int64())])

Row = tuple[int, int]
# Of a mirror: its rows; the count of its changes and the sum of their versions. Of the outside table: ids.
Content = tuple[tuple[Row, ...], tuple[int, int]] | tuple[int, ...]


@dataclass(frozen=True, slots=True)
class State:
    """All tables after a publish, when the warehouse had this number."""

    number: int
    contents: dict[str, Content]


@dataclass
class Mirror:
    rows: dict[int, int] = field(default_factory=dict)
    changes: int = 0
    versions: int = 0  # their sum, over the changes that have a row

    @property
    def content(self) -> Content:
        return tuple(sorted(self.rows.items())), (self.changes, self.versions)


class Outside:
    """A table that ingest does not own: PyIceberg appends, and takes appends back."""

    def __init__(self, pipeline: Pipeline, space: str, rng: random.Random) -> None:
        self._random = rng
        self._table = pyiceberg_client.catalog(pipeline.stack).create_table((space, OUTSIDE), OUTSIDE_SCHEMA)
        self._known: dict[int, tuple[int, ...]] = {}
        self.ids: tuple[int, ...] = ()
        self.conflicts = 0

    def write(self, number: int) -> None:
        while True:
            try:
                return self._write(number)
            except CommitFailedException:  # maintenance was quicker, as any other engine may be
                self.conflicts += 1

    def _write(self, number: int) -> None:
        table = self._table.refresh()
        left = [id_ for id_ in self._known if table.snapshot_by_id(id_) and id_ != self._current()]
        if left and self._random.random() < 0.3:
            back = max(left, key=lambda id_: len(self._known[id_]))
            table.manage_snapshots().set_current_snapshot(back).commit()
            self.ids = self._known[back]
            return
        table.append(pa.table({"id": [number]}, schema=OUTSIDE_SCHEMA))
        self.ids = (*self.ids, number)
        self._known[self._current()] = self.ids

    def _current(self) -> int:
        snapshot = self._table.current_snapshot()
        return snapshot.snapshot_id if snapshot is not None else -1


class Year:
    """One run. `publish` lands changes in all tables, `read` compares a moment with the model."""

    def __init__(self, pipeline: Pipeline, seed: int) -> None:
        self.pipeline = pipeline
        self.random = random.Random(seed)
        self.space = f"y{uuid.uuid4().hex[:8]}"
        self.rest = Rest(pipeline.url)
        self.producer = Producer(pipeline.url, f"year-{self.space}")
        self.rest.ok("POST", self.rest.path("namespaces"), json={"namespace": [self.space]})
        self.outside = Outside(pipeline, self.space, self.random)
        self.mirrors = {table: Mirror() for table in TABLES}
        self.states: list[State] = []
        self.fresh_ms: list[float] = []
        self.measures = Measures(pipeline, self.space, TABLES)

    def age_jobs(self) -> None:
        """Finished jobs are kept for an hour, which no setting scales down: here an hour is 20 seconds."""
        engine = sa.create_engine(self.pipeline.stack.database)
        with engine.begin() as connection:
            connection.execute(
                sa.text(
                    "UPDATE landing_jobs SET finished_ms = finished_ms - 3600000 "
                    "WHERE state = 'done' AND finished_ms BETWEEN :hour AND :before"
                ),
                {
                    "hour": (now_ms := time.time_ns() // 1_000_000) - 3_500_000,
                    "before": now_ms - 20_000,
                },
            )
        engine.dispose()

    def run(self, publishes: int, *, kills: int = 0, read_every: int = 4) -> list[Sample]:
        """Samples at a tenth, at the half and at the end, each the median of the publishes before it."""
        window = max(3, publishes // 10)
        sample_every = max(1, window // SAMPLES)
        marks = [publishes // 10 or 1, publishes // 2, publishes]
        killed_at = {(place + 1) * publishes // (kills + 1) for place in range(kills)}
        found, seen = list[Sample](), list[Sample]()
        for number in range(1, publishes + 1):
            self.publish(number, is_killed=number in killed_at)
            if number % 10 == 0:
                self.age_jobs()
            if number % read_every == 0:
                self.read(self.states[-1].number)
                self.read(self.random.choice(self.states).number)
            if number % sample_every == 0 and any(mark - window < number <= mark for mark in marks):
                seen.append(self.measures.sample(number, self.fresh_ms[-window:]))
            if number in marks:
                found.append(Sample.median(seen))
                seen = []
                print(found[-1], flush=True)
        return found

    # -- writing

    def publish(self, number: int, *, is_killed: bool = False) -> None:
        events = [event for table in TABLES for event in self._events(table, number)]
        if is_killed:
            self.producer.insist(events)
            self._kill()
            wait_until_landed(self.pipeline.url)
        else:
            began_s = time.monotonic()
            answer = self.producer.send(events, wait="commit", timeout_s=60)
            if not answer["committed"]:
                wait_until_landed(self.pipeline.url)
            self.fresh_ms.append((time.monotonic() - began_s) * 1000)
        if number % OUTSIDE_EVERY == 0:
            self.outside.write(number)
        contents = {table: mirror.content for table, mirror in self.mirrors.items()}
        self.states.append(State(self.rest.head(), {**contents, OUTSIDE: self.outside.ids}))

    def _events(self, table: str, number: int) -> list[dict[str, Any]]:
        mirror, name, events = self.mirrors[table], f"{self.space}.{table}", []
        for place in range(EVENTS):
            key, version = self.random.randrange(KEYS), number * EVENTS + place
            mirror.changes += 1
            if key in mirror.rows and self.random.random() < 0.4:
                del mirror.rows[key]
                events.append(self.producer.event("DELETE", name, {"id": key}, None))
                continue
            kind = "UPDATE" if key in mirror.rows else "INSERT"
            mirror.rows[key] = version
            mirror.versions += version
            events.append(self.producer.event(kind, name, {"id": key}, {"id": key, "version": version}))
        return events

    def _kill(self) -> None:
        """The server or the worker, at a random point of the publish."""
        time.sleep(self.random.uniform(0, 1.5))
        if self.random.random() < 0.5:
            self.pipeline.stack.server.kill()
            expire_leases(self.pipeline.stack, "staging")
            self.pipeline.stack.server.start()
        else:
            self.pipeline.worker.kill()
            expire_leases(self.pipeline.stack, "leased")
            self.pipeline.worker.start()

    # -- reading

    def read(self, requested: int) -> bool:
        """Compare the kept moment that the server shows for a number. False: none is kept, or no more."""
        shown = self.shown(requested)
        if shown is None:
            return False
        assert shown <= requested
        try:
            found = self.found(shown)
        except (duckdb.Error, RESTError, NoSuchTableError, OSError):
            if shown < self.states[0].number:
                return False  # from before the tables
            # The periods are seconds here: the moment may end during the read, and its files be deleted.
            if self.shown(shown) == shown:
                raise
            return False
        self.compare(shown, found)
        return True

    def compare(self, number: int, found: dict[str, Content]) -> None:
        known = bisect_right([state.number for state in self.states], number)
        possible = self.states[max(0, known - 1) : known + 1]
        for table, content in found.items():
            assert content in [state.contents[table] for state in possible], (
                f"{table} at {number} is none of the states at {[state.number for state in possible]}"
            )

    def shown(self, requested: int) -> int | None:
        address, warehouse = f"{self.pipeline.url}/v1/config", {"warehouse": f"main@{requested}"}
        answer = httpx.get(address, params=warehouse, timeout=60)
        if answer.status_code == 404:
            assert "not kept any more" in answer.json()["error"]["message"]
            return None
        return int(answer.raise_for_status().headers["Calve-Moment"])

    def found(self, number: int) -> dict[str, Content]:
        """Everything that the tables show at a moment: every row of every file is read."""
        found: dict[str, Content] = {}
        with DuckLake(self.pipeline.stack, f"main@{number}") as lake:
            for table in TABLES:
                name = f"lake.{self.space}.{table}"
                rows = lake.sql(f"SELECT id, version FROM {name} ORDER BY id")
                ((changes, events, versions),) = lake.sql(
                    f"SELECT count(*), count(DISTINCT _event_id), sum(version)::bigint FROM {name}__changes"
                )
                assert changes == events, f"an event is in {table}__changes more than once"
                found[table] = tuple(rows), (changes, versions)
            ids = lake.sql(f"SELECT id FROM lake.{self.space}.{OUTSIDE} ORDER BY id")
            found[OUTSIDE] = tuple(id_ for (id_,) in ids)
        return found

    def read_all_kept(self) -> int:
        """Let no moment end any more, and read every one that is kept. Returns how many there are."""
        forever = {"kept-moments": "all:365d"}
        address = f"{self.pipeline.url}/lake/v1/main/maintenance"
        httpx.put(address, json=forever, timeout=60).raise_for_status()
        time.sleep(2)  # a round that had begun with the old policy ends
        wait_until_landed(self.pipeline.url)
        read = 0
        for number in self.kept_numbers():
            if number >= self.states[0].number:
                self.compare(number, self.found(number))
                read += 1
        return read

    def kept_numbers(self) -> list[int]:
        engine = sa.create_engine(self.pipeline.stack.database)
        with engine.connect() as connection:
            thinned = connection.execute(
                sa.text("SELECT thinned_number FROM maintenance WHERE warehouse = 'main'")
            ).scalar_one()
            listed = connection.execute(
                sa.text("SELECT number FROM moments WHERE warehouse = 'main' AND number <= :t"),
                {"t": thinned},
            ).scalars()
            recent = connection.execute(
                sa.text("SELECT DISTINCT number FROM history WHERE warehouse = 'main' AND number > :t"),
                {"t": thinned},
            ).scalars()
            found = sorted({*listed, *recent})
        engine.dispose()
        return found

    def close(self) -> None:
        self.producer.client.close()
