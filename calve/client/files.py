"""Rows of files and data frames, one after the other, for `load`.

A file is on this machine, or an object of S3 (`s3://bucket/name.csv`), which pyarrow reads with the keys that
the environment has (`AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT_URL`, ...).

Columns of a CSV file are read twice: first to see what they hold, then row by row. A column whose values are
all whole numbers, numbers or true/false is sent as such; an empty field is null; the rest is text.
"""

from __future__ import annotations

import contextlib
import csv
import io
import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from calve.client.results import require
from calve.client.rows import is_missing

Row = dict[str, Any]

S3 = "s3://"
BATCH_ROWS = 10_000
EXACT_DIGITS = 15  # that a float keeps
_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,17}")  # no leading zeros: 007 is a name
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]{1,3})?")
_BOOLEANS = {"true": True, "false": False}


def rows_of_data(data: Any) -> Iterator[Row]:
    """The rows of a file (by path or s3://), a pandas or polars data frame, an Arrow table, or dicts."""
    if isinstance(data, str | Path):
        return rows_of_file(source(data))
    if hasattr(data, "iter_rows"):  # polars
        return iter(data.iter_rows(named=True))
    if hasattr(data, "itertuples"):  # pandas
        return _pandas_rows(data)
    if hasattr(data, "to_batches"):  # pyarrow
        return (row for batch in data.to_batches(BATCH_ROWS) for row in batch.to_pylist())
    if isinstance(data, Iterable):
        return iter(data)
    raise TypeError(f"cannot load a {type(data).__name__}: give a path, a data frame or a list of dicts")


@dataclass(frozen=True, slots=True)
class Source:
    """A file that can be opened, also twice."""

    name: str
    open: Callable[[], IO[bytes]]

    @contextlib.contextmanager
    def text(self, encoding: str) -> Iterator[IO[str]]:
        with self.open() as file, io.TextIOWrapper(file, encoding=encoding, newline="") as text:
            yield text


def source(path: str | Path) -> Source:
    """The file of a path or of an address s3://bucket/name. ValueError for another ending than those that can
    be read, OSError if there is no such file.
    """
    if Path(path).suffix.lower() not in READERS:
        raise ValueError(f"{path}: the file must end in {', '.join(READERS)}")
    if isinstance(path, str) and path.startswith(S3):
        return _object_of_s3(path)
    local = Path(path)
    local.stat()
    return Source(str(local), lambda: local.open("rb"))


def _object_of_s3(address: str) -> Source:
    fs = require("pyarrow.fs", "loading from S3")
    files, path = fs.FileSystem.from_uri(address)
    if files.get_file_info(path).type != fs.FileType.File:
        raise FileNotFoundError(f"{address} is no object")
    return Source(address, lambda: files.open_input_file(path))


def rows_of_file(file: Source) -> Iterator[Row]:
    """The rows of a CSV, JSON, NDJSON or Parquet file, by its ending."""
    return READERS[Path(file.name).suffix.lower()](file)


def _pandas_rows(frame: Any) -> Iterator[Row]:
    names = [str(name) for name in frame.columns]
    for values in frame.itertuples(index=False, name=None):
        yield {name: None if is_missing(value) else value for name, value in zip(names, values, strict=True)}


def _parquet_rows(source: Source) -> Iterator[Row]:
    parquet = require("pyarrow.parquet", "loading a Parquet file")
    with source.open() as opened, parquet.ParquetFile(opened) as file:
        for batch in file.iter_batches(BATCH_ROWS):
            yield from batch.to_pylist()


def _json_rows(source: Source) -> Iterator[Row]:
    """An array of objects, one object, or an object on each line."""
    with source.text("utf-8") as file:
        first = file.readline()
        rest = "" if _is_whole(first) else file.read()
        if rest or first.lstrip().startswith("["):
            yield from _document_rows(source.name, first + rest)
            return
        for number, line in enumerate(itertools.chain([first], file), 1):
            if line.strip():
                yield _object(line, f"{source.name}, line {number}")


def _is_whole(line: str) -> bool:
    """Whether a line is JSON by itself."""
    try:
        json.loads(line)
    except ValueError:
        return not line.strip()
    return True


def _document_rows(path: str, text: str) -> Iterator[Row]:
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


def _csv_rows(source: Source) -> Iterator[Row]:
    with source.text("utf-8-sig") as file:
        names, parsers = _csv_columns(file, source.name)
    with source.text("utf-8-sig") as file:
        lines = csv.reader(file)
        next(lines, None)
        for line in lines:
            if line:
                yield {
                    name: parse(text) if text else None
                    for name, parse, text in zip(names, parsers, line, strict=True)
                }


def _csv_columns(file: IO[str], path: str) -> tuple[list[str], list[Callable[[str], Any]]]:
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
READERS: dict[str, Callable[[Source], Iterator[Row]]] = {
    ".csv": _csv_rows,
    ".json": _json_rows,
    ".ndjson": _json_rows,
    ".jsonl": _json_rows,
    ".parquet": _parquet_rows,
}
