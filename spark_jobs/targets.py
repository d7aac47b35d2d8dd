"""The tables of a batch as they stand inside its transaction: what decides how rows get into them."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spark_jobs.file_schema import FileSchema, file_schema
from spark_jobs.key_indexes import state_of

BATCH_ID = "calve.batch-id"
ASK_AGAIN_AFTER = 30  # batches


@dataclass(frozen=True, slots=True)
class Target:
    """`records` counts the rows of data files, deleted ones included: 0 is empty, for sure. `batch_id` is the
    one that the newest snapshot names.
    """

    name: tuple[str, ...]  # warehouse, namespace, name: the same in every transaction
    sql: str
    records: int
    batch_id: str | None
    one_partition: bool  # all rows of a batch belong to one partition
    unordered: frozenset[str] = frozenset()  # columns whose bounds in the manifests follow another order
    rows: int = 0  # those that are not deleted
    files: int = 0  # of data
    file_schema: FileSchema | None = None  # how the driver writes its files; None: Spark has to
    state: tuple[str, int | None] = ("", None)  # its uuid and its snapshot


def target_from(
    metadata: Mapping[str, Any], name: tuple[str, ...], sql: str, commit_timestamp: str
) -> Target:
    """From the table's metadata, as the catalog answers it."""
    summary = _summary(metadata)
    records = int(summary.get("total-records", 0))
    schema = next(s for s in metadata["schemas"] if s["schema-id"] == metadata["current-schema-id"])
    return Target(
        name,
        sql,
        records=records,
        batch_id=summary.get(BATCH_ID),
        one_partition=_is_one_partition(schema, metadata, commit_timestamp),
        # Text in Spark, compared as text; a number with a sign in Iceberg's Java library.
        unordered=frozenset(field["name"] for field in schema["fields"] if field["type"] == "uuid"),
        files=int(summary.get("total-data-files", 0)),
        rows=records - int(summary.get("total-position-deletes", 0)),
        file_schema=file_schema(metadata, commit_timestamp),
        state=state_of(metadata),
    )


def _summary(metadata: Mapping[str, Any]) -> dict[str, str]:
    current = metadata.get("current-snapshot-id")
    for snapshot in metadata.get("snapshots", ()):
        if snapshot["snapshot-id"] == current:
            found: dict[str, str] = snapshot.get("summary", {})
            return found
    return {}


def _is_one_partition(schema: Mapping[str, Any], metadata: Mapping[str, Any], commit_timestamp: str) -> bool:
    """Not partitioned, or by the time of the commit alone."""
    spec = next(s for s in metadata["partition-specs"] if s["spec-id"] == metadata["default-spec-id"])
    stamps = {field["id"] for field in schema["fields"] if field["name"] == commit_timestamp}
    return all(part["source-id"] in stamps or part["transform"] == "void" for part in spec["fields"])


class Ceilings:
    """The largest key of each mirror, as far as this worker knows: inserts above it need no join.

    A ceiling holds while the newest snapshot of the mirror is the one of the batch it was learned with, and
    its key is the same; deletes only make it generous.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[str, ...], tuple[tuple[str | None, ...], Any]] = {}
        self._useless: dict[tuple[str, ...], int] = {}
        self._lock = threading.Lock()

    def get(self, table: tuple[str, ...], state: tuple[str | None, ...]) -> Any:
        """`state`: the batch, and the columns of the key."""
        with self._lock:
            found = self._known.get(table)
            return found[1] if found is not None and found[0] == state else None

    def put(self, table: tuple[str, ...], state: tuple[str | None, ...], value: Any) -> None:
        with self._lock:
            self._known[table] = (state, value)

    def forget(self, table: tuple[str, ...]) -> None:
        with self._lock:
            self._known.pop(table, None)

    def is_worth_asking(self, table: tuple[str, ...]) -> bool:
        """Where keys come in no order, the question is put rarely."""
        with self._lock:
            left = self._useless.get(table, 0)
            self._useless[table] = max(0, left - 1)
            return left == 0

    def was_useless(self, table: tuple[str, ...]) -> None:
        with self._lock:
            self._useless[table] = ASK_AGAIN_AFTER
