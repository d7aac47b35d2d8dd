"""One subscription: its rights are checked with everything that it sends, also inside a long snapshot."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from catalog.errors import NotAuthorized
from catalog.models import Warehouse
from query.feed.cursors import ChangeIndex, Cursor
from query.feed.events import HEARTBEAT, Message
from query.feed.filters import Filter
from query.feed.heads import Head
from query.feed.streams import pieces
from query.feed.subscription import Shared, Subscription


class MadeUpRows:
    """A snapshot of chunks with so many rows."""

    def __init__(self, *sizes: int) -> None:
        self._sizes = sizes

    async def chunks(self, *_: Any) -> AsyncIterator[list[Message]]:
        index = 0
        for size in self._sizes:
            indices = [ChangeIndex("a\x1fb", index + row) for row in range(1, size + 1)]
            index += size
            yield [
                Message("change", {"operation": "read"}, Cursor(1, 1, 1, one, is_snapshot=True))
                for one in indices
            ]
        yield [Message("snapshot-end", {"number": 1}, Cursor(1, 1, 1))]


class RightsFor:
    """Allowed for some checks, then revoked."""

    def __init__(self, checks: int) -> None:
        self.left = checks

    async def check(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise NotAuthorized("revoked")


def subscription(rows: MadeUpRows, checks: int = 100) -> Subscription:
    unused: Any = None
    made_up: Any = rows
    rights: Any = RightsFor(checks)
    return Subscription(
        Shared(unused, unused, made_up, unused),
        rights,
        Warehouse("main", "file:///w", 1),
        Filter(),
        Cursor(1, 1, 1, is_snapshot=True),
        Head(1, 1),
    )


def test_a_snapshot_ends_when_the_rights_are_revoked() -> None:
    found: list[Message] = []

    async def run() -> None:
        async for message in subscription(MadeUpRows(1, 1, 1), checks=3).pending():  # to begin; two chunks
            found.append(message)  # noqa: PERF401 - those before the error count

    with pytest.raises(NotAuthorized):
        asyncio.run(run())
    assert [message.cursor.change_index for message in found] == [
        ChangeIndex("a\x1fb", 1),
        ChangeIndex("a\x1fb", 2),
    ]


def test_a_snapshot_without_a_row_to_send_for_a_while_sends_a_heartbeat(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("query.feed.subscription.SILENT_S", 0.0)

    async def run() -> list[list[Message]]:
        return [piece async for piece in pieces(subscription(MadeUpRows(1, 0, 2)), timeout_s=0)]

    found = asyncio.run(run())
    assert [[message.kind for message in piece] for piece in found] == [
        ["change", "heartbeat"],
        ["change", "change", "snapshot-end"],
    ]
    assert found[0][1].frame == HEARTBEAT
