"""Dead letters on their way back: each is read again as it was, or as it was fixed, in the order it came."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from catalog.errors import Invalid
from ingest import formats
from ingest.batches.cut import UNROUTED
from ingest.batches.native import from_kept, replay_identity
from ingest.change import Change, Context, Parsed
from ingest.formats.decode import NotJson, decode
from ingest.journal.dead_letters import DeadLetter
from ingest.journal.journal import Journal

GROUP = 1_000  # letters in one append


def replay(journal: Journal, warehouse: str, letters: Sequence[DeadLetter]) -> int:
    """Append the letters to the journal again; how many changes that gave.

    A change keeps its source and position, so it takes its old place and does not undo what came later. All
    letters of a call are read before the first is appended: one that is still unreadable stops the call, and
    the message names it.
    """
    read = [(letter, _changes(letter)) for letter in sorted(letters, key=lambda x: (x.journal_id, x.ordinal))]
    count = 0
    for start in range(0, len(read), GROUP):
        group = read[start : start + GROUP]
        changes = [change for _, found in group for change in found]
        for index, change in enumerate(changes):
            change.index = index
        parsed = Parsed("replay", len(changes), changes)
        journal.submit(warehouse, parsed, priority=0).result()
        journal.dead_letters.set_state([letter.id for letter, _ in group], "replayed")
        count += len(changes)
    return count


def check(letter: DeadLetter, fixed: bytes) -> None:
    """Invalid if the fixed event cannot be read."""
    _read(letter, fixed)


def _changes(letter: DeadLetter) -> list[Change]:
    found = _read(letter, letter.replaced if letter.replaced is not None else letter.original)
    for number, change in enumerate(found):
        change.source = letter.source or change.source
        change.position = letter.position or change.position
        change.number = None
        change.identity = replay_identity(letter.id, letter.changed_ms, number)
    return found


def _read(letter: DeadLetter, body: bytes) -> list[Change]:
    kept = _kept(letter, body)
    if kept is not None:
        return [kept]
    # What named no table when it came may name one now that it is fixed.
    parsed = formats.read(body, Context(table=None if letter.table == UNROUTED else letter.table))
    if parsed.rejects:
        raise Invalid(f"dead letter {letter.id} cannot be read: {parsed.rejects[0].reason}")
    return parsed.changes


def _kept(letter: DeadLetter, body: bytes) -> Change | None:
    """A change that was read well when it came, and did not fit its table."""
    try:
        event: Any = decode(body)
    except NotJson:
        return None
    return from_kept(event, letter.table) if isinstance(event, dict) else None
