"""Which changes of a batch have to wait, because an earlier change of their row has not landed. Pure.

Only for tables whose owner asked for it (`after-reject: wait`). What waits becomes a dead letter too, and a
replay brings it back behind the one it waited for.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import orjson

from ingest.batches.native import replayed_letter
from ingest.batches.order import Arrived
from ingest.batches.rejects import key_text
from ingest.change import Change
from ingest.formats.decode import decode
from ingest.identity import old_key
from ingest.journal.dead_letters import DeadLetter

Place = tuple[int, int]  # journal id, ordinal


def place_of(item: Arrived) -> Place:
    return item.journal_id, item.ordinal


def held(
    ordered: Sequence[Arrived],
    failed: Collection[Place],
    letters: Sequence[DeadLetter],
    key: Sequence[str],
    from_id: int,
) -> dict[Place, str]:
    """The changes that wait, with the reason. `failed` are those of the batch that cannot land themselves.

    `letters` are those that are open; the ones of this very batch (behind `from_id`), which an earlier
    attempt to stage it has left, say nothing.
    """
    returning = {replayed_letter(item.change) for item in ordered}
    known: dict[str, list[DeadLetter]] = {}
    for letter in letters:
        if letter.key is not None and letter.journal_id <= from_id and letter.id not in returning:
            known.setdefault(_comparable(letter.key), []).append(letter)
    found: dict[Place, str] = {}
    blocked: set[str] = set()
    for item in ordered:
        own = keys_of(item.change, key)
        letters_of = [letter for one in own for letter in known.get(one, ())]
        if place_of(item) in failed:
            blocked |= own
        elif own & blocked:
            found[place_of(item)] = _reason(item.change, key, "an earlier change of this batch")
            blocked |= own
        elif (earlier := _before(item.change, letters_of)) is not None:
            found[place_of(item)] = _reason(item.change, key, f"the dead letter {earlier.id}")
            blocked |= own
    return found


def keys_of(change: Change, key: Sequence[str]) -> set[str]:
    """The rows that a change is about: two if it changes the key."""
    moved_from = old_key(change, key)
    former = None if moved_from is None else key_of(Change(0, change.table, "delete", before=moved_from), key)
    return {one for one in (key_of(change, key), former) if one is not None}


def key_of(change: Change, key: Sequence[str]) -> str | None:
    """The key for comparing: a producer's name for the row is text, where the row has a number."""
    text = key_text(change, key)
    if text is not None:
        return _comparable(text)
    return orjson.dumps([change.row_id]).decode() if len(key) == 1 and change.row_id is not None else None


def _comparable(text: str) -> str:
    return orjson.dumps([str(part) for part in decode(text.encode())]).decode()


def _before(change: Change, letters: Sequence[DeadLetter]) -> DeadLetter | None:
    """The first letter that stands before this change."""
    own = replayed_letter(change)
    for letter in letters:
        if change.source == letter.source and change.position and letter.position:
            if letter.position <= change.position:
                return letter
        elif own is None or (letter.journal_id, letter.ordinal) < _place_of_id(own):
            return letter
    return None


def _place_of_id(letter_id: str) -> Place:
    journal_id, ordinal, _ = letter_id.split(".")
    return int(journal_id), int(ordinal)


def _reason(change: Change, key: Sequence[str], what: str) -> str:
    row = key_text(change, key) or change.row_id
    return f"the row {', '.join(key)} = {row} waits for {what}: fix that one, then replay both"
