"""Cursors: how far a subscriber has read, and the opaque token in which a cursor is sent.

A cursor names a commit of the warehouse by its number. The token also has the generation of the warehouse
(when it was created) and the time of that commit. So a token of a warehouse that was dropped and created
again, or of a database that was restored from a backup, is recognised.

Inside a commit, the cursor names the last change that was sent: its table, and its index among the changes of
that table. Both are the same for every subscriber, regardless of its filter.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass

import orjson

from catalog.errors import Invalid

VERSION = 1
TOKEN_CHARS_MAX = 2000
INTEGER_MAX = 2**62
WRONG = "is not a token of the change feed: send one as it was received, or leave it out"


@dataclass(frozen=True, slots=True, order=True)
class ChangeIndex:
    """The last entry of a commit or snapshot that was sent; all entries before it were sent too."""

    table: str  # levels and name, joined with 0x1F
    count: int  # entries of the table up to it


@dataclass(frozen=True, slots=True)
class Cursor:
    """Everything up to `number` was sent; then, up to `change_index`, the changes of the next number.

    With `is_snapshot`, what is being read are the rows of the tables at `number`, up to `change_index`.
    """

    generation: int
    number: int
    time_ms: int
    change_index: ChangeIndex | None = None
    is_snapshot: bool = False

    @property
    def token(self) -> str:
        parts: list[int | str] = [VERSION, self.generation, self.number, self.time_ms]
        if self.change_index is not None or self.is_snapshot:
            change_index = self.change_index or ChangeIndex("", 0)
            parts += [int(self.is_snapshot), change_index.table, change_index.count]
        return base64.urlsafe_b64encode(orjson.dumps(parts)).decode().rstrip("=")


def cursor_of(token: str, what: str = "token") -> Cursor:
    """Parse a token. Invalid if the server did not issue it."""
    try:
        if len(token) > TOKEN_CHARS_MAX:
            raise ValueError(token[:20])
        parts = orjson.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        version, generation, number, time_ms, *rest = parts
        is_snapshot, table, count = rest or (0, "", 0)
    except (binascii.Error, ValueError, TypeError) as error:
        raise Invalid(f"{what}: {WRONG}") from error
    numbers = (version, generation, number, time_ms, is_snapshot, count)
    if not all(type(part) is int and 0 <= part <= INTEGER_MAX for part in numbers) or version != VERSION:
        raise Invalid(f"{what}: {WRONG}")
    if not isinstance(table, str) or is_snapshot not in (0, 1):
        raise Invalid(f"{what}: {WRONG}")
    change_index = ChangeIndex(table, count) if count else None
    return Cursor(generation, number, time_ms, change_index, bool(is_snapshot))


def is_token(text: str) -> bool:
    """Return whether the text looks like a token rather than a moment."""
    try:
        cursor_of(text)
    except Invalid:
        return False
    return True
