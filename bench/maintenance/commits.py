"""Commits to one table for ever: the document, the commit time and the database must stay flat.

The periods of the policy are scaled down, so that the run passes through all tiers: while it lasts, as many
moments are forgotten as commits are made.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from catalog.names import Identifier, Namespace, warehouse_ref
from catalog.services import namespaces, tables
from catalog.services.catalog import Catalog, Limits
from catalog.services.commits import TableCommit, commit_tables
from catalog.services.warehouses import ensure_main
from catalog.services.writes import WriteContext
from catalog.storage.files import StorageFiles
from catalog.store.database import Database
from catalog.store.migrations import migrate
from maintenance.policies import Policies
from maintenance.rounds import Rounds, RoundSettings
from maintenance.store import MaintenanceStore

KEPT_MOMENTS = "all:2s, 1s:10s, 5s:60s"
INTERVAL_S = 0.5
NAMESPACE = Namespace(("bench",))
TABLE = Identifier(NAMESPACE, "t")
CONTEXT = WriteContext("bench")
SCHEMA = {
    "type": "struct",
    "fields": [{"id": 1, "name": "id", "type": "long", "required": True}],
}
PROPERTIES = {
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}


@dataclass(frozen=True, slots=True)
class Sample:
    commits: int
    commit_ms: float
    document_bytes: int
    snapshots: int
    history_rows: int
    database_bytes: int


def run(folder: Path, commits: int, *, is_on: bool, say: Callable[[str], None]) -> list[Sample]:
    """Samples at a tenth, the half and the end."""
    folder.mkdir(parents=True, exist_ok=True)
    root = f"file://{folder}/warehouse"
    database = Database(f"sqlite:///{folder}/catalog.db")
    migrate(database)
    files = StorageFiles(file_roots=[root])
    catalog = Catalog(database, files, Limits(), files.client_properties)
    ensure_main(catalog, root)
    state = catalog.state(warehouse_ref("main"))
    namespaces.create(catalog, state, CONTEXT, NAMESPACE, {})
    request = {"name": TABLE.name, "schema": SCHEMA, "properties": PROPERTIES}
    tables.create(catalog, state, CONTEXT, TABLE, request)
    store = MaintenanceStore(database)
    settings = RoundSettings(INTERVAL_S, grace_ms=3_600_000)
    rounds = Rounds(catalog, store, Policies(store, KEPT_MOMENTS), settings)
    if is_on:
        rounds.start()
    samples, times_ms = [], list[float]()
    try:
        for number in range(1, commits + 1):
            started_s = time.perf_counter()
            _append(catalog, number)
            times_ms.append((time.perf_counter() - started_s) * 1000)
            if number in (commits // 10, commits // 2, commits):
                samples.append(_sample(catalog, folder, number, times_ms[-commits // 20 :]))
                say(str(samples[-1]))
    finally:
        rounds.stop()
        database.close()
    return samples


def _append(catalog: Catalog, number: int) -> None:
    state = catalog.state(warehouse_ref("main"))
    entry = state.load(NAMESPACE.key, TABLE.name)
    assert entry is not None
    metadata: dict[str, Any] = orjson.loads(entry.document or b"{}")
    parent = metadata.get("current-snapshot-id")
    snapshot = {
        "snapshot-id": number,
        "sequence-number": metadata["last-sequence-number"] + 1,
        "timestamp-ms": time.time_ns() // 1_000_000,
        "manifest-list": f"{metadata['location']}/metadata/snap-{number}.avro",
        "summary": {"operation": "append", **{f"total-{i}": str(number) for i in range(12)}},
        "schema-id": 0,
    }
    if parent not in (None, -1):
        snapshot["parent-snapshot-id"] = parent
    updates = [
        {"action": "add-snapshot", "snapshot": snapshot},
        {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": number},
    ]
    commit_tables(catalog, state, CONTEXT, [TableCommit(TABLE, [], updates)])


def _sample(catalog: Catalog, folder: Path, commits: int, times_ms: list[float]) -> Sample:
    entry = catalog.state(warehouse_ref("main")).load(NAMESPACE.key, TABLE.name)
    assert entry is not None
    document = entry.document or b"{}"
    rows = len(catalog.history.rows_of("main", NAMESPACE.key, TABLE.name))
    return Sample(
        commits,
        round(statistics.median(times_ms), 2),
        len(document),
        len(orjson.loads(document)["snapshots"]),
        rows,
        (folder / "catalog.db").stat().st_size,
    )
