"""A subscription to changes: from lines of a stream to batches, and where to resume after a failure.

`Subscriber` sends nothing itself. `Lake.subscribe` and `AsyncLake.subscribe` make the requests.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import httpx

from calve.client.calls import DELAY_S_MAX, FIRST_DELAY_S, TRANSIENT, Call, error_of
from calve.client.names import TableName, dotted
from calve.client.times import Moment, moment_parameter
from calve.errors import CalveError, Gone, class_of

EVENTS_MAX = 10_000  # of one batch
SILENCE_S = 60.0  # the server sends something every 20 s


@dataclass(frozen=True, slots=True)
class Change:
    """One change of a row."""

    table: str
    operation: str  #: insert, update, delete, truncate; read: a row of the snapshot
    before: dict[str, Any] | None  #: the row before it, as far as the source sent it
    after: dict[str, Any] | None  #: the row after it; None for a delete
    number: int  #: the commit of the warehouse that published it
    token: str  #: resumes after this change
    commit_timestamp: str | None = None
    source_timestamp: str | None = None
    source: str | None = None
    position: str | None = None
    transaction: str | None = None
    event_id: str | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    """Changes of one commit. Keep `token` together with their effects, and every change counts once."""

    events: Sequence[Change]
    token: str  #: resumes after this batch
    number: int  #: of the commit
    is_complete: bool  #: whether the commit, or the snapshot, ends with this batch
    is_snapshot: bool = False  #: rows of the snapshot
    must_refetch: Sequence[str] = ()  #: tables whose rows changed in another way: read them again


@dataclass
class Subscriber:
    """One subscription over all its connections."""

    params: Mapping[str, Any]
    is_every_commit: bool = False  # whether commits without a change that is wanted give a batch too
    token: str | None = None  # after the last batch
    _rest: bytes = b""
    _fields: dict[str, str] = field(default_factory=dict)
    _events: list[Change] = field(default_factory=list)
    _refetch: list[str] = field(default_factory=list)
    _delay_s: float = FIRST_DELAY_S
    _is_ended: bool = False

    def call(self) -> Call:
        """The next request. It resumes after the last change that was received, also inside a batch."""
        self._rest, self._fields, self._is_ended = b"", {}, False
        if not self._events:
            self._refetch = []  # they come before the changes of their commit, so they are sent again
        headers = {"Accept": "text/event-stream"}
        last = self._events[-1].token if self._events else self.token
        if last is not None:
            headers["Last-Event-ID"] = last
        return Call("GET", "/subscribe", self.params, headers=headers, timeout_s=SILENCE_S)

    def delay_s(self) -> float:
        """How long to wait before the next request."""
        delay_s = self._delay_s * random.uniform(0.5, 1.0)  # noqa: S311 - spreads clients in time
        self._delay_s = min(self._delay_s * 2, DELAY_S_MAX)
        return delay_s

    @property
    def is_ended(self) -> bool:
        """The server asks for a new connection."""
        return self._is_ended

    def received(self, piece: bytes) -> Iterator[Batch]:
        """The batches that a piece of the stream completes. Raises what an `error` event means.

        httpx would also end a line at characters such as U+2028, which JSON may contain.
        """
        *lines, self._rest = (self._rest + piece).split(b"\n")
        for line in lines:
            batch = self._line(line.decode().removesuffix("\r"))
            if batch is not None:
                yield batch

    def _line(self, line: str) -> Batch | None:
        if line:
            name, _, value = line.partition(":")
            self._fields[name] = value.removeprefix(" ")
            return None
        fields, self._fields = self._fields, {}
        if "event" not in fields:
            return None
        self._delay_s = FIRST_DELAY_S
        return self._event(fields["event"], fields.get("id", ""), json.loads(fields.get("data", "{}")))

    def _event(self, kind: str, token: str, data: dict[str, Any]) -> Batch | None:
        if kind == "change":
            self._events.append(Change(**data, token=token))
            if len(self._events) < EVENTS_MAX:
                return None
            return self._batch(token, data["number"], is_complete=False)
        if kind == "must-refetch":
            if "table" not in data:
                raise Gone(data["message"], status=410, type=data.get("type", ""))
            self._refetch.append(data["table"])
        elif kind in ("progress", "snapshot-end"):
            return self._batch(token, data["number"], is_complete=True, is_snapshot=kind == "snapshot-end")
        elif kind == "error":
            self._failed(class_of(data["code"])(data["message"], status=data["code"], type=data["type"]))
        elif kind == "slow-consumer":
            self._is_ended = True
        return None

    def _batch(
        self, token: str, number: int, *, is_complete: bool, is_snapshot: bool = False
    ) -> Batch | None:
        is_snapshot = is_snapshot or (bool(self._events) and self._events[0].operation == "read")
        found = Batch(self._events, token, number, is_complete, is_snapshot, tuple(self._refetch))
        self.token, self._events, self._refetch = token, [], []
        return found if found.events or found.must_refetch or is_snapshot or self.is_every_commit else None

    def _failed(self, error: CalveError) -> None:
        """Raise an error, unless a new connection may mend it."""
        if error.status not in TRANSIENT:
            raise error
        self._is_ended = True

    def refused(self, response: httpx.Response) -> None:
        """Raise what a response means, unless another request may succeed. Its body has been read."""
        self._failed(error_of(response))


def follow(client: httpx.Client, one: Subscriber) -> Iterator[Batch]:
    """The batches of a subscription. After a failure it connects again and resumes where it was."""
    while True:
        with suppress(httpx.TransportError), client.stream(**one.call().arguments()) as response:
            if not response.is_success:
                response.read()
                one.refused(response)
            for piece in response.iter_bytes():
                yield from one.received(piece)
                if one.is_ended:
                    break
        time.sleep(one.delay_s())


async def follow_async(client: httpx.AsyncClient, one: Subscriber) -> AsyncIterator[Batch]:
    """`follow` for asyncio."""
    while True:
        with suppress(httpx.TransportError):
            async with client.stream(**one.call().arguments()) as response:
                if not response.is_success:
                    await response.aread()
                    one.refused(response)
                async for piece in response.aiter_bytes():
                    for batch in one.received(piece):
                        yield batch
                    if one.is_ended:
                        break
        await asyncio.sleep(one.delay_s())


def subscriber(
    warehouse: str,
    tables: TableName | Sequence[TableName] | None,
    operations: Sequence[str] | str | None,
    *,
    from_: Moment | None,
    snapshot: bool,
    where: str | None,
    columns: Sequence[str] | None,
    every_commit: bool,
) -> Subscriber:
    """From the arguments of `Lake.subscribe`."""
    names = [tables] if isinstance(tables, str) else list(tables or ())
    params = {
        "warehouse": warehouse,
        "tables": ",".join(_name(table) for table in names) or None,
        "operations": operations if isinstance(operations, str) else ",".join(operations or ()) or None,
        "where": where,
        "columns": ",".join(columns or ()) or None,
        "from": moment_parameter(from_),
        "snapshot": "true" if snapshot else None,
    }
    return Subscriber(params, every_commit)


def _name(table: TableName) -> str:
    if isinstance(table, str):
        return table
    return "\x1f".join(table) if any("." in part for part in table) else dotted(table)
