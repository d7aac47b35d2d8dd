"""Convert columns of a mirror and its changes table to other types, in one publish.

Iceberg cannot change a long to text in place. The column is replaced by one with the same name and another
field id, and every row is written again with its value cast. Spark tasks read the newest snapshot and write
all data files. Older snapshots keep their schema and their files.

The job runs in an open transaction. Before that, one query counts, for each candidate type, the values that
would change. The first type that keeps all values of both tables is used.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from pyspark.sql import DataFrame, functions

from spark_jobs.messages import OneTableJob
from spark_jobs.progress import Progress
from spark_jobs.rewrite.casts import cast, fits
from spark_jobs.server_client import Server, ServerError
from spark_jobs.slot_session import SlotSession
from spark_jobs.tables.commit import BATCH_ID, quoted

KIND = "convert"
TRIED_TYPES = "calve.tried-types"


class ColumnTypes(BaseModel):
    """`to` are the candidate types in order; the last one can hold every value."""

    model_config = ConfigDict(frozen=True, populate_by_name=True)
    from_: str = Field(alias="from")
    to: tuple[str, ...] = Field(min_length=1)


class ConversionJob(OneTableJob):
    """A conversion job, as the server describes it."""

    names: tuple[str, ...] = Field(min_length=1)  # the mirror and the changes table
    columns: dict[str, ColumnTypes]


@dataclass(frozen=True, slots=True)
class _Table:
    name: str
    metadata: Mapping[str, Any]

    @property
    def schema(self) -> dict[str, Any]:
        wanted = self.metadata["current-schema-id"]
        found: dict[str, Any] = next(s for s in self.metadata["schemas"] if s["schema-id"] == wanted)
        return found

    @property
    def snapshot_id(self) -> int | None:
        found = self.metadata.get("current-snapshot-id")
        return None if found in (None, -1) else int(found)

    def types(self, names: Sequence[str]) -> dict[str, Any]:
        return {field["name"]: field["type"] for field in self.schema["fields"] if field["name"] in names}


class ConversionStep:
    """Runs conversion jobs in one worker slot."""

    def __init__(self, server: Server, slot: SlotSession) -> None:
        self._server = server
        self._slot = slot

    def run(self, job: ConversionJob, progress: Progress) -> dict[str, Any]:
        """Convert the columns and publish. Returns facts about the job for the server. Raises LostLease, or
        the error of Spark or of the server.
        """
        started_s = time.monotonic()
        described = {name: one.model_dump(by_alias=True) for name, one in job.columns.items()}
        progress.set(converting=job.label, columns=described, stage="check")
        transaction = self._slot.transaction
        prefix = self._server.open_transaction(job.warehouse, transaction)
        progress.transaction = transaction
        try:
            facts = self._convert(job, prefix, progress)
            progress.check()
            progress.set(stage="publish")
            facts |= {"ms": round((time.monotonic() - started_s) * 1000)}
            facts["number"] = self._server.publish(job.lease, [], facts, transaction=transaction)
        except BaseException:
            self._abort(job.warehouse, transaction)
            raise
        return facts

    def _abort(self, warehouse: str, transaction: str) -> None:
        try:
            self._server.abort_transaction(warehouse, transaction)
        except ServerError:
            return  # the error that led here is raised; the next job of this slot aborts the transaction

    def _convert(self, job: ConversionJob, prefix: str, progress: Progress) -> dict[str, Any]:
        tables = [_Table(name, self._server.load_table(prefix, job.namespace, name)) for name in job.names]
        chosen = self._chosen(job, tables)
        progress.set(stage="write", types=chosen)
        changes = [_schema_change(job, table, chosen) for table in tables]
        changes[0]["updates"].append(_tried(tables[0], job.columns, chosen))
        frames = [(table, self._frame(job, table)) for table in tables]
        self._server.commit(prefix, changes)
        self._slot.mark({BATCH_ID: job.id})
        for table, frame in frames:
            progress.check()
            expressions = _expressions(table, chosen)
            if frame is not None and expressions is not None:
                progress.set(table=table.name)
                rows = frame.selectExpr(*expressions).writeTo(self._sql_name(job, table))
                rows.option("check-nullability", "false").overwrite(functions.lit(True))
        return {"types": chosen}

    def _sql_name(self, job: ConversionJob, table: _Table) -> str:
        return quoted(self._slot.catalog(job.warehouse), *job.namespace, table.name)

    def _frame(self, job: ConversionJob, table: _Table) -> DataFrame | None:
        """Return the rows of the newest snapshot, with the schema that it was written with."""
        if table.snapshot_id is None:
            return None
        reader = self._slot.spark.read.option("versionAsOf", str(table.snapshot_id))
        return reader.table(self._sql_name(job, table))

    def _chosen(self, job: ConversionJob, tables: Sequence[_Table]) -> dict[str, str]:
        """Choose, for each column, the first type that keeps all values of both tables."""
        misfits: dict[tuple[str, str], int] = {}
        for table in tables:
            frame = self._frame(job, table)
            if frame is None:
                continue
            candidates = [
                (name, to, type_)
                for name, type_ in table.types(list(job.columns)).items()
                for to in job.columns[name].to[:-1]
                if to != type_
            ]
            if not candidates:
                continue
            counts = [
                f"COUNT_IF({quoted(name)} IS NOT NULL AND NOT {fits(quoted(name), type_, to)})"
                for name, to, type_ in candidates
            ]
            row = frame.selectExpr(*counts).collect()[0]
            for (name, to, _), count in zip(candidates, row, strict=True):
                misfits[name, to] = misfits.get((name, to), 0) + count
        return {
            name: next((to for to in one.to if not misfits.get((name, to))), one.to[-1])
            for name, one in job.columns.items()
        }


def _schema_change(job: ConversionJob, table: _Table, chosen: Mapping[str, str]) -> dict[str, Any]:
    """Return a commit that replaces the columns. It fails if the schema has changed meanwhile."""
    metadata, schema = table.metadata, table.schema
    last_id = int(metadata["last-column-id"])
    fields, ids = [], dict[int, int]()
    for field in schema["fields"]:
        to = chosen.get(field["name"], field["type"])
        if to == field["type"]:
            fields.append(field)
            continue
        last_id += 1
        ids[field["id"]] = last_id
        kept = {name: value for name, value in field.items() if not name.endswith("-default")}
        fields.append({**kept, "id": last_id, "type": to})
    changed = {**schema, "fields": fields}
    if schema.get("identifier-field-ids"):
        changed["identifier-field-ids"] = [ids.get(id_, id_) for id_ in schema["identifier-field-ids"]]
    updates: list[dict[str, Any]] = []
    if ids:
        updates = [
            {"action": "add-schema", "schema": changed},
            {"action": "set-current-schema", "schema-id": -1},
        ]
    current = metadata["current-schema-id"]
    return {
        "identifier": {"namespace": list(job.namespace), "name": table.name},
        "requirements": [
            {"type": "assert-table-uuid", "uuid": metadata["table-uuid"]},
            {"type": "assert-current-schema-id", "current-schema-id": current},
        ],
        "updates": updates,
    }


def _expressions(table: _Table, chosen: Mapping[str, str]) -> list[str] | None:
    """Return the columns of a row after the conversion; None if none of them changes."""
    found, changes = [], False
    for field in table.schema["fields"]:
        name, type_ = quoted(field["name"]), field["type"]
        to = chosen.get(field["name"], type_)
        changes = changes or to != type_
        found.append(name if to == type_ else f"{cast(name, type_, to)} AS {name}")
    return found if changes else None


def _tried(table: _Table, columns: Mapping[str, ColumnTypes], chosen: Mapping[str, str]) -> dict[str, Any]:
    """Record the types that were tried, so that no later batch narrows a column to one of them again."""
    known: dict[str, list[str]] = json.loads(table.metadata.get("properties", {}).get(TRIED_TYPES) or "{}")
    for name, one in columns.items():
        known[name] = sorted({*known.get(name, ()), one.to[0], chosen[name]})
    return {"action": "set-properties", "updates": {TRIED_TYPES: json.dumps(known)}}
