"""Rows of files and data frames, one after the other, for `load`.

Columns of a CSV file are read twice: first to see what they hold, then row by row. A column whose values are
all whole numbers, numbers or true/false is sent as such; an empty field is null; the rest is text.
"""

from __future__ import annotations

import csv
import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from calve.client.results import require
from calve.client.rows import is_missing

Row = dict[str, Any]

BATCH_ROWS = 10_000
EXACT_DIGITS = 15  # that a float keeps
_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,17}")  # no leading zeros: 007 is a name
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]{1,3})?")
_BOOLEANS = {"true": True, "false": False}


def rows_of_data(data: Any) -> Iterator[Row]:
    """The rows of a file (by path), a pandas or polars data frame, an Arrow table, or dicts."""
    if isinstance(data, str | Path):
        return rows_of_file(Path(data))
    if hasattr(data, "iter_rows"):  # polars
        return iter(data.iter_rows(named=True))
    if hasattr(data, "itertuples"):  # pandas
        return _pandas_rows(data)
    if hasattr(data, "to_batches"):  # pyarrow
        return (row for batch in data.to_batches(BATCH_ROWS) for row in batch.to_pylist())
    if isinstance(data, Iterable):
        return iter(data)
    raise TypeError(f"cannot load a {type(data).__name__}: give a path, a data frame or a list of dicts")


def rows_of_file(path: Path) -> Iterator[Row]:
    """The rows of a CSV, JSON, NDJSON or Parquet file, by its ending."""
    readers: dict[str, Callable[[Path], Iterator[Row]]] = {
        ".csv": _csv_rows,
        ".json": _json_rows,
        ".ndjson": _json_rows,
        ".jsonl": _json_rows,
        ".parquet": _parquet_rows,
    }
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise ValueError(f"{path}: the file must end in {', '.join(readers)}")
    return reader(path)


def _pandas_rows(frame: Any) -> Iterator[Row]:
    names = [str(name) for name in frame.columns]
    for values in frame.itertuples(index=False, name=None):
        yield {name: None if is_missing(value) else value for name, value in zip(names, values, strict=True)}


def _parquet_rows(path: Path) -> Iterator[Row]:
    parquet = require("pyarrow.parquet", "loading a Parquet file")
    with parquet.ParquetFile(path) as file:
        for batch in file.iter_batches(BATCH_ROWS):
            yield from batch.to_pylist()


def _json_rows(path: Path) -> Iterator[Row]:
    """An array of objects, one object, or an object on each line."""
    with path.open(encoding="utf-8") as file:
        first = file.readline()
        rest = "" if _is_whole(first) else file.read()
        if rest or first.lstrip().startswith("["):
            yield from _document_rows(path, first + rest)
            return
        for number, line in enumerate(itertools.chain([first], file), 1):
            if line.strip():
                yield _object(line, f"{path}, line {number}")


def _is_whole(line: str) -> bool:
    """Whether a line is JSON by itself."""
    try:
        json.loads(line)
    except ValueError:
        return not line.strip()
    return True


def _document_rows(path: Path, text: str) -> Iterator[Row]:
    try:
        document = json.loads(text)
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from None
    for row in document if isinstance(document, list) else [document]:
        if not isinstance(row, dict):
            raise TypeError(f"{path}: an element of the array is not an object")
        yield row


def _object(line: str, where: str) -> Row:
    try:
        found = json.loads(line)
    except ValueError as error:
        raise ValueError(f"{where} is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise TypeError(f"{where} is not an object")
    return found


def _csv_rows(path: Path) -> Iterator[Row]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        names, parsers = _csv_columns(file, path)
        file.seek(0)
        lines = csv.reader(file)
        next(lines, None)
        for line in lines:
            if line:
                yield {
                    name: parse(text) if text else None
                    for name, parse, text in zip(names, parsers, line, strict=True)
                }


def _csv_columns(file: IO[str], path: Path) -> tuple[list[str], list[Callable[[str], Any]]]:
    lines = csv.reader(file)
    names = next(lines, [])
    kinds = [set(_KINDS) for _ in names]
    for line in lines:
        if line and len(line) != len(names):
            raise ValueError(f"{path}, line {lines.line_num}: {len(line)} fields for {len(names)} columns")
        for held, text in zip(kinds, line, strict=False):
            if text and held:
                held -= {kind for kind in held if not _KINDS[kind][0](text)}
    return names, [next((_KINDS[kind][1] for kind in _KINDS if kind in held), str) for held in kinds]


_KINDS: dict[str, tuple[Callable[[str], Any], Callable[[str], Any]]] = {
    "boolean": (lambda text: text.lower() in _BOOLEANS, lambda text: _BOOLEANS[text.lower()]),
    "whole": (_WHOLE.fullmatch, int),
    "number": (lambda text: _NUMBER.fullmatch(text) and sum(map(str.isdigit, text)) <= EXACT_DIGITS, float),
}
