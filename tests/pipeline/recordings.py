"""Recorded runs of Debezium Server: requests, byte for byte, and the tables at the end, in one file.

In the file, what repeats is written once: schemas stand compressed in its first line, and a long run of the
same text as that text and how often it stands there.
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.pipeline.recorder import Taken

FOLDER = Path(__file__).parent / "samples"
OWN_HEADERS = ("host", "content-length")  # of the recording, not of Debezium
_SCHEMA = re.compile(r'\{"schema":(\{.*?\}),"payload":\{')
_RUN = re.compile(r"(.{8,80}?)\1{19,}")
_TOKEN = re.compile(r"⟦(s|r):([^:⟧]*)(?::([^⟧]*))?⟧")


@dataclass(slots=True)
class RecordedRun:
    requests: list[Taken] = field(default_factory=list)
    columns: dict[str, list[str]] = field(default_factory=dict)
    rows: dict[str, Any] = field(default_factory=dict)  # as `plain` shows them
    failover_at: int | None = None  # how many requests came before it


def plain(rows: Sequence[Sequence[Any]]) -> Any:
    """Rows as JSON can hold them."""
    return json.loads(json.dumps(rows, default=_plain))


def _plain(value: object) -> str:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)


def load(name: str) -> RecordedRun:
    lines = [json.loads(line) for line in (FOLDER / name).read_text().splitlines()]
    schemas = json.loads(zlib.decompress(base64.b64decode(lines[0]["schemas"])))
    run = RecordedRun(columns=lines[0]["columns"], failover_at=lines[0].get("failover-at"))
    run.rows = {table: json.loads(_unfolded(text, schemas)) for table, text in lines[0]["rows"].items()}
    headers = lines[0]["headers"]
    for line in lines[1:]:
        run.requests.append(Taken(headers[line["h"]], _unfolded(line["body"], schemas).encode()))
    return run


def write(name: str, run: RecordedRun) -> None:
    folding = _Folding()
    requests = [
        {"h": folding.header(taken.headers), "body": folding.text(taken.body.decode())}
        for taken in run.requests
    ]
    first: dict[str, Any] = {
        "columns": run.columns,
        "rows": {t: folding.text(json.dumps(rows, ensure_ascii=False)) for t, rows in run.rows.items()},
        "schemas": base64.b64encode(zlib.compress(json.dumps(folding.schemas).encode(), 9)).decode(),
        "headers": folding.headers,
    }
    if run.failover_at is not None:
        first["failover-at"] = run.failover_at
    FOLDER.mkdir(exist_ok=True)
    lines = [json.dumps(line, ensure_ascii=False) for line in (first, *requests)]
    (FOLDER / name).write_text("\n".join(lines) + "\n")
    again = load(name)
    assert [taken.body for taken in again.requests] == [taken.body for taken in run.requests]
    assert again.rows == run.rows
    print(f"{name}: {len(requests)} requests, {(FOLDER / name).stat().st_size} bytes")


def _unfolded(text: str, schemas: list[str]) -> str:
    def put(token: re.Match[str]) -> str:
        kind, first, second = token.groups()
        return schemas[int(first)] if kind == "s" else second * int(first)

    return _TOKEN.sub(put, text)


class _Folding:
    """Takes out what repeats."""

    def __init__(self) -> None:
        self.schemas: list[str] = []
        self.headers: list[dict[str, str]] = []

    def text(self, text: str) -> str:
        found = _SCHEMA.match(text)
        if found is not None:
            schema = found.group(1)
            if schema not in self.schemas:
                self.schemas.append(schema)
            text = text.replace(schema, f"⟦s:{self.schemas.index(schema)}⟧", 1)
        return _RUN.sub(lambda run: f"⟦r:{len(run[0]) // len(run[1])}:{run[1]}⟧", text)

    def header(self, headers: dict[str, str]) -> int:
        kept = {name: value for name, value in headers.items() if name.lower() not in OWN_HEADERS}
        if kept not in self.headers:
            self.headers.append(kept)
        return self.headers.index(kept)
