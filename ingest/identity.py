"""What makes two events the same event, and in which order changes apply. Pure.

An identity may end in a part that tells equal rows of a table without a key apart, such as the number of the
event in its transaction. That part is not stable: Debezium counts the rest of a transaction from 1 again when
it is killed inside it. Where the table has a key, equal events at one place are one event, and the part is
left out.
"""

from __future__ import annotations

import re

_COUNTED = re.compile(r"~@[0-9a-f]+$")


def counted(identity: str, number: int | str) -> str:
    """An identity with a part that counts only where the table has no key."""
    return f"{identity}~@{number}"


def uncounted(identity: str) -> str:
    """The identity of an event of a table with a key."""
    return _COUNTED.sub("", identity)
