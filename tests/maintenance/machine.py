"""A warehouse that is written to, aged and maintained at random, beside a model that remembers everything.

After each round of maintenance, every number is read. The warehouse must show the last kept moment at or
before it, with exactly the tables, snapshots and tags that the model has for that moment; and no table may
have a snapshot that nothing needs.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import orjson

from catalog.errors import NoSuchWarehouse
from catalog.moments import AtTime
from catalog.names import Identifier, Namespace, WarehouseRef, warehouse_ref
from catalog.services import namespaces, tables, transactions
from catalog.services.catalog import Catalog
from catalog.services.commits import TableCommit, commit_tables
from catalog.services.writes import WriteContext
from maintenance.kept_moments import DEFAULT, KeptMomentsPolicy, kept
from maintenance.policies import Policies
from maintenance.rounds import Rounds, RoundSettings
from maintenance.store import MaintenanceStore
from tests.harness.rest import SCHEMA, append_body

NAMESPACE = Namespace(("db",))
CONTEXT = WriteContext("tester")
POLICY = KeptMomentsPolicy.parse(DEFAULT)
STEPS_S = (1, 20, 61, 700, 4000, 30_000, 200_000, 3_000_000)


class Clock:
    """Replaces `time.time_ns`, so that a year takes no time."""

    def __init__(self) -> None:
        self.real = time.time_ns
        self.offset_ns = 0

    def __call__(self) -> int:
        return self.real() + self.offset_ns

    def advance(self, seconds: float) -> None:
        self.offset_ns += int(seconds * 1e9)


# name -> current snapshot, tags, number of columns
Content = dict[str, tuple[int | None, dict[str, int], int]]


@dataclass(slots=True)
class Lake:
    catalog: Catalog
    unpinned: Catalog  # its readers pin nothing, so a test can read every moment and change none
    clock: Clock
    random: random.Random
    moments: list[tuple[int, int]] = field(default_factory=list)
    contents: dict[int, Content] = field(default_factory=dict)
    pins: dict[int, int] = field(default_factory=dict)  # number -> until, in milliseconds
    open: dict[str, int] = field(default_factory=dict)  # transaction -> base number
    names: int = 0
    rounds: Rounds = field(init=False)

    def __post_init__(self) -> None:
        store = MaintenanceStore(self.catalog.database)
        self.rounds = Rounds(self.catalog, store, Policies(store), RoundSettings())
        namespaces.create(self.catalog, self.state(), CONTEXT, NAMESPACE, {})
        self.remember()
        self.create()

    def state(self) -> Any:
        return self.catalog.state(warehouse_ref("main"))

    def now_ms(self) -> int:
        return self.clock() // 1_000_000

    # -- what writers do

    def create(self) -> None:
        self.names += 1
        name = f"t{self.names}"
        request: dict[str, Any] = {"name": name, "schema": SCHEMA}
        if self.random.random() < 0.5:  # old versions are then rebuilt, because their files are gone
            request["properties"] = {
                "write.metadata.delete-after-commit.enabled": "true",
                "write.metadata.previous-versions-max": "2",
            }
        tables.create(self.catalog, self.state(), CONTEXT, Identifier(NAMESPACE, name), request)
        self.remember()

    def append(self) -> None:
        self._commit(lambda metadata: append_body(metadata)["updates"])

    def append_many(self) -> None:
        for _ in range(self.random.randint(2, 30)):
            self.append()

    def tag(self) -> None:
        def updates(metadata: dict[str, Any]) -> list[dict[str, Any]]:
            ids = [one["snapshot-id"] for one in metadata["snapshots"]]
            if not ids:
                return []
            ref = {"action": "set-snapshot-ref", "type": "tag", "snapshot-id": self.random.choice(ids)}
            return [ref | {"ref-name": f"tag{self.random.randint(1, 2)}"}]

        self._commit(updates)

    def evolve(self) -> None:
        def updates(metadata: dict[str, Any]) -> list[dict[str, Any]]:
            schema = next(s for s in metadata["schemas"] if s["schema-id"] == metadata["current-schema-id"])
            id_ = metadata["last-column-id"] + 1
            field = {"id": id_, "name": f"c{id_}", "type": "int", "required": False}
            wider = {"type": "struct", "fields": [*schema["fields"], field]}
            return [
                {"action": "add-schema", "schema": wider, "last-column-id": id_},
                {"action": "set-current-schema", "schema-id": -1},
            ]

        self._commit(updates)

    def untag(self) -> None:
        self._commit(lambda _: [{"action": "remove-snapshot-ref", "ref-name": "tag1"}])

    def roll_back(self) -> None:
        def updates(metadata: dict[str, Any]) -> list[dict[str, Any]]:
            ids = [one["snapshot-id"] for one in metadata["snapshots"]]
            if not ids:
                return []
            id_ = self.random.choice(ids)
            return [{"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": id_}]

        self._commit(updates)

    def rename(self) -> None:
        name = self._any()
        if name is not None:
            self.names += 1
            target = Identifier(NAMESPACE, f"t{self.names}")
            tables.rename(self.catalog, self.state(), CONTEXT, Identifier(NAMESPACE, name), target)
            self.remember()

    def drop_and_restore(self) -> None:
        name = self._any()
        if name is None:
            return
        tables.drop(self.catalog, self.state(), CONTEXT, Identifier(NAMESPACE, name))
        self.remember()
        (found,) = [
            one
            for one in self.catalog.records.dropped_before("main", self.now_ms(), 2**62, "", 100)
            if one.entry.name == name
        ]
        self.names += 1
        target = Identifier(NAMESPACE, f"t{self.names}") if self.random.random() < 0.5 else None
        tables.undrop(self.catalog, self.state(), CONTEXT, found.id, target)
        self.remember()

    def open_transaction(self) -> None:
        name = f"x{len(self.open)}-{self.random.randint(0, 10**9)}"
        opened = transactions.open_transaction(self.catalog, "main", "tester", name, 7 * 86_400)
        self.open[name] = opened.base_number

    def publish(self) -> None:
        if not self.open:
            return
        name = self.random.choice(sorted(self.open))
        base = self.open.pop(name)
        transaction = self.catalog.transactions.newest("main", name)
        if transaction is None or not transaction.is_open(self.now_ms()):
            return
        inside = self.catalog.state(WarehouseRef("main", transaction=name))
        assert self.content(inside) == self.contents[base], "an open transaction lost its base"
        transactions.abort(self.catalog, "main", name)

    def pin(self) -> None:
        """A reader names a time; later it reads the number that it was told."""
        _, time_ms = self.random.choice(self.moments)
        try:
            pinned = self.catalog.pin(WarehouseRef("main", at=str(AtTime(time_ms))))
        except NoSuchWarehouse:
            return
        self.note_pin(pinned)

    def read_number(self) -> None:
        """A reader names a number of which only some moments around it are kept."""
        thinned_number = self.catalog.moments.all("main").thinned_number
        numbers = [number for number, _ in self.moments if number <= thinned_number]
        if not numbers:
            return
        try:
            read = self.catalog.state(WarehouseRef("main", at=str(self.random.choice(numbers)))).number()
        except NoSuchWarehouse:
            return
        assert read is not None
        if self.pins.get(read, 0) - self.now_ms() < self.catalog.limits.pin_s * 1000 // 2:
            self.note_pin(read)

    def note_pin(self, number: int) -> None:
        until_ms = self.now_ms() + self.catalog.limits.pin_s * 1000
        if number:
            self.pins[number] = max(until_ms, self.pins.get(number, 0))

    def wait(self) -> None:
        self.clock.advance(self.random.choice(STEPS_S))

    # -- the round, and what must hold after it

    def maintain(self) -> None:
        self.clock.advance(61)
        self.rounds.once()
        self.remember()  # expiry takes numbers, and changes nothing that readers see
        now_ms = self.now_ms()
        found = self.catalog.moments.all("main")
        assert found.thinned_number <= self.moments[-1][0]
        expected = self.expected(now_ms)
        for number, _ in self.moments:
            at = max((kept_ for kept_ in expected if kept_ <= number), default=None)
            if at is None:
                self.refuses(number)
                continue
            state = self.unpinned.state(WarehouseRef("main", at=str(number)))
            assert state.number() == at, f"main@{number} shows {state.number()} and not {at}"
            if number in expected:
                assert self.content(state) == self.contents[number], f"moment {number} has changed"
        self.nothing_is_left_over(expected, now_ms)

    def expected(self, now_ms: int) -> set[int]:
        bases = set()
        for name, base in self.open.items():
            transaction = self.catalog.transactions.newest("main", name)
            if transaction is not None and transaction.is_open(now_ms):
                bases.add(base)
        pinned = {number for number, until_ms in self.pins.items() if until_ms > now_ms}
        return kept(self.moments, POLICY, now_ms) | bases | pinned

    def refuses(self, number: int) -> None:
        try:
            self.unpinned.state(WarehouseRef("main", at=str(number)))
        except NoSuchWarehouse:
            return
        raise AssertionError(f"main@{number} is older than every kept moment and can be read")

    def nothing_is_left_over(self, expected: set[int], now_ms: int) -> None:
        needed = {
            id_
            for number in expected
            for snapshot_id, tags, _ in self.contents[number].values()
            for id_ in (snapshot_id, *tags.values())
        }
        for name in self.state().names(NAMESPACE.key, "table", "", 1000):
            metadata = self.document(self.state(), name)
            for snapshot in metadata["snapshots"]:
                is_new = now_ms - snapshot["timestamp-ms"] < 6 * POLICY.all_ms
                assert snapshot["snapshot-id"] in needed or is_new, (
                    f"{name} has a snapshot that nothing needs"
                )

    # -- reading

    def remember(self) -> None:
        """Note the new numbers. Only the last of them can have changed what readers see."""
        last = self.moments[-1][0] if self.moments else 0
        numbers = {row["number"]: row["time_ms"] for row in self.catalog.history.events("main", last, 1000)}
        for number, time_ms in numbers.items():
            self.moments.append((number, time_ms))
            self.contents[number] = self.content(self.state())

    def content(self, state: Any) -> Content:
        found: Content = {}
        for name in state.names(NAMESPACE.key, "table", "", 1000):
            metadata = self.document(state, name)
            ids = {snapshot["snapshot-id"] for snapshot in metadata["snapshots"]}
            current = metadata.get("current-snapshot-id")
            current = None if current == -1 else current
            refs = metadata.get("refs") or {}
            tags = {ref: one["snapshot-id"] for ref, one in refs.items() if ref != "main"}
            assert current is None or current in ids, f"{name} has lost its current snapshot"
            assert ids >= set(tags.values()), f"{name} has lost a tagged snapshot"
            schemas = {schema["schema-id"]: schema for schema in metadata["schemas"]}
            found[name] = (current, tags, len(schemas[metadata["current-schema-id"]]["fields"]))
        return found

    def document(self, state: Any, name: str) -> dict[str, Any]:
        entry = state.load(NAMESPACE.key, name)
        assert entry is not None
        found: dict[str, Any] = orjson.loads(entry.document)
        return found

    def _any(self) -> str | None:
        names = self.state().names(NAMESPACE.key, "table", "", 1000)
        return self.random.choice(names) if names else None

    def _commit(self, make: Callable[[dict[str, Any]], list[dict[str, Any]]]) -> None:
        name = self._any()
        if name is None:
            return
        updates = make(self.document(self.state(), name))
        if updates:
            commit = TableCommit(Identifier(NAMESPACE, name), [], updates)
            commit_tables(self.catalog, self.state(), CONTEXT, [commit])
            self.remember()
