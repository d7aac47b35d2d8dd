"""A table of a source database: what its producer sends, and what a mirror of it has to show."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.contract.ingest.producers import NAMING_KEYS, UNCHANGED, Event, FormatProducer, Row

Key = tuple[Any, ...]
Rounds = Iterator[None]
IS_DELETED = "_is_deleted"


@dataclass(frozen=True, slots=True)
class Request:
    body: Any
    epoch: str | None


@dataclass(slots=True)
class SourceTable:
    """A table of a source database, and what its producer sends of it."""

    client: httpx.Client
    space: str
    name: str
    format: str
    salt: Callable[[], bytes]
    key: tuple[str, ...] = ("id",)
    names_key: bool = True  # in the address, if the format does not name the key itself
    columns: tuple[str, ...] = ("id", "name", "big")
    hashed: tuple[str, ...] = ()
    is_soft: bool = False
    epoch: str | None = None
    waits: bool = False  # it cannot land in this round
    is_settled: bool = True  # False: its mirror is rebuilt behind this round
    rows: dict[Key, Row] = field(default_factory=dict)
    versions: list[Row] = field(default_factory=list)  # of all rows
    sent_as: str = ""  # the namespace that the producer names, if a route gives another one
    producer: FormatProducer = field(init=False)
    source: str = field(init=False)
    _events: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.producer = FormatProducer(self.format, (self.sent_as or self.space, self.name), self.key)
        self.source = f"{self.space}-{self.name}"

    # -- changes at the source

    def insert(self, *rows: Row) -> None:
        for row in rows:
            self._events += self.producer.change(None, row)
            self.put(row)

    def update(self, key: Any, **values: Any) -> None:
        self.update_all((key, values))

    def update_all(self, *updates: tuple[Any, Row]) -> None:
        """By one statement: a row may get the key of another one that leaves it later."""
        olds = [self._pop(key) for key, _ in updates]
        news = [{**old, **values} for old, (_, values) in zip(olds, updates, strict=True)]
        self._events += self.producer.statement(list(zip(olds, news, strict=True)))
        for old, new in zip(olds, news, strict=True):
            self.put({name: old[name] if value == UNCHANGED else value for name, value in new.items()})

    def delete(self, *keys: Any) -> None:
        for key in keys:
            old = self._pop(key)
            self._events += self.producer.change(old, None)
            if self.is_soft:
                self.put(old, is_deleted=True)

    def truncate(self) -> None:
        self._events.append(self.producer.truncate())
        self.rows.clear()

    def drop(self, column: str, key: Any, **values: Any) -> None:
        """Update a row after the column was dropped."""
        old = self._pop(key)
        without = {name: value for name, value in old.items() if name != column}
        self._events += self.producer.change(without, {**without, **values})
        self.put({**without, **values})

    def rename(self, old: str, new: str) -> None:
        """Rename a column, with a record of Debezium's schema change topic."""
        self.columns = tuple(new if column == old else column for column in self.columns)
        self._events.append(self.producer.renamed(old, new, self.columns))
        for key, row in self.rows.items():
            self.rows[key] = {new if name == old else name: value for name, value in row.items()}

    def read(self, *rows: Row) -> None:
        """Rows of a first load. Whether they count depends on the changes since: the caller says it."""
        self._events += [self.producer.read(row) for row in rows]

    def _pop(self, key: Any) -> Row:
        row = self.rows.pop(key if isinstance(key, tuple) else (key,))
        return {name: value for name, value in row.items() if name != IS_DELETED}

    def put(self, row: Row, *, is_deleted: bool = False) -> None:
        shown = {**row, IS_DELETED: is_deleted} if self.is_soft else row
        self.rows[tuple(row[column] for column in self.key)] = shown
        self.versions.append(dict(shown))

    # -- requests

    def send_other(self, space: str, name: str, row: Row) -> None:
        """A transaction in another table of the source."""
        own = self.producer.space, self.producer.table
        self.producer.space, self.producer.table = space, name
        self._events += self.producer.change(None, row)
        self.commit()
        self.producer.space, self.producer.table = own

    def packed(self) -> Request:
        """End the transaction. The request with it is not sent yet."""
        self.producer.end()
        events, self._events = self._events, []
        return Request(self.producer.body(events), self.epoch)

    def commit(self) -> Request:
        request = self.packed()
        self.send(request)
        return request

    def send(self, request: Request, status: int = 0) -> httpx.Response:
        headers = {"X-Source-Id": self.source}
        if request.epoch is not None:
            headers["X-Source-Epoch"] = request.epoch
        named = self.names_key and self.format not in NAMING_KEYS
        path = f"/topics/db.{self.space}.{self.name}" if self.format == "kafka-rest" else "/cdc"
        answer = self.client.post(
            path,
            json=request.body,
            headers=headers,
            params={"key": ",".join(self.key)} if named else {},
        )
        assert answer.status_code == status if status else answer.is_success, answer.text
        assert not answer.json().get("deadLettered"), answer.text
        return answer

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """A request to the table's own routes, or to those of its source."""
        where = "" if path.startswith("sources/") else f"namespaces/{self.space}/tables/{self.name}/"
        answer = self.client.request(method, f"/lake/v1/main/{where}{path}", json=body)
        assert answer.is_success, answer.text
        return answer.json()

    def configure(self, **settings: Any) -> None:
        self.call("PUT", "ingest", {name.replace("_", "-"): value for name, value in settings.items()})

    @property
    def status(self) -> dict[str, Any]:
        found = self.client.get("/status").raise_for_status().json()
        shown: dict[str, Any] = found["landing"]["tables"][f"{self.space}.{self.name}"]
        return shown

    @property
    def held_because(self) -> str:
        """Why the source is held, as /status says it."""
        found = self.client.get("/status").raise_for_status().json()
        reason: str = found["heldSources"][self.source]["reason"]
        return reason

    def dead_letters(self) -> list[dict[str, Any]]:
        params = {"table": f"{self.space}.{self.name}"}
        answer = self.client.get("/lake/v1/main/dead-letters", params=params)
        found: list[dict[str, Any]] = answer.raise_for_status().json()["dead-letters"]
        return found

    @property
    def schema(self) -> tuple[set[str], set[str]]:
        """The columns of the mirror, and those among them that are its identifier fields."""
        answer = self.client.get(f"/v1/main/namespaces/{self.space}/tables/{self.name}")
        found = answer.raise_for_status().json()["metadata"]
        [schema] = [one for one in found["schemas"] if one["schema-id"] == found["current-schema-id"]]
        names = {one["id"]: one["name"] for one in schema["fields"]}
        return set(names.values()), {names[id_] for id_ in schema.get("identifier-field-ids", ())}

    @property
    def state(self) -> dict[str, Any]:
        found: dict[str, Any] = self.call("GET", "ingest")["state"]
        return found

    # -- what a reader has to see

    @property
    def shown_columns(self) -> tuple[str, ...]:
        return (*self.columns, *([IS_DELETED] if self.is_soft else []))

    def expected(self) -> list[Row]:
        return [self.shown(self.rows[key]) for key in sorted(self.rows)]

    def shown(self, row: Row) -> Row:
        return {
            name: self._hash(row.get(name)) if name in self.hashed else row.get(name)
            for name in self.shown_columns
        }

    def _hash(self, value: str | None) -> str | None:
        return None if value is None else hmac.digest(self.salt(), value.encode(), "sha256").hex()
