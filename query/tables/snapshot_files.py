"""List the files that a query could have read, for `explain: true`."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from pyiceberg.typedef import Record

from query.explain import SnapshotFiles
from query.resolve import TableRead
from query.tables.access import TableOpener
from query.tables.opening import ServerCatalog
from query.tables.reading import planned


def files_of(tables: TableOpener, read: TableRead) -> SnapshotFiles:
    """Return the data files of the snapshot, their partitions, and the delete files that apply to them."""
    access = tables.access(read.pin.warehouse, read.identifier)
    table = ServerCatalog(access, read.pin.state, None).load_table(())
    tasks = planned(table.scan(snapshot_id=read.snapshot_id))
    deletes = {file.file_path: file for task in tasks for file in task.delete_files}
    specs = table.specs()
    partitions: dict[str, Hashable] = {
        task.file.file_path: (task.file.spec_id, *_values(task.file.partition))
        for task in tasks
        if specs[task.file.spec_id].fields
    }
    if partitions:  # files from before the table was partitioned are one partition
        for task in tasks:
            partitions.setdefault(task.file.file_path, task.file.spec_id)
    return SnapshotFiles(
        {task.file.file_path: task.file.file_size_in_bytes for task in tasks},
        {path: file.file_size_in_bytes for path, file in deletes.items()},
        partitions,
    )


def _values(partition: Record) -> Iterator[Hashable]:
    return (partition[position] for position in range(len(partition)))
