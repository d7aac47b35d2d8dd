"""The rules about what a mirror means, as changes of tables in every format.

A case is a generator: it changes its table and the model of it, and each `yield` ends a round, after which
the mirror has to equal the model. Rules that do not disturb each other share a table, each with its own keys.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import orjson
from websockets.sync.client import connect

from tests.contract.ingest.producers import (
    FORMATS,
    IN_TRANSACTIONS,
    NAMING_KEYS,
    PARTIAL,
    POSITIONED,
    READING,
    TRUNCATING,
    UNCHANGED,
    Row,
)
from tests.pipeline import meaning_shapes as shapes
from tests.pipeline.source_table import Rounds, SourceTable

CLOCK_ERROR_S = 61  # positions may fall within a minute: clocks are not exact


@dataclass(frozen=True, slots=True)
class Case:
    """A rule, or several, and the formats that they apply to."""

    run: Callable[[SourceTable], Rounds]
    formats: tuple[str, ...]
    about: dict[str, Any] = field(default_factory=dict)  # of the table

    @property
    def name(self) -> str:
        return self.run.__name__


def row(id_: int, name: str) -> Row:
    return {"id": id_, "name": name, "big": name.upper()}


def person(id_: int, name: str) -> Row:
    return {**row(id_, name), "email": f"{name}@example.org" if id_ != 4 else None, "secret": "s3cret"}


# -- key changes, repeats, late changes, transactions, rules of the source, truncate, failover, resync


def history(table: SourceTable) -> Rounds:
    """The life of a table under rules of its source: it is routed, a column is hashed, another dropped."""
    raw = table.sent_as
    table.call(
        "PUT",
        f"sources/{table.source}",
        {
            "include": [f"{raw}.*"],
            "exclude": ["*.skipped_*"],
            "route": [{"from": f"{raw}.*", "to": f"{table.space}.*"}],
            "drop-columns": {"*": ["secret"]},
            "hash-columns": {f"{raw}.{table.name}": ["email"]},
        },
    )
    table.configure(history_view=True)
    table.epoch = "1"
    table.insert(*(person(number, f"n{number}") for number in range(1, 15)))
    first = table.commit()
    table.send_other(raw, f"skipped_{table.name}", row(1, "of a table that the rules exclude"))
    table.send_other(f"{raw}_2", table.name, row(1, "of a table that the rules do not include"))
    yield

    _change_keys(table)
    if table.format != "supabase":  # its events have no identity
        table.send(first)
    yield

    late = _late_changes(table)
    table.delete(13)
    table.commit()
    yield

    for request in late:
        table.send(request)
        table.send(request)
    if late and table.format in PARTIAL:
        table.rows[12,]["big"] = "from the late change"
    yield

    yield from _fail_over(table)
    if table.format in READING:
        yield from _resync(table)


def _change_keys(table: SourceTable) -> None:
    table.update(1, id=101)
    table.commit()
    table.update(2, id=102, name="moved and changed")
    table.update(102, id=103)  # a chain
    table.update(3, id=104)
    table.delete(104)
    table.update(4, id=99)  # a swap by way of a free key
    table.update(5, id=4)
    table.update(99, id=5)
    table.commit()
    if table.format in IN_TRANSACTIONS or table.format == "canal":
        table.update_all((6, {"id": 7}), (7, {"id": 8}), (8, {"id": 6}))
        table.commit()
    if table.format in PARTIAL:
        table.update(9, id=109, big=UNCHANGED)
        table.commit()
        if table.format in IN_TRANSACTIONS:
            table.update_all((10, {"id": 11, "big": UNCHANGED}), (11, {"id": 10, "big": UNCHANGED}))
            table.commit()


def _late_changes(table: SourceTable) -> list[Any]:
    """Changes that newer ones overtake: of a whole row, of a deleted row, of a column that is left out."""
    if table.format not in POSITIONED:
        return []
    late = []
    for key, values in ((14, {"name": "old"}), (13, {"name": "deleted later"})):
        table.update(key, **values)
        late.append(table.packed())
    table.update(14, name="new", big="NEW")
    table.commit()
    if table.format in PARTIAL:
        before = dict(table.rows[12,])
        table.update(12, big="from the late change")
        late.append(table.packed())
        table.update(12, name="partial", big=UNCHANGED)
        table.commit()
        table.rows[12,]["big"] = before["big"]  # as long as the late change has not come
    return late


def _fail_over(table: SourceTable) -> Rounds:
    """To a server whose log begins anew: positions fall, and may be those of other changes before."""
    table.update(14, name="before the failover")
    old = table.commit()
    table.epoch = "2"
    table.producer.count_anew()
    table.update(14, name="behind the failover")
    table.insert(person(20, "n20"))
    table.commit()
    if table.format != "supabase":
        table.send(old)
    yield
    if table.format in TRUNCATING:
        table.truncate()
        table.insert(person(21, "n21"), person(22, "n22"))
        table.commit()
        yield


def _resync(table: SourceTable) -> Rounds:
    """The source sends all rows again. They do not overwrite changes that came meanwhile."""
    table.call("POST", "resync")
    kept, streamed = person(31, "read"), person(32, "streamed")
    table.rows.clear()
    table.insert(streamed)
    table.commit()
    table.read(kept)
    table.put(kept)
    if table.format in ("native", "maxwell", "canal", "sequin"):  # these rows have no position
        table.read(early := person(32, "read before it was streamed"))
        table.versions.append(early)
    table.commit()
    table.call("POST", "resync/end")
    yield
    assert table.call("GET", "resync")["state"] == "published"


# -- another history


def another_server(table: SourceTable) -> Rounds:
    """The log of a promoted MySQL replica has lower positions. The old primary's log is not applied again."""
    table.producer.server_id = 1
    yield from _two_servers(table, lambda number: setattr(table.producer, "server_id", number))


def another_gtid(table: SourceTable) -> Rounds:
    """The same, if only GTIDs name the server."""
    ids = {1: "3e11fa47-71ca-11e1-9e33-c80aa9429562", 2: "8a94f357-aab4-11df-86ab-c80aa9429444"}
    table.producer.server_id = None
    yield from _two_servers(table, lambda number: setattr(table.producer, "gtid", f"{ids[number]}:7"))


def _two_servers(table: SourceTable, promote: Callable[[int], None]) -> Rounds:
    promote(1)
    for number in range(1, 5):
        table.insert(row(number, f"n{number}"))
        table.commit()
    table.insert(row(5, "n5"))
    old = table.commit()
    yield
    promote(2)
    table.producer.count_anew()
    table.update(5, name="by the new primary")
    table.commit()
    table.send(old)
    yield


def another_name(table: SourceTable) -> Rounds:
    """Another producer has positions of its own."""
    for number in range(1, 6):
        table.insert(row(number, f"n{number}"))
        table.commit()
    yield
    table.source += "-2"
    table.producer.count_anew()
    table.update(5, name="by the other producer")
    table.commit()
    yield


def held(table: SourceTable) -> Rounds:
    """A restored database: positions fall while the time rises, and nothing explains it."""
    for number in range(1, 6):
        table.insert(row(number, f"n{number}"))
        table.commit()
    yield
    table.producer.count_anew()
    table.producer.clock_s += CLOCK_ERROR_S
    table.update(5, name="restored")
    table.insert(row(6, "restored"))
    restored = table.packed()
    answer = table.send(restored, 409)
    assert "X-Source-Epoch" in answer.text, answer.text
    assert "is before" in table.held_because
    begun = table.call("POST", f"sources/{table.source}/epoch", {"reason": "restored from a backup"})
    assert (begun["epoch"], begun["held"]) == (1, None), begun
    table.send(restored)
    yield


def held_with_the_same_history(table: SourceTable) -> Rounds:
    for number in range(1, 4):
        table.insert(row(number, f"n{number}"))
        table.commit()
    yield
    table.producer.count_anew()
    table.producer.clock_s += CLOCK_ERROR_S
    table.insert(row(4, "of a transaction that began early"))
    late = table.packed()
    table.send(late, 409)
    same = table.call("POST", f"sources/{table.source}/epoch", {"same-history": True})
    assert (same["epoch"], same["same-history"]) == (0, True), same
    table.send(late)
    yield


def made_anew(table: SourceTable) -> Rounds:
    """A source counts from 1 again: not a duplicate, but a conflict until it names its epoch."""
    for number in (1, 2):
        table.insert(row(number, f"n{number}"))
        table.commit()
    yield
    table.producer.count_anew()
    table.update(1, name="made anew")
    again = table.packed()
    assert "X-Source-Epoch" in table.send(again, 409).text
    batch = {"type": "cdc_batch", "timestamp": 0, "sourceDoId": table.source, "sequenceNumber": 1}
    with connect(f"ws://{table.client.base_url.netloc.decode()}/ws") as socket:
        for epoch, kind in ((None, "nack"), ("second", "ack")):
            named = {"epoch": epoch} if epoch is not None else {}
            socket.send(orjson.dumps({**batch, **named, "events": again.body}).decode())
            answer = orjson.loads(socket.recv(timeout=30))
            assert answer["type"] == kind, answer
    table.epoch = "second"
    table.update(2, name="made anew")
    table.commit()
    yield


# -- truncates that are not applied


def truncate_ignored_and_held(table: SourceTable) -> Rounds:
    table.configure(truncate="ignore")
    table.insert(row(1, "a"), row(2, "b"))
    table.commit()
    yield
    kept = dict(table.rows)
    table.truncate()
    table.rows |= kept
    table.insert(row(3, "c"))
    table.commit()
    yield
    table.configure(truncate="hold")
    kept = dict(table.rows)
    table.truncate()
    table.insert(row(4, "d"))
    table.commit()
    emptied, table.rows, table.waits = table.rows, kept, True
    yield
    assert "set truncate to apply or ignore" in table.status["stalled"]
    table.configure(truncate="apply")
    table.rows, table.waits = emptied, False
    yield


TENANTS = {"key": ("tenant", "id"), "columns": ("tenant", "id", "name"), "names_key": False}
UNNAMED = tuple(format_ for format_ in FORMATS if format_ not in NAMING_KEYS)
FALLING = tuple(format_ for format_ in POSITIONED if format_ not in ("native", "dms", "hasura", "cockroach"))
CASES = (
    Case(history, FORMATS, {"columns": ("id", "name", "big", "email"), "hashed": ("email",)}),
    Case(another_server, ("maxwell", "debezium-mysql")),
    Case(another_gtid, ("debezium-mysql",)),
    Case(another_name, ("native", "debezium")),
    Case(held, FALLING),
    Case(held_with_the_same_history, ("debezium",)),
    Case(made_anew, ("native",)),
    Case(truncate_ignored_and_held, TRUNCATING),
    Case(shapes.shape, FORMATS, {**TENANTS, "columns": ("tenant", "id", "price", "note"), "is_soft": True}),
    Case(shapes.split, ("native", "canal", "wal2json", "debezium"), {"columns": ("id", "n")}),
    Case(shapes.reject, ("native", "canal", "wal2json", "debezium"), {"columns": ("id", "n")}),
    Case(shapes.renamed, ("debezium",), {"columns": ("id", "a")}),
    Case(shapes.default_of_a_new_column, ("debezium",), {"columns": ("id",)}),
    Case(shapes.key_set_later, UNNAMED[::2], TENANTS),
    Case(shapes.key_named_later, UNNAMED[1::2], TENANTS),
    Case(shapes.key_by_evidence, ("debezium", "debezium-flattened", "cloudevents"), TENANTS),
)
