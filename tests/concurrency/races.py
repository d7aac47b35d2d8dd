"""Pairs of writes that may meet, a model of what each does, and the check that one came after the other.

The answers and the state after two writes must be those of one of them after the other, in an order that
does not contradict the clock: who was answered before the other began comes first.
"""

from __future__ import annotations

import copy
import itertools
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from catalog.services import commits, tables, transactions
from catalog.services.catalog import Catalog
from catalog.services.commits import TableCommit
from tests.concurrency.catalog_address import CONTEXT, create_tables, state, table
from tests.concurrency.lock_step import GATES, PUBLISH_GATES, Outcome, Work
from tests.harness.rest import SCHEMA, append_body

Model = dict[str, dict[str, Any]]  # name -> snapshots, properties, uuid, protected


class Refused(Exception):
    """What the model answers where the catalog raises the error of this name."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


@dataclass(frozen=True, slots=True)
class Op:
    """One write: how it is done, and what it does to the model."""

    title: str
    run: Callable[[Catalog], Any]
    model: Callable[[Model], Any]
    gates: frozenset[str] = GATES

    def on(self, catalog: Catalog) -> tuple[Work, frozenset[str]]:
        return (lambda: self.run(catalog)), self.gates


def observed(catalog: Catalog, names: Sequence[str]) -> Model:
    """What the names mean now."""
    found: Model = {}
    for name in names:
        entry = state(catalog).load("db", name)
        if entry is not None:
            metadata = orjson.loads(entry.document or b"")
            found[name] = {
                "snapshots": [snapshot["snapshot-id"] for snapshot in metadata["snapshots"]],
                "properties": {k: v for k, v in metadata["properties"].items() if k.startswith("p")},
                "uuid": entry.uuid,
                "protected": entry.protected,
            }
    return found


def require_linear(ops: Sequence[Op], outcomes: Sequence[Outcome], before: Model, after: Model) -> None:
    """AssertionError unless one op after the other explains answers and state."""
    tried = []
    for order in itertools.permutations(range(len(ops))):
        if _contradicts_the_clock(order, outcomes):
            continue
        model = copy.deepcopy(before)
        answers: dict[int, str] = {}
        for index in order:
            trial = copy.deepcopy(model)
            try:
                answers[index] = repr(ops[index].model(trial))
                model = trial
            except Refused as refused:
                answers[index] = refused.name
        if model == after and all(_agrees(answers[i], outcomes[i]) for i in range(len(ops))):
            return
        tried.append((order, answers, model))
    titles = [op.title for op in ops]
    raise AssertionError(f"{titles} ended with {outcomes} and {after}, which no order explains: {tried}")


def _contradicts_the_clock(order: Sequence[int], outcomes: Sequence[Outcome]) -> bool:
    return any(
        outcomes[later].ended_at <= outcomes[earlier].began_at
        for place, earlier in enumerate(order)
        for later in order[place + 1 :]
    )


def _agrees(expected: str, outcome: Outcome) -> bool:
    if outcome.error is not None:
        return expected in {cls.__name__ for cls in type(outcome.error).__mro__}
    return expected == repr(outcome.answer)


# -- the writes


def _present(model: Model, name: str) -> dict[str, Any]:
    if name not in model:
        raise Refused("NoSuchTable")
    return model[name]


def append(catalog: Catalog, *names: str, title: str = "append") -> Op:
    """A commit of one snapshot on each table, based on what they are now."""
    bodies, bases, ids = {}, {}, {}
    for name in names:
        metadata = orjson.loads(tables.load(state(catalog), table(name)).document or b"")
        bodies[name] = append_body(metadata)
        bases[name] = [snapshot["snapshot-id"] for snapshot in metadata["snapshots"]]
        ids[name] = bodies[name]["updates"][0]["snapshot"]["snapshot-id"]

    def run(catalog: Catalog) -> str:
        wanted = [TableCommit(table(n), b["requirements"], b["updates"]) for n, b in bodies.items()]
        commits.commit_tables(catalog, state(catalog), CONTEXT, wanted)
        return "done"

    def model(model: Model) -> str:
        for name in names:
            found = _present(model, name)
            if ids[name] in found["snapshots"]:
                continue  # a replay
            if found["snapshots"] != bases[name]:
                raise Refused("RequirementFailed")
            found["snapshots"].append(ids[name])
        return "done"

    return Op(title, run, model)


def set_property(name: str, key: str) -> Op:
    value = uuid.uuid4().hex

    def run(catalog: Catalog) -> str:
        updates = [{"action": "set-properties", "updates": {key: value}}]
        commits.commit_tables(catalog, state(catalog), CONTEXT, [TableCommit(table(name), [], updates)])
        return "done"

    def model(model: Model) -> str:
        _present(model, name)["properties"][key] = value
        return "done"

    return Op(f"set {key}", run, model)


def drop(name: str) -> Op:
    def run(catalog: Catalog) -> str:
        tables.drop_table(catalog, state(catalog), CONTEXT, table(name), purge=False)
        return "done"

    def model(model: Model) -> str:
        if _present(model, name)["protected"]:
            raise Refused("Conflict")
        del model[name]
        return "done"

    return Op("drop", run, model, GATES)


def rename(old: str, new: str) -> Op:
    def run(catalog: Catalog) -> str:
        tables.rename(catalog, state(catalog), CONTEXT, table(old), table(new))
        return "done"

    def model(model: Model) -> str:
        found = _present(model, old)
        if new in model:
            raise Refused("AlreadyExists")
        model[new] = found
        del model[old]
        return "done"

    return Op("rename", run, model)


def protect(name: str) -> Op:
    def run(catalog: Catalog) -> str:
        tables.protect(catalog, state(catalog), table(name), True)
        return "done"

    def model(model: Model) -> str:
        _present(model, name)["protected"] = True
        return "done"

    return Op("protect", run, model, frozenset({"swap.begun", "swap.before-commit"}))


def create(name: str) -> Op:
    """The answer is the uuid, so that two creations of one name cannot both be right."""
    made: list[str] = []

    def run(catalog: Catalog) -> str:
        entry = tables.create(catalog, state(catalog), CONTEXT, table(name), {"name": name, "schema": SCHEMA})
        made.append(entry.uuid)
        return "done"

    def model(model: Model) -> str:
        if name in model:
            raise Refused("AlreadyExists")
        uuid_ = made[0] if made else "?"
        model[name] = {"snapshots": [], "properties": {}, "uuid": uuid_, "protected": False}
        return "done"

    return Op("create", run, model)


def opened(catalog: Catalog, *names: str, properties: bool = False) -> str:
    """An open transaction that appended to these tables, or set a property of each."""
    transaction = f"w{uuid.uuid4().hex[:10]}"
    transactions.open_transaction(catalog, "main", "tester", transaction)
    inside = state(catalog, f"main~{transaction}")
    for name in names:
        if properties:
            wanted = TableCommit(
                table(name), [], [{"action": "set-properties", "updates": {"pt": transaction}}]
            )
        else:
            body = append_body(orjson.loads(tables.load(inside, table(name)).document or b""))
            wanted = TableCommit(table(name), body["requirements"], body["updates"])
        commits.commit_tables(catalog, inside, CONTEXT, [wanted])
    return transaction


def publish(catalog: Catalog, transaction: str, before: Model) -> Op:
    """Publish an open transaction: the first committer wins, changes of properties are carried over."""
    held = transactions.all_staged(catalog, transactions.newest(catalog, "main", transaction))
    gained: dict[str, tuple[list[int], str | None]] = {}
    for one in held:
        assert one.after is not None
        metadata = orjson.loads(one.after.document or b"")
        known = before[one.name]["snapshots"]
        added = [s["snapshot-id"] for s in metadata["snapshots"] if s["snapshot-id"] not in known]
        gained[one.name] = (added, metadata["properties"].get("pt"))

    def run(catalog: Catalog) -> str:
        number, _ = transactions.publish(catalog, "main", "tester", transaction)
        assert number == transactions.newest(catalog, "main", transaction).number
        return "published"

    def model(model: Model) -> str:
        if _is_published(model, gained):
            return "published"  # a repeat answers the same
        for name, (added, value) in gained.items():
            found = model.get(name)
            if found is None or found["uuid"] != before[name]["uuid"]:
                raise Refused("CommitFailed")
            if added and found["snapshots"] != before[name]["snapshots"]:
                raise Refused("CommitFailed")
            found["snapshots"] += added
            if value:
                found["properties"]["pt"] = value
        return "published"

    return Op("publish", run, model, PUBLISH_GATES)


def _is_published(model: Model, gained: dict[str, tuple[list[int], str | None]]) -> bool:
    for name, (added, value) in gained.items():
        found = model.get(name, {"snapshots": [], "properties": {}})
        if set(added) - set(found["snapshots"]) or (value and found["properties"].get("pt") != value):
            return False
    return True


# -- the pairs

Pair = Callable[[Catalog, str], tuple[Sequence[Op], Sequence[str]]]


def _tables(catalog: Catalog, *names: str) -> None:
    """Make the tables that are not there."""
    main = state(catalog)
    create_tables(catalog, *(name for name in names if main.entry("db", name) is None))


def _appends(catalog: Catalog, suffix: str) -> tuple[Sequence[Op], Sequence[str]]:
    _tables(catalog, "a")
    return [append(catalog, "a"), append(catalog, "a")], ["a"]


def _append_and_property(catalog: Catalog, suffix: str) -> tuple[Sequence[Op], Sequence[str]]:
    _tables(catalog, "a")
    return [append(catalog, "a"), set_property("a", "p0")], ["a"]


def _properties(catalog: Catalog, suffix: str) -> tuple[Sequence[Op], Sequence[str]]:
    _tables(catalog, "a")
    return [set_property("a", "p0"), set_property("a", "p1")], ["a"]


def _twins(catalog: Catalog, suffix: str) -> tuple[Sequence[Op], Sequence[str]]:
    _tables(catalog, "a", "b")
    twin = append(catalog, "a", "b", title="twin")
    return [twin, twin], ["a", "b"]


def _crossing(catalog: Catalog, suffix: str) -> tuple[Sequence[Op], Sequence[str]]:
    _tables(catalog, "a", "b")
    return [append(catalog, "a", "b"), append(catalog, "b", "a")], ["a", "b"]


def _transaction_and_append(catalog: Catalog, suffix: str) -> tuple[Sequence[Op], Sequence[str]]:
    _tables(catalog, "a", "b")
    return [append(catalog, "a", "b"), append(catalog, "b")], ["a", "b"]


def _drop_and_append(catalog: Catalog, suffix: str) -> tuple[Sequence[Op], Sequence[str]]:
    _tables(catalog, "d")
    return [drop("d"), append(catalog, "d")], ["d"]


def _rename_and_append(catalog: Catalog, suffix: str) -> tuple[Sequence[Op], Sequence[str]]:
    _tables(catalog, f"r{suffix}")
    return [rename(f"r{suffix}", f"s{suffix}"), append(catalog, f"r{suffix}")], [f"r{suffix}", f"s{suffix}"]


def _protect_and_rename(catalog: Catalog, suffix: str) -> tuple[Sequence[Op], Sequence[str]]:
    names = [f"v{suffix}", f"u{suffix}"]
    _tables(catalog, names[0])
    return [protect(names[0]), rename(*names)], names


def _protect_and_drop(catalog: Catalog, suffix: str) -> tuple[Sequence[Op], Sequence[str]]:
    _tables(catalog, f"g{suffix}")
    return [protect(f"g{suffix}"), drop(f"g{suffix}")], [f"g{suffix}"]


def _creates(catalog: Catalog, suffix: str) -> tuple[Sequence[Op], Sequence[str]]:
    _tables(catalog)
    return [create(f"c{suffix}"), create(f"c{suffix}")], [f"c{suffix}"]


def _renames_to_one(catalog: Catalog, suffix: str) -> tuple[Sequence[Op], Sequence[str]]:
    _tables(catalog, f"x{suffix}", f"y{suffix}")
    names = [f"x{suffix}", f"y{suffix}", f"z{suffix}"]
    return [rename(names[0], names[2]), rename(names[1], names[2])], names


def _publish_and_append(catalog: Catalog, suffix: str) -> tuple[Sequence[Op], Sequence[str]]:
    _tables(catalog, "a", "b")
    before = observed(catalog, ["a", "b"])
    return [publish(catalog, opened(catalog, "a", "b"), before), append(catalog, "b")], ["a", "b"]


def _publish_and_property(catalog: Catalog, suffix: str) -> tuple[Sequence[Op], Sequence[str]]:
    _tables(catalog, "a", "b")
    before = observed(catalog, ["a", "b"])
    return [publish(catalog, opened(catalog, "a", "b"), before), set_property("a", "p0")], ["a", "b"]


def _property_publish_and_append(catalog: Catalog, suffix: str) -> tuple[Sequence[Op], Sequence[str]]:
    _tables(catalog, "a")
    before = observed(catalog, ["a"])
    return [publish(catalog, opened(catalog, "a", properties=True), before), append(catalog, "a")], ["a"]


def _publishes(catalog: Catalog, suffix: str) -> tuple[Sequence[Op], Sequence[str]]:
    _tables(catalog, "a", "b", "c")
    before = observed(catalog, ["a", "b", "c"])
    first, second = opened(catalog, "a", "b"), opened(catalog, "b", "c")
    return [publish(catalog, first, before), publish(catalog, second, before)], ["a", "b", "c"]


def _publish_and_drop(catalog: Catalog, suffix: str) -> tuple[Sequence[Op], Sequence[str]]:
    _tables(catalog, "a", "d")
    before = observed(catalog, ["a", "d"])
    return [publish(catalog, opened(catalog, "a", "d"), before), drop("d")], ["a", "d"]


def _publish_twice(catalog: Catalog, suffix: str) -> tuple[Sequence[Op], Sequence[str]]:
    _tables(catalog, "a", "b")
    before = observed(catalog, ["a", "b"])
    twin = publish(catalog, opened(catalog, "a", "b"), before)
    return [twin, twin], ["a", "b"]


PAIRS: dict[str, Pair] = {
    "two appends": _appends,
    "append and property": _append_and_property,
    "two properties": _properties,
    "one request twice": _twins,
    "two transactions crossing": _crossing,
    "transaction and append": _transaction_and_append,
    "drop and append": _drop_and_append,
    "rename and append": _rename_and_append,
    "protect and rename": _protect_and_rename,
    "protect and drop": _protect_and_drop,
    "two creations of one name": _creates,
    "two renames to one name": _renames_to_one,
    "publish and append": _publish_and_append,
    "publish and property": _publish_and_property,
    "publish of properties and append": _property_publish_and_append,
    "two publishes": _publishes,
    "publish and drop": _publish_and_drop,
    "one publish twice": _publish_twice,
}
