"""What a commit costs on a table with many snapshots, alone and inside a transaction.

    python -m bench.catalog.snapshots [--snapshots N ...] [--commits N] [--database sqlite|postgres] [--plain]

Registers a table for each size and appends to all of them in turn. Prints medians of wall time and of the
server's processor time in milliseconds, and the ratio of the largest table to the smallest. `transaction` is
one commit inside an open transaction, `publish` the publishing of that transaction. Two floors to compare
with: `load` answers with the same document as a commit does, `file` is a file as large as the metadata file,
written and synced by this process. The client accepts gzip, as Iceberg's clients do, and does not decompress
it. With `--plain` it does not accept gzip, and the metadata files are not compressed.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import tempfile
import time
import uuid
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

import orjson

from bench.catalog.client import Answer, Connection
from bench.catalog.operations import Api, Table, document
from bench.rivals.calve import calve
from bench.rivals.server import Server
from tests.harness.postgres import PostgresServer

NAMESPACE = "bench"
KINDS = ("alone", "transaction", "publish", "load")


@dataclass
class Measured:
    """One table, and what its commits took."""

    table: Table
    folder: Path  # of its metadata files
    document_mb: float
    wall_ms: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    cpu_ms: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    file_ms: list[float] = field(default_factory=list)


def main() -> None:
    given = _arguments()
    with contextlib.ExitStack() as running:
        folder = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="calve-bench-")))
        database = None
        if given.database == "postgres":
            database = running.enter_context(PostgresServer.started()).database()
        server = running.enter_context(calve(folder, database=database))
        accepted = {} if given.plain else {"Accept-Encoding": "gzip"}
        connection = running.enter_context(Connection(server.port, accepted))
        api = Api.of(connection, server.warehouse)
        api.create_namespace(connection, NAMESPACE)
        properties = {"write.metadata.compression-codec": "none"} if given.plain else {}
        tables = {count: _registered(connection, api, count, properties) for count in given.snapshots}
        for _ in range(given.commits + 1):
            for measured in tables.values():
                _round(server, connection, api, measured)
                newest = max(measured.folder.iterdir(), key=lambda path: path.stat().st_mtime_ns)
                measured.file_ms.append(_written_ms(folder / "file", newest.stat().st_size))
    _print(tables)


def _arguments() -> argparse.Namespace:
    arguments = argparse.ArgumentParser(prog="python -m bench.catalog.snapshots", description=__doc__)
    arguments.add_argument("--snapshots", type=int, nargs="+", default=[1_000, 10_000, 40_000])
    arguments.add_argument("--commits", type=int, default=9)
    arguments.add_argument("--database", choices=("sqlite", "postgres"), default="sqlite")
    arguments.add_argument("--plain", action="store_true", help="nothing is compressed")
    return arguments.parse_args()


def _registered(connection: Connection, api: Api, count: int, properties: dict[str, str]) -> Measured:
    """The file lies beside a table that the server has placed itself, so inside its warehouse."""
    neighbour = api.create_table(connection, NAMESPACE, f"beside_{count}")
    location = f"{neighbour.location.rstrip('/').rsplit('/', 1)[0]}/grown-{uuid.uuid4().hex}"
    file = f"{location}/metadata/{count:05}-{uuid.uuid4()}.metadata.json"
    path = Path(unquote(urlsplit(file).path))
    path.parent.mkdir(parents=True)
    metadata = document(location, str(uuid.uuid4()), count, real_ids=True)
    metadata["properties"] |= properties
    text = orjson.dumps(metadata)
    path.write_bytes(text)
    name = f"grown_{count}"
    body = orjson.dumps({"name": name, "metadata-location": file})
    answer = connection.send("POST", f"{api.root}/namespaces/{NAMESPACE}/register", body).expect(200)
    return Measured(Table(NAMESPACE, name, answer.json()["metadata"]), path.parent, len(text) / 1e6)


def _round(server: Server, connection: Connection, api: Api, measured: Measured) -> None:
    """One commit alone, and one inside a transaction that is then published."""
    table = measured.table

    def timed(kind: str, send: Callable[[], Answer]) -> None:
        cpu_s, began_s = server.cpu_s(), time.perf_counter()
        send().expect(200)
        measured.wall_ms[kind].append((time.perf_counter() - began_s) * 1000)
        measured.cpu_ms[kind].append((server.cpu_s() - cpu_s) * 1000)

    def append(root: Api) -> Answer:
        body = orjson.dumps(table.change(snapshot_id := _snapshot_id()))
        answer = connection.send("POST", root.table(NAMESPACE, table.name), body)
        table.parent, table.sequence = snapshot_id, table.sequence + 1
        return answer

    timed("alone", lambda: append(api))
    name = f"t{uuid.uuid4().hex}"
    opened = "/lake/v1/main/transactions"
    connection.send("POST", opened, orjson.dumps({"name": name})).expect(200)
    timed("transaction", lambda: append(Api(f"/v1/{quote(f'main~{name}', safe='')}")))
    timed("publish", lambda: connection.send("POST", f"{opened}/{name}/commit", b""))
    timed("load", lambda: connection.send("GET", api.table(NAMESPACE, table.name)))


def _written_ms(path: Path, size_bytes: int) -> float:
    """A new file in pieces of 1 MiB, as the server writes it."""
    piece = b"x" * min(size_bytes, 2**20)
    began_s = time.perf_counter()
    with path.open("wb", buffering=0) as file:
        for begin in range(0, size_bytes, len(piece)):
            file.write(piece[: size_bytes - begin])
        os.fdatasync(file.fileno())
    took_s = time.perf_counter() - began_s
    path.unlink()
    return took_s * 1000


def _snapshot_id() -> int:
    return uuid.uuid4().int >> 66


def _print(tables: dict[int, Measured]) -> None:
    # Without the first round, which parses what was registered.
    def wall(measured: Measured, kind: str) -> float:
        return statistics.median(measured.wall_ms[kind][1:])

    def cpu(measured: Measured, kind: str) -> float:
        return statistics.median(measured.cpu_ms[kind][1:])

    print(
        f"{'snapshots':>10} {'MB':>6}"
        + "".join(f"{kind:>14} {'(cpu)':>8}" for kind in KINDS)
        + f"{'file':>10}"
    )
    for count, measured in tables.items():
        figures = "".join(f"{wall(measured, kind):>14.1f} {cpu(measured, kind):>8.1f}" for kind in KINDS)
        figures += f"{statistics.median(measured.file_ms):>10.1f}"
        print(f"{count:>10} {measured.document_mb:>6.1f}{figures}")
    least, most = tables[min(tables)], tables[max(tables)]
    figures = "".join(
        f"{wall(most, kind) / wall(least, kind):>14.1f} {cpu(most, kind) / cpu(least, kind):>8.1f}"
        for kind in KINDS
    )
    print(f"{'ratio':>17}{figures}")


if __name__ == "__main__":
    main()
