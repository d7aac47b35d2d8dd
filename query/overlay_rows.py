"""Encode pending rows of a table for a query process: the shape of the overlay, and an Arrow IPC stream."""

from __future__ import annotations

import pyarrow as pa

from ingest.staging.pending_rows import PendingRows
from query.overlay import OverlayShape


def encoded(pending: PendingRows) -> tuple[OverlayShape, bytes]:
    shape = OverlayShape(
        tuple(pending.rows.column_names), pending.key, tuple(pending.missing), pending.is_truncated
    )
    arrays = [*pending.rows.columns, *pending.missing.values()]
    if pending.base_keys is not None:
        arrays += pending.base_keys.columns
    table = pa.table([*arrays, pending.is_deleted], names=shape.names)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return shape, sink.getvalue().to_pybytes()
