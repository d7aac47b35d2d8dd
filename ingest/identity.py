"""What makes two events the same event, and in which order changes apply. Pure.

A change that gives a row another key is a delete of the old key and an insert of the new one, at one place.

An identity may end in a part that tells equal rows of a table without a key apart, such as the number of the
event in its transaction. That part is not stable: Debezium counts the rest of a transaction from 1 again when
it is killed inside it. Where the table has a key, equal events at one place are one event, and the part is
left out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from ingest.change import Change, Row

_COUNTED = re.compile(r"~@[0-9a-f]+$")


def counted(identity: str, number: int | str) -> str:
    """An identity with a part that counts only where the table has no key."""
    return f"{identity}~@{number}"


def uncounted(identity: str) -> str:
    """The identity of an event of a table with a key."""
    return _COUNTED.sub("", identity)


def old_key(change: Change, key: Sequence[str]) -> Row | None:
    """The key that an update takes a row away from; None if the key stays, or the old one is not known."""
    before, after = change.before, change.after
    if change.operation != "update" or not before or after is None or not key:
        return None
    if not all(column in before for column in key):
        return None
    if all(column not in after or _is_same(after[column], before[column]) for column in key):
        return None
    return {column: before[column] for column in key}


def _is_same(one: object, other: object) -> bool:
    """A producer may write a key as a number here and as text there."""
    return one == other or str(one) == str(other)


def halves(change: Change, key: Sequence[str], fallback_id: str) -> tuple[Change, ...]:
    """The change itself; or, if it changes the key, its delete and its insert. `fallback_id` names an event
    that has neither identity nor number.
    """
    moved_from = old_key(change, key)
    if moved_from is None:
        return (change,)
    name = change.identity or (fallback_id if change.number is None else f"{change.source}:{change.number}")
    gone = replace(change, operation="delete", after=None, identity=f"{name}:before", number=None)
    return gone, replace(change, operation="insert", moved_from=moved_from)
