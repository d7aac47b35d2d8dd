"""The deleted positions of data files: read from position deletes and deletion vectors, and kept in memory.

Delete files never change. The ones that were used last are kept, so that each batch reads only what the batch
before it wrote. Their number says nothing about memory: the limit is in bytes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io import FileIO

from spark_jobs.messages import LiveDeletes, LiveFile
from spark_jobs.tables.vectors import read_vector

KEPT_BYTES_MAX = 64 * 2**20  # in each process
_PATH_COST_BYTES = 300  # of the objects for one data file
_NONE = pa.array([], pa.int64())

Positions = dict[str, pa.Array]  # by data file


class KeptDeletes:
    """The deletes that were used last."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, tuple[Positions, int]] = OrderedDict()
        self.bytes = 0

    def get(self, name: str) -> Positions | None:
        if name not in self._known:
            return None
        self._known.move_to_end(name)
        return self._known[name][0]

    def put(self, name: str, positions: Positions) -> None:
        size = sum(_PATH_COST_BYTES + len(path) + of.nbytes for path, of in positions.items())
        if name not in self._known:
            self._known[name] = positions, size
            self.bytes += size
        while self.bytes > KEPT_BYTES_MAX:
            self.bytes -= self._known.popitem(last=False)[1][1]


_KEPT = KeptDeletes()


def deleted_positions(io: FileIO, known: Sequence[LiveDeletes], file: LiveFile) -> pa.Array:
    """Return the deleted positions of a data file, from position deletes or from a deletion vector."""
    gone = [
        _positions(io, deletes).get(file.path, _NONE)
        for deletes in known
        if deletes.sequence >= file.sequence and deletes.may_refer_to(file.path)
    ]
    return pa.concat_arrays(gone) if gone else _NONE


def keep_deletes(path: str, positions: pa.Table) -> None:
    """Keep a file of position deletes that this process has just written."""
    _KEPT.put(_name(path, None), _by_data_file(positions))


def _positions(io: FileIO, deletes: LiveDeletes) -> Positions:
    name = _name(deletes.path, deletes.offset)
    found = _KEPT.get(name)
    if found is None:
        found = _read(io, deletes)
        _KEPT.put(name, found)
    return found


def _name(path: str, offset: int | None) -> str:
    return f"{path} {offset}"


def _read(io: FileIO, deletes: LiveDeletes) -> Positions:
    if deletes.is_vector:
        assert deletes.referenced is not None
        return {deletes.referenced: read_vector(io, deletes)}
    with io.new_input(deletes.path).open() as source:
        return _by_data_file(pq.read_table(source, columns=["file_path", "pos"]))


def _by_data_file(rows: pa.Table) -> Positions:
    """Group the rows of a delete file. A path is repeated in each row, so the rows themselves are large."""
    if not rows.num_rows:
        return {}
    paths = rows.column("file_path").combine_chunks().dictionary_encode()
    # A stable sort: the codes are assigned in the order of the first rows, and so are the counts.
    positions = rows.column("pos").combine_chunks().take(pc.sort_indices(paths.indices))
    found, start = Positions(), 0
    for counted in pc.value_counts(paths.indices).to_pylist():
        found[paths.dictionary[counted["values"]].as_py()] = positions.slice(start, counted["counts"])
        start += counted["counts"]
    return found
