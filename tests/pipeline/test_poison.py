"""Poison: exactly the good rows land, exactly the bad ones are dead letters, and after a fix all are loaded.

Of the changes 1 % is bad, in the ways of poison.py. A bad change of a row is often followed by good ones of
the same row: when it is fixed and replayed, it takes its old place and undoes nothing.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from tests.concurrency.seeds import seed
from tests.harness.rest import Rest
from tests.harness.stacks import STACKS, StackName, Stacks
from tests.pipeline.conftest import Pipeline
from tests.pipeline.own import own_pipeline
from tests.pipeline.poison import SCHEMA, WAYS, Event, Way
from tests.pipeline.producer import Producer, flush

__all__ = ["seed"]  # a fixture

TABLES = 3
BAD = 0.01
COLUMNS = ("id", "n", "price", "day", "at", "flag", "note")
Row = tuple[object, ...]


@dataclass(slots=True)
class Bad:
    """A bad event: its way, and as it should have been."""

    way: Way
    marker: str
    fixed: Event


@dataclass(slots=True)
class Stream:
    """The changes of one source over some tables, the lines that carry them, and what is bad among them."""

    space: str
    changes: int
    rng: random.Random
    lines: list[bytes] = field(default_factory=list)
    good: list[Event] = field(default_factory=list)
    bad: list[Bad] = field(default_factory=list)

    def make(self) -> None:
        wrong = set(self.rng.sample(range(1, self.changes + 1), max(len(WAYS), int(self.changes * BAD))))
        alive: dict[str, set[int]] = {f"t{number}": set() for number in range(TABLES)}
        for sequence in range(1, self.changes + 1):
            way = WAYS[len(self.bad) % len(WAYS)] if sequence in wrong else None
            event = self._event(sequence, alive, way)
            if way is None:
                self.good.append(event)
                self.lines.append(orjson.dumps(event))
            else:
                self.lines.append(way.spoil(event))
                self.bad.append(Bad(way, event["rowId"], event))

    def _event(self, sequence: int, alive: dict[str, set[int]], way: Way | None) -> Event:
        table = self.rng.choice(sorted(alive))
        key = self.rng.randrange(max(10, self.changes // 20))
        if way is not None and not way.keeps_place:
            key = 1_000_000 + sequence  # a row of its own: nothing says where its change belongs
        operation = "UPDATE" if key in alive[table] else "INSERT"
        row: Event | None = self._row(key, sequence)
        if way is None:
            if operation == "UPDATE" and self.rng.random() < 0.2:
                operation, row = "DELETE", None
                alive[table].discard(key)
            else:
                alive[table].add(key)
        return {
            "sequence": sequence,
            "timestamp": 1_700_000_000_000 + sequence,
            "operation": operation,
            "table": f"{self.space}.{table}",
            "rowId": f"{self.space}-{sequence:08}",
            "before": {"id": key} if operation == "DELETE" else None,
            "after": row,
        }

    def _row(self, key: int, sequence: int) -> Event:
        cents = self.rng.randrange(100, 10**9)
        return {
            "id": key,
            "n": 10**15 + sequence,
            "price": f"{cents // 100}.{cents % 100:02}",
            "day": f"2026-{1 + sequence % 12:02}-{1 + sequence % 28:02}",
            "at": f"2026-01-01T00:{sequence // 60 % 60:02}:{sequence % 60:02}Z",
            "flag": sequence % 2 == 0,
            "note": f"note {sequence}",
        }

    def bodies(self, size: int) -> Iterator[bytes]:
        for start in range(0, len(self.lines), size):
            yield b"\n".join(self.lines[start : start + size])

    def mirror(self, table: str, *, fixed: bool) -> list[Row]:
        """What the table holds: the newest change of each row decides."""
        events = self.good + [bad.fixed for bad in self.bad if fixed]
        newest: dict[int, Event] = {}
        for event in sorted(events, key=lambda event: int(event["sequence"])):
            if event["table"] == f"{self.space}.{table}":
                row = event["after"] or event["before"]
                newest[row["id"]] = event
        rows = (event["after"] for event in newest.values() if event["after"] is not None)
        return sorted(tuple(str(row[name]) for name in ("id", "n", "price", "day", "note")) for row in rows)

    def logged(self, table: str, *, fixed: bool) -> int:
        events = self.good + [bad.fixed for bad in self.bad if fixed]
        return sum(event["table"] == f"{self.space}.{table}" for event in events)


def test_bad_changes_do_not_stop_others_and_land_after_a_fix(pipeline: Pipeline, seed: int) -> None:
    prove(pipeline, 3_000, 300, seed)


@pytest.mark.proof
@pytest.mark.xdist_group("pipeline")
@pytest.mark.parametrize("name", STACKS)
def test_many_bad_changes_do_not_stop_others(
    stacks: Stacks, tmp_path: Path, name: StackName, seed: int
) -> None:
    with own_pipeline(stacks, name, tmp_path) as pipeline:
        prove(pipeline, 100_000, 1_000, seed)


def prove(pipeline: Pipeline, changes: int, batch: int, seed: int) -> None:
    stream = Stream(f"n{uuid.uuid4().hex[:8]}", changes, random.Random(seed))
    stream.make()
    rest = Rest(pipeline.url)
    rest.ok("POST", rest.path("namespaces"), json={"namespace": [stream.space]})
    tables = [f"t{number}" for number in range(TABLES)]
    for table in tables:
        rest.create(stream.space, table, schema=SCHEMA)
    for body in stream.bodies(batch):
        answer = _post(pipeline, stream, body)
        assert answer.is_success, answer.text
    flush(pipeline.url, timeout_s=600)
    for table in tables:
        assert _mirror(pipeline, stream, table) == stream.mirror(table, fixed=False)
        assert _logged(pipeline, stream, table) == stream.logged(table, fixed=False)
    letters = _require_letters(pipeline, stream)
    _require_rejects(pipeline, stream, letters)
    for bad in stream.bad:
        path = f"{pipeline.url}/lake/v1/main/dead-letters/{letters[bad.marker]['id']}"
        answer = httpx.put(path, json={"event": bad.fixed}, timeout=60)
        assert answer.status_code == 200, (bad.way.name, answer.text)
    ids = [letters[bad.marker]["id"] for bad in stream.bad]
    stream.rng.shuffle(ids)
    replay = f"{pipeline.url}/lake/v1/main/dead-letters/replay"
    assert httpx.post(replay, json={"ids": ids}, timeout=60).json() == {"replayed": len(ids)}
    flush(pipeline.url, timeout_s=600)
    for table in tables:
        assert _mirror(pipeline, stream, table) == stream.mirror(table, fixed=True)
        assert _logged(pipeline, stream, table) == stream.logged(table, fixed=True)
    states = {letter["state"] for letter in _letters(pipeline) if letter["id"] in set(ids)}
    assert states == {"replayed"}
    print(
        f"{changes} changes, {len(ids)} of them bad in {len(WAYS)} ways: each in its place, then all loaded"
    )


def _post(pipeline: Pipeline, stream: Stream, body: bytes) -> httpx.Response:
    return httpx.post(
        f"{pipeline.url}/cdc",
        content=body,
        params={"format": "native", "on-unusable": "dead-letter"},
        headers={"X-Source-Id": stream.space, "Content-Type": "application/x-ndjson"},
        timeout=60,
    )


def _mirror(pipeline: Pipeline, stream: Stream, table: str) -> list[Row]:
    columns = "id::VARCHAR, n::VARCHAR, price::VARCHAR, day::VARCHAR, note"
    return sorted(pipeline.rows(f"SELECT {columns} FROM lake.{stream.space}.{table}"))


def _logged(pipeline: Pipeline, stream: Stream, table: str) -> object:
    """How many events the history has; each is in it once."""
    query = f"SELECT count(*), count(DISTINCT _event_id) FROM lake.{stream.space}.{table}__changes"
    count, events = pipeline.rows(query)[0]
    assert count == events
    return count


def _letters(pipeline: Pipeline) -> Iterator[dict[str, Any]]:
    token = ""
    while True:
        params: dict[str, str | int] = {"pageSize": 1000, "pageToken": token}
        page = httpx.get(f"{pipeline.url}/lake/v1/main/dead-letters", params=params, timeout=60).json()
        yield from page["dead-letters"]
        token = page.get("next-page-token") or ""
        if not token:
            return


def _require_letters(pipeline: Pipeline, stream: Stream) -> dict[str, dict[str, Any]]:
    """The letter of each bad event, by its mark; there is one for each, and no other."""
    found: dict[str, dict[str, Any]] = {}
    known = {bad.marker: bad for bad in stream.bad}
    for letter in _letters(pipeline):
        url = f"{pipeline.url}/lake/v1/main/dead-letters/{letter['id']}"
        detail = httpx.get(url, timeout=60).json() if letter["source"] == stream.space else letter
        if "original" not in detail:
            continue
        at = detail["original"].index(stream.space + "-")
        marker = detail["original"][at : at + len(stream.space) + 9]
        assert marker in known, detail
        assert marker not in found, detail
        found[marker] = detail
        way = known[marker].way
        assert detail["state"] == "open"
        assert all(word in detail["reason"] for word in way.says), (way.name, detail["reason"])
        wanted = known[marker].fixed["table"].split(".") if way.routed else ["default", "unrouted"]
        assert detail["table"] == wanted, (way.name, detail)
    assert found.keys() == known.keys()
    return found


def _require_rejects(pipeline: Pipeline, stream: Stream, letters: dict[str, dict[str, Any]]) -> None:
    """The same in the tables that every engine reads."""
    for table in {".".join(letter["table"]) for letter in letters.values()}:
        kept = pipeline.rows(
            f"SELECT _dead_letter, _reason FROM lake.{table}__rejects WHERE _source = '{stream.space}'"
        )
        wanted = [(x["id"], x["reason"]) for x in letters.values() if ".".join(x["table"]) == table]
        assert sorted(kept) == sorted(wanted)


# -- after-reject: wait


def test_later_changes_of_a_row_wait_for_a_bad_one_by_its_setting(pipeline: Pipeline) -> None:
    space = f"n{uuid.uuid4().hex[:8]}"
    table = f"{space}.t"
    shop = Producer(pipeline.url, f"shop-{space}")
    settings = f"{pipeline.url}/lake/v1/main/namespaces/{space}/tables/t/ingest"
    httpx.put(settings, json={"after-reject": "wait"}, timeout=60).raise_for_status()

    def change(operation: str, id_: int, n: Any = None) -> Event:
        row = {"id": id_, "n": n}
        before, after = (row, None) if operation == "DELETE" else (None, row)
        return shop.event(operation, table, before, after)

    def rows() -> list[Row]:
        return pipeline.rows(f"SELECT id, n FROM lake.{table} ORDER BY id")

    shop.send([change("INSERT", 1, 10), change("INSERT", 2, 20), change("INSERT", 3, 30)])
    flush(pipeline.url)
    shop.send(
        [
            change("UPDATE", 1, 11),
            change("UPDATE", 1, "twelve"),
            change("UPDATE", 1, 13),
            change("UPDATE", 2, 21),
            change("DELETE", 3),
        ]
    )
    flush(pipeline.url)
    assert rows() == [(1, 11), (2, 21)]
    shop.send([change("DELETE", 1), change("INSERT", 1, 14), change("UPDATE", 2, 22)])
    flush(pipeline.url)
    assert rows() == [(1, 11), (2, 22)]
    letters = f"{pipeline.url}/lake/v1/main/dead-letters"
    found = httpx.get(letters, params={"table": table}, timeout=60).json()["dead-letters"]
    assert [letter["code"] for letter in found] == ["unfit", "waits", "waits", "waits"]
    assert all("1" in letter["reason"] and "waits" in letter["reason"] for letter in found[1:])
    # One that only waits cannot overtake what it waits for.
    httpx.post(f"{letters}/replay", json={"ids": [found[1]["id"]]}, timeout=60).raise_for_status()
    flush(pipeline.url)
    assert rows() == [(1, 11), (2, 22)]
    fixed = {"event": change("UPDATE", 1, 12)}
    httpx.put(f"{letters}/{found[0]['id']}", json=fixed, timeout=60).raise_for_status()
    answer = httpx.post(f"{letters}/replay", json={"table": [space, "t"]}, timeout=60)
    assert answer.json() == {"replayed": 4}
    flush(pipeline.url)
    assert rows() == [(1, 14), (2, 22)]
    shop.send([change("UPDATE", 1, 15)])
    flush(pipeline.url)
    assert rows() == [(1, 15), (2, 22)]
    history = pipeline.rows(
        f"SELECT _operation, n FROM lake.{table}__changes WHERE id = 1 ORDER BY _position"
    )
    wanted = [("insert", 10), *(("update", n) for n in (11, 12, 13)), ("delete", None), ("insert", 14)]
    assert history == [*wanted, ("update", 15)]
    states = {
        x["state"] for x in httpx.get(letters, params={"table": table}, timeout=60).json()["dead-letters"]
    }
    assert states == {"replayed"}
    shop.client.close()
