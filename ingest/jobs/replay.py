"""Dead letters on their way back: each is read again as it was, or as it was fixed, in the order it came."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from catalog.errors import Invalid
from ingest import formats
from ingest.batches.cut import UNROUTED
from ingest.batches.native import from_kept, replay_identity
from ingest.change import Change, Context, Parsed
from ingest.formats.decode import NotJson, decode
from ingest.journal import encoding
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
    _read(letter, fixed, is_fixed=True)


def _changes(letter: DeadLetter) -> list[Change]:
    known = _known(letter)
    if letter.replaced is not None:
        found = _read(letter, letter.replaced, is_fixed=True)
    else:
        found = [known] if known is not None else _read(letter, letter.original, is_fixed=False)
    for number, change in enumerate(found):
        change.source = letter.source or change.source
        change.position = letter.position or change.position
        change.number = None
        change.identity = replay_identity(letter.id, letter.changed_ms, number)
    return found


def _read(letter: DeadLetter, body: bytes, *, is_fixed: bool) -> list[Change]:
    kept = _kept(letter, body)
    if kept is not None:
        return [kept]
    parsed = formats.read(body, _context(letter, is_fixed=is_fixed))
    if parsed.rejects:
        raise Invalid(f"dead letter {letter.id} cannot be read: {parsed.rejects[0].reason}")
    return parsed.changes


def _context(letter: DeadLetter, *, is_fixed: bool) -> Context:
    """How the request was read that brought the event. A fixed event may have another format."""
    given = dict(orjson.loads(letter.context)) if letter.context else {}
    detected = given.pop("detected", "auto")
    if not is_fixed:
        given["format"] = detected
    for name in ("key", "namespace"):
        if given.get(name) is not None:
            given[name] = tuple(given[name])
    # What named no table when it came may name one now that it is fixed.
    return Context(**given, table=None if letter.table == UNROUTED else letter.table)


def _known(letter: DeadLetter) -> Change | None:
    """The change, where it could be read when it came and did not fit its table."""
    if letter.change is None:
        return None
    [change], _ = encoding.decode(letter.change, letter.table)
    return change


def _kept(letter: DeadLetter, body: bytes) -> Change | None:
    """The same as text, which people can read and fix."""
    try:
        event: Any = decode(body)
    except NotJson:
        return None
    return from_kept(event, letter.table, _known(letter)) if isinstance(event, dict) else None
