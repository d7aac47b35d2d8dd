"""Read the staged rows of a work item: its share of the keys of a batch."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io import FileIO

from spark_jobs.messages import STAGED, WorkItem
from spark_jobs.tables.key_files import encode


def staged_share(io: FileIO, item: WorkItem) -> pa.Table:
    """Return the staged rows of this share, in the order of the files. Every share has all truncates."""
    parts = []
    first = 0
    mask = _share_mask(io, item) if item.shares > 1 else None
    for path in item.job.files:
        if mask is None:
            parts.append(read_staged(io, path))
            continue
        with io.new_input(path).open() as source:
            file = pq.ParquetFile(source)
            for group in range(file.num_row_groups):  # one at a time: a share is a part of the batch
                rows = file.read_row_group(group)
                parts.append(rows.filter(mask.slice(first, rows.num_rows)))
                first += rows.num_rows
    return pa.concat_tables(parts).replace_schema_metadata(None)


def _share_mask(io: FileIO, item: WorkItem) -> pa.Array:
    """Return which rows belong to the share. Keys are assigned in the order of their first appearance, which
    is the same in every task, balanced, and needs no hash function.
    """
    job = item.job
    columns = [*job.key, f"{STAGED}operation"]
    rows = pa.concat_tables([read_staged(io, path, columns) for path in job.files])
    if job.key:
        numbers = encode([rows.column(column) for column in job.key]).dictionary_encode().indices
    else:
        numbers = pa.array(range(rows.num_rows), pa.int32())
    numbers = numbers.cast(pa.int64())
    own = pc.equal(
        pc.subtract(numbers, pc.multiply(pc.divide(numbers, item.shares), item.shares)), item.share
    )
    own = pc.fill_null(own, fill_value=item.share == 0)  # rows without a key: truncates and invalid rows
    if job.counts["truncate"]:
        truncates = pc.equal(rows.column(f"{STAGED}operation"), "truncate").combine_chunks()
        own = pc.or_(own, truncates)
    return own


def read_staged(io: FileIO, path: str, columns: list[str] | None = None) -> pa.Table:
    with io.new_input(path).open() as source:
        return pq.ParquetFile(source).read(columns=columns)
