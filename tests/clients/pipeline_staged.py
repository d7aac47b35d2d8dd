"""Staged files as the tests of the pipeline make them."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence

import pyarrow as pa

from spark_jobs.messages import CHANGE_COLUMNS
from tests.clients.pipeline_events import Event

STAMP_US = 1_763_280_000_000_000
NAMES = {name: "_" + name.replace("-", "_") for name in CHANGE_COLUMNS}
CHANGE_TYPES = {
    name: "timestamptz" if "timestamp" in name else "long" if name == "order" else "string"
    for name in CHANGE_COLUMNS
}
ARROW: dict[str, pa.DataType] = {
    "long": pa.int64(),
    "int": pa.int32(),
    "string": pa.string(),
    "uuid": pa.string(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", tz="UTC"),
    "decimal(10,2)": pa.decimal128(10, 2),
    "decimal(38,0)": pa.decimal128(38, 0),
    "fixed[4]": pa.binary(4),
}


def staged_rows(events: Sequence[Event], columns: Mapping[str, str], key: Sequence[str]) -> pa.Table:
    """As ingest/staging/arrow_table.py makes it."""
    arrays: dict[str, pa.Array] = {
        column: pa.array([_staged(event.row.get(column)) for event in events], ARROW[type_])
        for column, type_ in columns.items()
    }
    told = {
        "seq": pa.array(range(len(events)), pa.int64()),
        "operation": pa.array([event.operation for event in events], pa.string()),
        "source_timestamp": pa.array([None] * len(events), pa.timestamp("us", tz="UTC")),
        "source": pa.array([event.source for event in events], pa.string()),
        "position": pa.array([event.position for event in events], pa.string()),
        "transaction": pa.array([None] * len(events), pa.string()),
        "event_id": pa.array([event.id for event in events], pa.string()),
        "before": pa.array([None] * len(events), pa.string()),
        "absent": pa.array([list(event.absent) or None for event in events], pa.list_(pa.string())),
    }
    if any(event.root is not None for event in events):
        for column in key:
            values = [_staged(event.root[column]) if event.root is not None else None for event in events]
            told[f"root_{column}"] = pa.array(values, ARROW[columns[column]])
    arrays |= {f"_calve_{name}": array for name, array in told.items()}
    return pa.table(arrays)


def _staged(value: object) -> object:
    """A uuid is text in staged files."""
    return str(value) if isinstance(value, uuid.UUID) else value
