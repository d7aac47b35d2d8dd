"""The response of a table with long metadata: sent in pieces, and the same as one that is sent at once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.types import Message, Scope

from catalog.api import tables
from catalog.api.tables import table_response
from catalog.models import CatalogEntry

ENTRY = CatalogEntry("table", "db", "t", "uuid", 3, "file:///w/t/metadata/3.metadata.json", b'{"a":"12345"}')


def sent() -> list[Message]:
    messages: list[Message] = []

    async def send(message: Message) -> None:
        messages.append(message)

    async def receive() -> Message:
        raise AssertionError("nothing is awaited from the client")

    scope: Scope = {"type": "http", "method": "POST", "headers": []}
    asyncio.run(table_response(ENTRY)(scope, receive, send))
    return messages


def content(messages: list[Message]) -> tuple[dict[bytes, bytes], bytes]:
    headers: Any = messages[0]["headers"]
    assert [message.get("more_body", False) for message in messages[1:]][-1] is False
    return dict(headers), b"".join(message["body"] for message in messages[1:])


def test_pieces_are_the_same_response(monkeypatch: pytest.MonkeyPatch) -> None:
    at_once = sent()
    monkeypatch.setattr(tables, "PIECE_BYTES", 4)
    in_pieces = sent()
    assert content(in_pieces) == content(at_once)
    assert all(len(message["body"]) <= 4 for message in in_pieces[1:])
