"""A run of Debezium Server that was recorded: its requests, byte for byte, and the tables at the end.

`python -m tests.pipeline.recorded_run` records it anew; that needs `make proof-components`. In the file, what
repeats is written once: schemas stand in its first line, and a long run of the same text as that text and how
often it stands there.
"""

from __future__ import annotations

import base64
import json
import re
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.harness.postgres import PostgresServer
from tests.pipeline.debezium import Debezium
from tests.pipeline.recorder import Recorder, Taken, recording
from tests.pipeline.shop import Rows, Shop

FILE = Path(__file__).parent / "samples" / "debezium-run.jsonl"
SCHEMA = "debezium_run"
OWN_HEADERS = ("host", "content-length")  # of the recording, not of Debezium
_SCHEMA = re.compile(r'\{"schema":(\{.*?\}),"payload":\{')
_RUN = re.compile(r"(.{8,80}?)\1{19,}")
_TOKEN = re.compile(r"⟦(s|r):([^:⟧]*)(?::([^⟧]*))?⟧")


@dataclass(slots=True)
class RecordedRun:
    requests: list[Taken] = field(default_factory=list)
    columns: dict[str, list[str]] = field(default_factory=dict)
    rows: dict[str, Any] = field(default_factory=dict)  # as `plain` shows them


def plain(rows: Rows) -> Any:
    """Rows as JSON can hold them."""
    return json.loads(json.dumps(rows, default=_plain))


def _plain(value: object) -> str:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)


def load() -> RecordedRun:
    lines = [json.loads(line) for line in FILE.read_text().splitlines()]
    schemas = lines[0]["schemas"]
    run = RecordedRun(columns=lines[0]["columns"])
    run.rows = {table: json.loads(_unfolded(text, schemas)) for table, text in lines[0]["rows"].items()}
    headers = lines[0]["headers"]
    for line in lines[1:]:
        run.requests.append(Taken(headers[line["h"]], _unfolded(line["body"], schemas).encode()))
    return run


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


def record() -> None:
    with PostgresServer.started({"wal_level": "logical"}) as source, recording() as recorder:
        shop = Shop(source.database(), SCHEMA)
        shop.fill(3)
        folder = Path(tempfile.mkdtemp())
        debezium = Debezium(folder, shop.database, url=recorder.url, tables=shop.names, name=SCHEMA)
        debezium.start()
        try:
            shop.corner_cases()
            _wait(recorder, 60)
            debezium.kill()
            for _ in range(12):
                shop.step()
            debezium.start()
            shop.mark_end()
            _wait(recorder, 0)
        finally:
            debezium.kill()
        _write(recorder, shop)
        shop.close()


def _wait(recorder: Recorder, requests: int) -> None:
    """Until so many have come, or else the last."""
    until_s = time.monotonic() + 120
    while not (requests and len(recorder.taken) >= requests):
        if any(b'"table":"done"' in taken.body for taken in list(recorder.taken)):
            return
        assert time.monotonic() < until_s, "Debezium sends nothing"
        time.sleep(0.02)


def _write(recorder: Recorder, shop: Shop) -> None:
    folding = _Folding()
    requests = [
        {"h": folding.header(taken.headers), "body": folding.text(taken.body.decode())}
        for taken in recorder.taken
    ]
    first = {
        "columns": {table: shop.columns(table) for table in shop.tables},
        "rows": {t: folding.text(json.dumps(plain(shop.rows(t)), ensure_ascii=False)) for t in shop.tables},
        "schemas": folding.schemas,
        "headers": folding.headers,
    }
    FILE.parent.mkdir(exist_ok=True)
    lines = [json.dumps(line, ensure_ascii=False) for line in (first, *requests)]
    FILE.write_text("\n".join(lines) + "\n")
    run = load()
    assert [taken.body for taken in run.requests] == [taken.body for taken in recorder.taken]
    assert run.rows == {table: plain(shop.rows(table)) for table in shop.tables}
    print(f"{len(requests)} requests, {FILE.stat().st_size} bytes")


if __name__ == "__main__":
    record()
