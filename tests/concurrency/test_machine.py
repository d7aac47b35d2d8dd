"""Random work on a whole warehouse, compared with a model of plain dicts at every number.

Namespaces, tables, views, renames, drops, undrops, protection, commits of one and of two tables, several open
transactions at once that are published, aborted or expire, and looks at past moments. After each step the
present is what the model says; at the end every number is.
"""

from __future__ import annotations

import shutil
import tempfile
import uuid as uuids
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from catalog.errors import CatalogError
from catalog.names import Identifier, Namespace
from catalog.services import commits, namespaces, tables, transactions, views, writes
from catalog.services.commits import TableCommit
from catalog.services.warehouse_state import WarehouseState
from catalog.services.warehouses import ensure_main
from catalog.store.migrations import migrate
from tests.concurrency.catalog_address import CONTEXT, CatalogAddress, gaps, problems, state
from tests.concurrency.model import Key, Lake, Refused, Request, Thing, World
from tests.harness.rest import SCHEMA, append_body

NAMESPACES = ("n", "n\x1fs", "o")
NAMES = ("a", "b", "c")
TRANSACTIONS = ("w0", "w1", "w2")
VIEW = {
    "schema": SCHEMA,
    "view-version": {
        "version-id": 1,
        "timestamp-ms": 0,
        "schema-id": 0,
        "summary": {"engine-name": "test"},
        "default-namespace": ["n"],
        "representations": [{"type": "sql", "sql": "select 1", "dialect": "spark"}],
    },
}

KEYS = tuple((namespace, name) for namespace in NAMESPACES for name in NAMES)
picks = st.integers(
    0, 9999
)  # which of what is there: most draws must mean something, or nothing much happens
kinds = st.sampled_from(["table", "table", "table", "view"])
values = st.sampled_from(["1", "2", "3"])


def identifier(key: Key) -> Identifier:
    return Identifier(Namespace.from_key(key[0]), key[1])


class Warehouse(RuleBasedStateMachine):
    """The services on a SQLite file of their own, and the model beside them."""

    template: Path  # a folder with an empty catalog

    def __init__(self) -> None:
        super().__init__()
        self._folder = Path(tempfile.mkdtemp(prefix="calve-machine-"))
        shutil.copyfile(self.template / "catalog.db", self._folder / "catalog.db")
        root = f"file://{self.template}/warehouse"
        self.catalog = CatalogAddress(f"sqlite:///{self._folder}/catalog.db", root).catalog()
        self._later_ms = 0
        now_ms = self.catalog.now_ms
        setattr(self.catalog, "now_ms", lambda: now_ms() + self._later_ms)  # noqa: B010
        self.model = Lake()
        self.over: dict[str, int | str | None] = {}  # transactions that ended: their number, or how

    def teardown(self) -> None:
        try:
            head = self.catalog.entries.number("main")
            assert head is not None
            assert head[0] == len(self.model.moments) - 1
            for number, world in enumerate(self.model.moments):
                assert self._seen(state(self.catalog, f"main@{number}")) == _seen(world), f"number {number}"
            assert gaps(self.catalog) == []
            assert problems(self.catalog) == []
        finally:
            self.catalog.database.close()
            shutil.rmtree(self._folder)

    # -- what is there

    def _seen(self, where: WarehouseState) -> dict[Key, tuple[Any, ...]]:
        """Everything that a reader can find, by listing and loading."""
        found: dict[Key, tuple[Any, ...]] = {}
        pending = where.children("", "", 100)
        while pending:
            namespace = pending.pop()
            pending += where.children(namespace, "", 100)
            entry = where.load(namespace, "")
            assert entry is not None
            found[namespace, ""] = _described(entry.kind, entry.uuid, entry.document)
            for kind in ("table", "view"):
                for name in where.names(namespace, kind, "", 100):
                    entry = where.load(namespace, name)
                    assert entry is not None
                    found[namespace, name] = _described(entry.kind, entry.uuid, entry.document)
        return found

    @invariant()
    def the_present_is_the_model(self) -> None:
        assert self._seen(state(self.catalog)) == _seen(self.model.present)

    @rule(name=st.sampled_from(TRANSACTIONS))
    def an_open_transaction_sees_its_own(self, name: str) -> None:
        if self._is_open(name):
            assert self._seen(state(self.catalog, f"main~{name}")) == _seen(self.model.open[name].world)

    @rule(share=st.floats(0, 1))
    def a_moment_stays_what_it_was(self, share: float) -> None:
        number = round(share * (len(self.model.moments) - 1))
        assert self._seen(state(self.catalog, f"main@{number}")) == _seen(self.model.moments[number])

    # -- which

    def _where(self, pick: int) -> str:
        """The present or an open transaction; now and then one that is over."""
        if pick % 25 == 7:
            return TRANSACTIONS[pick % len(TRANSACTIONS)]
        return ["main", *sorted(self.model.open) * 2][pick // 25 % (1 + 2 * len(self.model.open))]

    def _key(self, where: str, pick: int, kind: str) -> Key:
        """Something of that kind that is there; now and then any name."""
        world = (
            self.model.present if where == "main" or where not in self.model.open else self.model.world(where)
        )
        there = sorted(key for key, thing in world.items() if thing.kind == kind)
        if not there or pick % 10 == 3:
            return (
                KEYS[pick // 10 % len(KEYS)]
                if kind != "namespace"
                else (NAMESPACES[pick // 10 % len(NAMESPACES)], "")
            )
        return there[pick // 10 % len(there)]

    # -- both at once

    def _is_open(self, name: str) -> bool:
        return name in self.model.open and self.catalog.now_ms() < self.model.open[name].expires_ms

    def _both(self, where: str, do: Callable[[WarehouseState], Any], model: Callable[[Any], object]) -> None:
        """Do it in the catalog and in the model; both do it, or both refuse it for the same reason."""
        if where != "main" and not self._is_open(where):
            self._late(where, do)
            return
        answer = _tried(lambda: do(state(self.catalog, where if where == "main" else f"main~{where}")))
        if isinstance(answer, CatalogError):
            answer, refusal = Thing("table", "?"), answer
        else:
            refusal = None
        _require_same_refusal(refusal, _tried(lambda: model(answer)))

    def _late(self, where: str, do: Callable[[WarehouseState], Any]) -> None:
        """A writer whose transaction is over is always refused."""
        with pytest.raises(CatalogError) as caught:
            do(state(self.catalog, f"main~{where}"))
        assert type(caught.value).__name__ in {"CommitFailed", "NoSuchTransaction"}

    # -- names

    @initialize()
    def begin(self) -> None:
        for namespace in ("n", "o"):
            self._create_namespace("main", namespace, "1")
        for name in ("a", "b"):
            self._create("main", ("n", name), "table")

    @rule(pick=picks, namespace=st.sampled_from(NAMESPACES), value=values)
    def create_namespace(self, pick: int, namespace: str, value: str) -> None:
        self._create_namespace(self._where(pick), namespace, value)

    def _create_namespace(self, where: str, namespace: str, value: str) -> None:
        def do(state_: WarehouseState) -> str:
            namespaces.create(self.catalog, state_, CONTEXT, Namespace.from_key(namespace), {"p": value})
            entry = state_.entry(namespace, "")
            assert entry is not None
            return entry.uuid

        def model(uuid: Any) -> None:
            thing = Thing("namespace", str(uuid), properties=(("p", value),))
            self.model.create(where, (namespace, ""), thing)

        self._both(where, do, model)

    @rule(pick=picks, namespace=st.sampled_from(NAMESPACES))
    def drop_namespace(self, pick: int, namespace: str) -> None:
        where = self._where(pick)
        self._both(
            where,
            lambda state_: namespaces.drop(self.catalog, state_, CONTEXT, Namespace.from_key(namespace)),
            lambda _: self.model.drop(where, (namespace, ""), "namespace"),
        )

    @rule(pick=picks, which=picks, value=values)
    def set_namespace_property(self, pick: int, which: int, value: str) -> None:
        where = self._where(pick)
        namespace = self._key(where, which, "namespace")[0]
        named = Namespace.from_key(namespace)
        self._both(
            where,
            lambda state_: namespaces.update_properties(
                self.catalog, state_, CONTEXT, named, {"p": value}, []
            ),
            lambda _: self.model.set_property(where, (namespace, ""), "namespace", "p", value),
        )

    @rule(pick=picks, key=st.sampled_from(KEYS), kind=kinds)
    def create(self, pick: int, key: Key, kind: str) -> None:
        self._create(self._where(pick), key, kind)

    def _create(self, where: str, key: Key, kind: str) -> None:
        def do(state_: WarehouseState) -> str:
            request = {"name": key[1], **(VIEW if kind == "view" else {"schema": SCHEMA})}
            make = views.create if kind == "view" else tables.create
            return make(self.catalog, state_, CONTEXT, identifier(key), request).uuid

        self._both(where, do, lambda uuid: self.model.create(where, key, Thing(kind, str(uuid))))

    @rule(pick=picks, which=picks, kind=kinds)
    def drop(self, pick: int, which: int, kind: str) -> None:
        where = self._where(pick)
        self._drop(where, self._key(where, which, kind), kind)

    def _drop(self, where: str, key: Key, kind: str) -> None:
        def do(state_: WarehouseState) -> None:
            if kind == "view":
                tables.drop(self.catalog, state_, CONTEXT, identifier(key), "view")
            else:
                tables.drop_table(self.catalog, state_, CONTEXT, identifier(key), purge=False)

        self._both(where, do, lambda _: self.model.drop(where, key, kind))

    @rule(pick=picks, which=picks, new=st.sampled_from(KEYS), kind=kinds)
    def rename(self, pick: int, which: int, new: Key, kind: str) -> None:
        where = self._where(pick)
        self._rename(where, self._key(where, which, kind), new, kind)

    def _rename(self, where: str, old: Key, new: Key, kind: str) -> None:
        self._both(
            where,
            lambda state_: tables.rename(
                self.catalog,
                state_,
                CONTEXT,
                identifier(old),
                identifier(new),
                kind,  # type: ignore[arg-type]
            ),
            lambda _: self.model.rename(where, old, new, kind),
        )

    @rule(share=st.floats(0, 1))
    def undrop(self, share: float) -> None:
        listed = {
            found.entry.uuid: found.id
            for found in self.catalog.records.dropped_before("main", 0, 2**62, "", 100)
        }
        known = list(self.model.dropped)  # in the order of their drops, so that a replay chooses the same
        assert set(known) == set(listed)
        if known:
            chosen = known[round(share * (len(known) - 1))]
            self._both(
                "main",
                lambda state_: tables.undrop(self.catalog, state_, CONTEXT, listed[chosen]),
                lambda _: self.model.undrop(chosen),
            )

    @rule(which=picks, protected=st.booleans())
    def protect(self, which: int, protected: bool) -> None:
        key = self._key("main", which, "table")
        found = self.model.present.get(key)
        if found is None or found.kind == "table":
            self._both(
                "main",
                lambda state_: tables.protect(self.catalog, state_, identifier(key), protected),
                lambda _: self.model.protect(key, protected),
            )

    # -- commits

    @rule(pick=picks, which=st.lists(picks, min_size=1, max_size=2), data=st.data())
    def commit(self, pick: int, which: list[int], data: st.DataObject) -> None:
        self._commit(self._where(pick), which, data)

    def _commit(self, where: str, which: list[int], data: st.DataObject) -> None:
        chosen = {self._key(where, one, "table"): None for one in which}
        requests: dict[Key, Request] = {}

        def do(state_: WarehouseState) -> None:
            wanted = []
            for key in chosen:
                requests[key], body = self._commit_of(state_, key, data)
                wanted.append(TableCommit(identifier(key), body["requirements"], body["updates"]))
            commits.commit_tables(self.catalog, state_, CONTEXT, wanted)

        self._both(where, do, lambda _: self.model.commit(where, requests))

    def _commit_of(
        self, state_: WarehouseState, key: Key, data: st.DataObject
    ) -> tuple[Request, dict[str, Any]]:
        """An append based on what the table is, or now and then on what it is not; or a property."""
        choice = data.draw(st.sampled_from(["append", "append", "property", "property", "stale"]))
        entry = state_.load(*key)
        if choice == "property" or entry is None or entry.kind != "table":
            name, value = data.draw(st.sampled_from(["p1", "p2"])), data.draw(values)
            updates = [{"action": "set-properties", "updates": {name: value}}]
            return Request(key=name, value=value), {"requirements": [], "updates": updates}
        metadata = orjson.loads(entry.document or b"")
        body = append_body(metadata, uuids.uuid4().int >> 66)
        snapshot = body["updates"][0]["snapshot"]
        snapshot["timestamp-ms"] = metadata["last-updated-ms"]
        if choice == "stale" and data.draw(st.booleans()):
            body["requirements"][1]["snapshot-id"] = 1
        parent = body["requirements"][1]["snapshot-id"]
        return Request(snapshot["snapshot-id"], parent), body

    @rule(pick=picks, which=picks, value=values)
    def replace_view(self, pick: int, which: int, value: str) -> None:
        where = self._where(pick)
        key = self._key(where, which, "view")
        updates = [{"action": "set-properties", "updates": {"p1": value}}]
        self._both(
            where,
            lambda state_: views.replace(self.catalog, state_, CONTEXT, identifier(key), [], updates),
            lambda _: self.model.set_property(where, key, "view", "p1", value),
        )

    # -- transactions

    @rule(name=st.sampled_from(TRANSACTIONS), ttl_s=st.sampled_from([50, 5000]))
    def open(self, name: str, ttl_s: int) -> None:
        if self._is_open(name):
            with pytest.raises(CatalogError, match="is open already"):
                transactions.open_transaction(self.catalog, "main", "tester", name, ttl_s)
            return
        opened = transactions.open_transaction(self.catalog, "main", "tester", name, ttl_s)
        self.over.pop(name, None)
        self.model.begin(name, opened.expires_ms)
        assert opened.base_number == self.model.open[name].number

    @rule(name=st.sampled_from(TRANSACTIONS), work=st.lists(picks, min_size=1, max_size=4), data=st.data())
    def work_and_publish(self, name: str, work: list[int], data: st.DataObject) -> None:
        """A whole transaction in one step, with others at work meanwhile."""
        if not self._is_open(name):
            self.open(name, 5000)
        for pick in work:
            where = "main" if pick % 3 == 0 else name
            key = self._key(where, pick // 3, "table")
            match pick % 8:
                case 0:
                    self._drop(where, key, "table")
                case 1:
                    self._create(where, key, "table")
                case 2:
                    self._rename(where, key, KEYS[pick // 30 % len(KEYS)], "table")
                case _:
                    self._commit(where, [pick // 3], data)
        self.publish(name)
        if self._is_open(name):
            self.abort(name)  # somebody was first: the owner begins again

    @rule(name=st.sampled_from(TRANSACTIONS))
    def publish(self, name: str) -> None:
        if not self._is_open(name):
            self._publish_what_is_over(name)
            return
        head = len(self.model.moments) - 1
        done = _tried(lambda: transactions.publish(self.catalog, "main", "tester", name))
        number = _tried(lambda: self.model.publish(name))
        _require_same_refusal(done, number)
        if not isinstance(done, CatalogError):
            assert done[0] == number
            assert number in (None, head + 1)
            self.over[name] = number

    def _publish_what_is_over(self, name: str) -> None:
        """Published before: the same number. Never there, aborted or expired: refused."""
        if name in self.over and self.over[name] != "aborted":
            assert transactions.publish(self.catalog, "main", "tester", name)[0] == self.over[name]
        else:
            with pytest.raises(CatalogError):
                transactions.publish(self.catalog, "main", "tester", name)

    @rule(name=st.sampled_from(TRANSACTIONS))
    def abort(self, name: str) -> None:
        if self._is_open(name):
            transactions.abort(self.catalog, "main", name)
            del self.model.open[name]
            self.over[name] = "aborted"

    @rule(seconds=st.sampled_from([1, 1, 1, 1, 60]))
    def time_passes(self, seconds: int) -> None:
        self._later_ms += seconds * 1000


def _tried(do: Callable[[], Any]) -> Any:
    """What it answers, or the error that refused it."""
    try:
        return do()
    except (CatalogError, Refused) as refusal:
        return refusal


def _require_same_refusal(catalog: Any, model: Any) -> None:
    expected = model.name if isinstance(model, Refused) else None
    refusal = catalog if isinstance(catalog, CatalogError) else None
    names = {cls.__name__ for cls in type(refusal).__mro__} if refusal else {None}
    assert expected in names, f"the catalog says {refusal!r}, the model says {expected}"


def _described(kind: str, uuid: str, document: bytes | None) -> tuple[Any, ...]:
    content = orjson.loads(document or b"{}")
    if kind == "namespace":
        return (kind, uuid, (), tuple(sorted(content.items())))
    ids = tuple(snapshot["snapshot-id"] for snapshot in content.get("snapshots", []))
    properties = tuple(sorted((k, v) for k, v in content["properties"].items() if k in ("p1", "p2")))
    return (kind, uuid, ids, properties)


def _seen(world: World) -> dict[Key, tuple[Any, ...]]:
    return {key: thing.seen for key, thing in world.items()}


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> type[Warehouse]:
    address = CatalogAddress(f"sqlite:///{tmp_path}/catalog.db", f"file://{tmp_path}/warehouse")
    with address.opened() as catalog:
        migrate(catalog.database)
        ensure_main(catalog, address.root)
        with catalog.database.engine.connect() as connection:
            connection.exec_driver_sql("COMMIT")
            connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    monkeypatch.setattr(writes, "BACKOFF_MAX_S", 0.0)
    monkeypatch.setattr(Warehouse, "template", tmp_path, raising=False)
    return Warehouse


def _settings(examples: int, steps: int) -> settings:
    return settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        print_blob=True,
    )


def test_a_warehouse_is_its_model(machine: type[Warehouse]) -> None:
    run_state_machine_as_test(machine, settings=_settings(20, 40))


@pytest.mark.proof
@pytest.mark.timeout(7200)
def test_a_warehouse_is_its_model_for_long(machine: type[Warehouse], seed: int) -> None:
    from hypothesis import seed as seeded

    run_state_machine_as_test(seeded(seed)(machine), settings=_settings(600, 80))
    print(f"\n600 histories of up to 80 steps, seed {seed}: no difference from the model")
