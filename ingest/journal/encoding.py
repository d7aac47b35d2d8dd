"""Encode changes and rejects of one table as bytes, and decode them. Pure.

A blob is one byte for the encoding, then JSON, compressed unless it is small. The JSON has one column for
each field of the changes: a value that all share is stored once, a sequence of numbers as its first, keys and
declared types as indexes into a list. That is faster to write than a list of objects, and much smaller.

Rows contain JSON values, and also integers of any size and `Decimal`. They contain no NaN or infinity: the
formats refuse them.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from decimal import Decimal
from itertools import repeat
from typing import Any

import orjson
import zstandard

from ingest.change import Change, ChangeColumns, Declared, Reject, TableName

_ZSTD, _PLAIN_JSON = 1, 2  # bits of the first byte; the second: written by `json`, because orjson cannot
SMALL_BYTES_MAX = 256
LEVEL = 1
DEPTH_MAX = 400
# The columns in the order of Change's fields, without the table, each with its default.
USUAL: dict[str, Any] = {
    "index": None,
    "operation": "insert",
    "before": None,
    "after": None,
    "key": None,
    "row_id": None,
    "source": "",
    "position": "",
    "identity": "",
    "number": None,
    "transaction": None,
    "transaction_ends": False,
    "time_ms": None,
    "declared": None,
    "origin": "",
    "unchanged": None,
}
_ROWS = {"before", "after"}  # too expensive to compare
_COUNTED = {"index", "number"}
_LISTED = {"key": "keys", "declared": "types"}  # the lists that columns with indexes refer to
_MARK = "\0"  # begins the only field of an object that stands for another value
_DECIMAL = f"{_MARK}decimal"


class _Codecs(threading.local):
    """zstd's objects may be used by one thread at a time."""

    def __init__(self) -> None:
        self.compressor = zstandard.ZstdCompressor(level=LEVEL)
        self.decompressor = zstandard.ZstdDecompressor()


_codecs = _Codecs()


def encode(changes: Sequence[Change], rejects: Sequence[Reject]) -> bytes:
    document: dict[str, Any] = {"size": len(changes)}
    if changes:
        _add_columns(document, dict(zip(USUAL, _columns(changes), strict=True)))
    if rejects:
        document["rejects"] = [
            (
                r.index,
                r.reason,
                r.original.decode("latin-1"),
                r.code,
                r.source,
                r.position,
                r.identity,
                r.number,
                r.context,
            )
            for r in rejects
        ]
    return _framed(document)


def encode_columns(columns: ChangeColumns) -> bytes:
    """Encode changes that are columns already."""
    document: dict[str, Any] = {"size": columns.size}
    index = list(range(columns.first_index, columns.first_index + columns.size))
    same = {name: [value] * columns.size for name, value in columns.same.items() if value != USUAL[name]}
    _add_columns(document, {"index": index, **columns.different, **same})
    return _framed(document)


def _add_columns(document: dict[str, Any], columns: Mapping[str, list[Any]]) -> None:
    for name, values in columns.items():
        column = _column(document, name, values)
        if column is not None:
            document[name] = column


def _columns(changes: Sequence[Change]) -> tuple[list[Any], ...]:
    """Return the columns in the order of `USUAL`. Written out, because that is three times as fast as by
    name.
    """
    return (
        [change.index for change in changes],
        [change.operation for change in changes],
        [change.before for change in changes],
        [change.after for change in changes],
        [change.key for change in changes],
        [change.row_id for change in changes],
        [change.source for change in changes],
        [change.position for change in changes],
        [change.identity for change in changes],
        [change.number for change in changes],
        [change.transaction for change in changes],
        [change.transaction_ends for change in changes],
        [change.time_ms for change in changes],
        [change.declared for change in changes],
        [change.origin for change in changes],
        [change.unchanged for change in changes],
    )


def _column(document: dict[str, Any], name: str, values: list[Any]) -> Any:
    """Return None if all have the default, a list of one if all have this value, else a list of values or a
    count.
    """
    first, size = values[0], len(values)
    if name in _ROWS:
        return None if first is None and values.count(None) == size else values
    if name in _COUNTED:
        if first is None and values.count(None) == size:
            return None
        return first if first is not None and values == list(range(first, first + size)) else values
    if name in _LISTED:
        values = _indexes(document, name, values)
        first = values[0]
    if values.count(first) == size:
        return None if first == USUAL[name] else [first]
    return values


def _indexes(document: dict[str, Any], name: str, values: list[Any]) -> list[int | None]:
    """Replace each value by its index in a list of the distinct values."""
    if values.count(values[0]) == len(values):
        distinct, indexes = [values[0]], [0] * len(values)
    else:
        distinct, indexes = [], []
        by_id: dict[int, int] = {}
        for value in values:
            index = by_id.get(id(value))
            if index is None:
                if value not in distinct:
                    distinct.append(value)
                index = by_id[id(value)] = distinct.index(value)
            indexes.append(index)
    if distinct == [None]:
        return [None] * len(values)
    plain = _plain_declared if name == "declared" else _same
    document[_LISTED[name]] = [plain(value) for value in distinct]
    return list(indexes)


def _same(value: Any) -> Any:
    return value


def _plain_declared(declared: Declared | None) -> Any:
    if declared is None:
        return None
    plain = [dict(declared.columns), dict(declared.encodings), sorted(declared.required)]
    return [*plain, dict(declared.defaults)] if declared.defaults else plain


def _framed(document: dict[str, Any]) -> bytes:
    try:
        data, how = orjson.dumps(document), 0
    except TypeError:  # a number beyond 64 bits, a Decimal, a surrogate, deep nesting
        _refuse_depth(document)
        text = json.dumps(_escaped(document), separators=(",", ":"), default=_default)
        data, how = text.encode(), _PLAIN_JSON
    if len(data) > SMALL_BYTES_MAX:
        data, how = _codecs.compressor.compress(data), how | _ZSTD
    return bytes((how,)) + data


def _refuse_depth(document: object) -> None:
    """Refuse deep nesting, because decoding needs the same depth of stack."""
    level: list[object] = [document]
    for _ in range(DEPTH_MAX):
        level = [inner for value in level for inner in _inside(value)]
        if not level:
            return
    raise TypeError(f"a row is nested more than {DEPTH_MAX} levels deep")


def _inside(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, (list, tuple)) else ()


def _default(value: object) -> Any:
    if isinstance(value, Decimal):
        return {_DECIMAL: str(value)}
    raise TypeError(f"a row cannot hold a {type(value).__name__}")


def _escaped(value: Any) -> Any:
    """Add a second mark to a producer's object that looks like a marked one."""
    if isinstance(value, dict):
        escaped = {name: _escaped(held) for name, held in value.items()}
        name = next(iter(value), "")
        return {_MARK + name: escaped[name]} if len(value) == 1 and name.startswith(_MARK) else escaped
    return [_escaped(held) for held in value] if isinstance(value, (list, tuple)) else value


def _revived(found: dict[str, Any]) -> Any:
    if len(found) != 1:
        return found
    [(name, held)] = found.items()
    if name == _DECIMAL:
        return Decimal(held)
    return {name[len(_MARK) :]: held} if name.startswith(_MARK + _MARK) else found


def decode(blob: bytes, table: TableName, skips: Collection[int] = ()) -> tuple[list[Change], list[Reject]]:
    """Return what `encode` was given, without the events at the indexes `skips` (rejects come after the
    changes).
    """
    how, data = blob[0], blob[1:]
    if how & _ZSTD:
        data = _codecs.decompressor.decompress(data)
    document = json.loads(data, object_hook=_revived) if how & _PLAIN_JSON else orjson.loads(data)
    size: int = document["size"]
    changes: list[Change] = []
    if size:
        columns = [_values(document, name, size) for name in USUAL]
        changes = list(map(Change, columns[0], repeat(table), *columns[1:]))
    rejects = [_reject(row, table) for row in document.get("rejects", ())]
    if skips:
        left = set(skips)
        changes = [change for index, change in enumerate(changes) if index not in left]
        rejects = [reject for index, reject in enumerate(rejects, size) if index not in left]
    return changes, rejects


def _values(document: dict[str, Any], name: str, size: int) -> Iterable[Any]:
    column = document.get(name)
    if column is None:
        return repeat(USUAL[name])
    if name in _LISTED:
        distinct = [_revived_value(name, value) for value in document[_LISTED[name]]]
        return repeat(distinct[column[0]]) if len(column) == 1 else [distinct[index] for index in column]
    if name == "unchanged":
        column = [None if value is None else tuple(value) for value in column]
    if name in _COUNTED:
        return range(column, column + size) if isinstance(column, int) else column
    return repeat(column[0]) if len(column) == 1 and name not in _ROWS else column


def _revived_value(name: str, value: Any) -> Any:
    if value is None:
        return None
    if name == "key":
        return tuple(value)
    columns, encodings, required, *defaults = value
    return Declared(columns, encodings, frozenset(required), *defaults)


def _reject(row: list[Any], table: TableName) -> Reject:
    index, reason, original, code, source, position, identity, number, *more = row
    return Reject(
        index=index,
        reason=reason,
        original=original.encode("latin-1"),
        code=code,
        table=table or None,
        source=source,
        position=position,
        identity=identity,
        number=number,
        context=more[0] if more else None,  # entries of version 2 have none
    )
