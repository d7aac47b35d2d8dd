"""One server with everything in it that the rows ask for, made by the same requests on each.

The namespace `many` holds 1,000 tables, `bench.fresh` is a table just created, and `bench.grown` one with
1,000 snapshots, registered from a metadata file: so many commits would take the reference server minutes.
"""

from __future__ import annotations

import itertools
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

import orjson

from bench.catalog.client import Answer, Connection
from bench.catalog.operations import Api, Table, document
from bench.catalog.writers import Job, Writer, in_parallel
from bench.rivals.server import Server

NAMESPACE = "bench"
MANY = "many"
TABLES = 1000
SNAPSHOTS = 1000
CLIENTS = 8


@dataclass
class Target:
    server: Server
    api: Api
    strict: bool  # any unexpected answer ends the measurement; else it is counted and tried again
    numbers: itertools.count[int] = field(default_factory=itertools.count)

    @property
    def port(self) -> int:
        return self.server.port

    def connection(self) -> Connection:
        return Connection(self.port)

    def fresh_path(self) -> str:
        return f"{self.api.table(NAMESPACE, 'fresh')}?snapshots=all"

    def grown_path(self) -> str:
        return f"{self.api.table(NAMESPACE, 'grown')}?snapshots=all"

    def list_path(self) -> str:
        return self.api.tables(MANY)

    def look(self, path: str, headers: dict[str, str] | None = None) -> Answer:
        with self.connection() as connection:
            return connection.send("GET", path, headers=headers)

    def new_tables(self, count: int) -> list[Table]:
        with self.connection() as connection:
            return [self.api.create_table(connection, NAMESPACE, self.new_name()) for _ in range(count)]

    def new_name(self) -> str:
        return f"t{next(self.numbers)}"

    def drop(self, tables: list[Table]) -> None:
        """So that the next row finds the namespace as this one did."""
        with self.connection() as connection:
            for table in tables:
                connection.send("DELETE", self.api.table(table.namespace, table.name)).expect(204)


def prepare(server: Server, *, strict: bool) -> Target:
    with Connection(server.port) as connection:
        api = Api.of(connection, server.warehouse)
        for namespace in (NAMESPACE, MANY):
            api.create_namespace(connection, namespace)
        fresh = api.create_table(connection, NAMESPACE, "fresh")
        _register_grown(connection, api, fresh)
    target = Target(server, api, strict)
    _create_many(target)
    _check(target)
    return target


def _register_grown(connection: Connection, api: Api, neighbour: Table) -> None:
    """The file lies beside a table that the server has placed itself, so inside its warehouse."""
    parent = neighbour.location.rstrip("/").rsplit("/", 1)[0]
    location = f"{parent}/grown-{uuid.uuid4().hex}"
    file = f"{location}/metadata/{SNAPSHOTS:05}-{uuid.uuid4()}.metadata.json"
    path = Path(unquote(urlsplit(file).path))
    path.parent.mkdir(parents=True)
    path.write_bytes(orjson.dumps(document(location, str(uuid.uuid4()), SNAPSHOTS)))
    body = orjson.dumps({"name": "grown", "metadata-location": file})
    connection.send("POST", f"{api.root}/namespaces/{NAMESPACE}/register", body).expect(200)


def _create_many(target: Target) -> None:
    def creating(numbers: range) -> Job:
        def job(writer: Writer) -> None:
            for number in numbers:
                target.api.create_table(writer.connection, MANY, f"table_{number:04}")

        return job

    in_parallel(target.port, [creating(range(first, TABLES, CLIENTS)) for first in range(CLIENTS)])


def _check(target: Target) -> None:
    listed = target.look(target.list_path()).expect(200).json()["identifiers"]
    assert len(listed) == TABLES, f"{len(listed)} tables are listed"
    grown = target.look(target.grown_path()).expect(200).json()["metadata"]
    assert len(grown["snapshots"]) == SNAPSHOTS, f"{len(grown['snapshots'])} snapshots"
