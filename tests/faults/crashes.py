"""Writes that can be killed at every failpoint: what each prepares and does, and what is there afterwards.

A trial runs in a child process that SIGKILLs itself at the k-th failpoint that it passes; k rises until a
child ends by itself, so no place is forgotten. The child is forked by a server of `multiprocessing` that has
everything imported, which makes a trial a matter of milliseconds.
"""

from __future__ import annotations

import multiprocessing
import signal
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import sqlalchemy as sa

from catalog import faults
from catalog.models import IdempotencyRecord
from catalog.names import Namespace
from catalog.services import commits, namespaces, tables, transactions
from catalog.services.catalog import Catalog
from catalog.services.commits import TableCommit
from catalog.services.writes import WriteContext
from tests.concurrency.catalog_address import CONTEXT, NAMESPACE, CatalogAddress, create_tables, state, table
from tests.harness.rest import SCHEMA, append_body

Plan = dict[str, Any]  # plain values: it goes to a child process
Seen = dict[str, tuple[int, ...] | str | None]

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload([__name__])


@dataclass(frozen=True, slots=True)
class Scenario:
    """A write. `prepare` makes what it needs and plans it; `run` does it, in a child or as the retry."""

    prepare: Callable[[Catalog, str], Plan]
    run: Callable[[Catalog, Plan], Any]
    within: Callable[[Plan], str] = field(default=lambda plan: "main")
    """The warehouse reference in which its effect is seen."""


@dataclass(frozen=True, slots=True)
class Trial:
    """How a child is to die: at the `passes`-th place that it passes. What it passes goes to `trace`."""

    passes: int
    trace: Path
    statements: bool = False  # every SQL statement is such a place too
    bug: str = ""  # a deliberate mistake of tests/faults/seeded_bugs.py


def die_at(scenario: str, address: CatalogAddress, plan: Plan, trial: Trial) -> int | None:
    """Run the scenario in a child that dies; None if it ended by itself."""
    child = _context.Process(target=_child, args=(scenario, address, plan, trial))
    child.start()
    child.join(120)
    assert child.exitcode in (0, -signal.SIGKILL), (
        f"the child ended with {child.exitcode}: {scenario} {trial}"
    )
    return child.exitcode or None


def _child(scenario: str, address: CatalogAddress, plan: Plan, trial: Trial) -> None:
    if trial.bug:
        from tests.faults.seeded_bugs import plant

        plant(trial.bug)
    kill = faults.armed(f"*=kill:{trial.passes}")

    with trial.trace.open("a", encoding="utf-8", buffering=1) as passed, address.opened() as catalog:

        def reach(name: str) -> None:
            passed.write(name + "\n")
            kill(name)

        faults.reach = reach
        if trial.statements:
            _tell_of_statements(catalog.database.engine, reach)
        SCENARIOS[scenario].run(catalog, plan)


def _tell_of_statements(engine: sa.Engine, reach: Callable[[str], None]) -> None:
    sa.event.listen(engine, "before_cursor_execute", lambda *_: reach("statement"))


# -- what is there


def seen(catalog: Catalog, plan: Plan, within: str) -> Seen:
    """What every name of the plan means: its snapshots, or None; and how the transaction stands."""
    where = state(catalog, within)
    found: Seen = {}
    for name in plan["names"]:
        entry = where.load(NAMESPACE.key, name)
        found[name] = None
        if entry is not None:
            metadata = orjson.loads(entry.document or b"{}")
            found[name] = tuple(snapshot["snapshot-id"] for snapshot in metadata.get("snapshots", []))
    for name in plan.get("namespaces", []):
        found[f"{name}."] = "there" if where.entry(f"{NAMESPACE.key}\x1f{name}", "") is not None else None
    if plan.get("transaction"):
        found["transaction"] = transactions.newest(catalog, "main", plan["transaction"]).state
    return found


def commits_in_history(catalog: Catalog, plan: Plan) -> list[int]:
    """The numbers under which the names of the plan changed after it was prepared."""
    rows = catalog.history.events("main", plan["head"], 1_000_000)
    return sorted({row["number"] for row in rows if row["name"] in plan["names"]})


def _head(catalog: Catalog) -> int:
    found = catalog.entries.number("main")
    assert found is not None
    return found[0]


# -- the scenarios


def _body(catalog: Catalog, name: str, within: str = "main") -> tuple[dict[str, Any], int]:
    entry = tables.load(state(catalog, within), table(name))
    body = append_body(orjson.loads(entry.document or b""))
    return body, body["updates"][0]["snapshot"]["snapshot-id"]


def _record(operation: str) -> IdempotencyRecord:
    return IdempotencyRecord("tester", operation, uuid.uuid4().hex, str(uuid.uuid4()), "hash", 2**62)


def _commit(catalog: Catalog, plan: Plan, names: Sequence[str], within: str = "main") -> list[Any]:
    asked = WriteContext("tester", plan["record"])
    wanted = [
        TableCommit(table(name), plan["bodies"][name]["requirements"], plan["bodies"][name]["updates"])
        for name in names
    ]
    return commits.commit_tables(catalog, state(catalog, within), asked, wanted)


def _prepare_commit(catalog: Catalog, suffix: str, count: int = 1) -> Plan:
    names = [f"t{place}_{suffix}" for place in range(count)]
    create_tables(catalog, *names)
    bodies = {name: _body(catalog, name) for name in names}
    return {
        "names": names,
        "bodies": {name: body for name, (body, _) in bodies.items()},
        "record": _record("updateTable"),
        "after": {name: (id_,) for name, (_, id_) in bodies.items()},
        "head": _head(catalog),
    }


def _prepare_create(catalog: Catalog, suffix: str) -> Plan:
    create_tables(catalog)
    name = f"new_{suffix}"
    return {
        "names": [name],
        "record": _record("createTable"),
        "after": {name: ()},
        "head": _head(catalog),
        "again": "AlreadyExists",
    }


def _create(catalog: Catalog, plan: Plan) -> Any:
    request = {"name": plan["names"][0], "schema": SCHEMA}
    asked = WriteContext("tester", plan["record"])
    return tables.create(catalog, state(catalog), asked, table(plan["names"][0]), request)


def _prepare_rename(catalog: Catalog, suffix: str) -> Plan:
    old, new = f"old_{suffix}", f"fresh_{suffix}"
    create_tables(catalog, old)
    body, id_ = _body(catalog, old)
    commits.commit_tables(
        catalog, state(catalog), CONTEXT, [TableCommit(table(old), body["requirements"], body["updates"])]
    )
    return {
        "names": [old, new],
        "after": {old: None, new: (id_,)},
        "head": _head(catalog),
        "again": "NoSuchTable",
    }


def _rename(catalog: Catalog, plan: Plan) -> None:
    old, new = plan["names"]
    tables.rename(catalog, state(catalog), CONTEXT, table(old), table(new))


def _prepare_drop(catalog: Catalog, suffix: str) -> Plan:
    name = f"gone_{suffix}"
    create_tables(catalog, name)
    return {"names": [name], "after": {name: None}, "head": _head(catalog), "again": "NoSuchTable"}


def _drop(catalog: Catalog, plan: Plan) -> None:
    tables.drop_table(catalog, state(catalog), CONTEXT, table(plan["names"][0]), purge=False)


def _prepare_staged(catalog: Catalog, suffix: str) -> Plan:
    """A commit inside an open transaction."""
    plan = _prepare_commit(catalog, suffix)
    transactions.open_transaction(catalog, "main", "tester", f"w{suffix}")
    return plan | {
        "transaction": f"w{suffix}",
        "after": plan["after"] | {"transaction": "open"},
        "record": None,
    }


def _prepare_publish(catalog: Catalog, suffix: str) -> Plan:
    """Two tables are written, one is made, one goes, and a namespace with a table in it appears."""
    one, two, new, gone, fresh = (f"{word}_{suffix}" for word in ("one", "two", "made", "left", "ns"))
    create_tables(catalog, one, two, gone)
    name = f"w{suffix}"
    transactions.open_transaction(catalog, "main", "tester", name)
    inside = state(catalog, f"main~{name}")
    after: Seen = {gone: None, f"{fresh}.": "there", "transaction": "committed"}
    tables.create(catalog, inside, CONTEXT, table(new), {"name": new, "schema": SCHEMA})
    for target in (one, two, new):
        ids = []
        for _ in range(2):
            body, id_ = _body(catalog, target, f"main~{name}")
            ids.append(id_)
            wanted = TableCommit(table(target), body["requirements"], body["updates"])
            commits.commit_tables(catalog, inside, CONTEXT, [wanted])
        after[target] = tuple(ids)
    tables.drop_table(catalog, inside, CONTEXT, table(gone), purge=False)
    namespaces.create(catalog, inside, CONTEXT, Namespace((*NAMESPACE.levels, fresh)), {})
    return {
        "names": [one, two, new, gone],
        "namespaces": [fresh],
        "transaction": name,
        "after": after,
        "head": _head(catalog),
    }


def _publish(catalog: Catalog, plan: Plan) -> int | None:
    return transactions.publish(catalog, "main", "tester", plan["transaction"])[0]


SCENARIOS: dict[str, Scenario] = {
    "commit": Scenario(_prepare_commit, lambda catalog, plan: _commit(catalog, plan, plan["names"])),
    "two-table commit": Scenario(
        lambda catalog, suffix: _prepare_commit(catalog, suffix, 2),
        lambda catalog, plan: _commit(catalog, plan, plan["names"]),
    ),
    "create": Scenario(_prepare_create, _create),
    "rename": Scenario(_prepare_rename, _rename),
    "drop": Scenario(_prepare_drop, _drop),
    "commit inside a transaction": Scenario(
        _prepare_staged,
        lambda catalog, plan: _commit(catalog, plan, plan["names"], f"main~{plan['transaction']}"),
        lambda plan: f"main~{plan['transaction']}",
    ),
    "publish": Scenario(_prepare_publish, _publish),
}
