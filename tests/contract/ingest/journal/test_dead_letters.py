"""Dead letters: put in once, found again, fixed, and done with."""

from __future__ import annotations

import dataclasses

import pytest

from catalog.errors import Conflict, Invalid, NotFound
from ingest.change import TableName
from ingest.journal.dead_letters import DeadLetter, general_reason, letter_id
from ingest.journal.journal import Journal
from tests.contract.ingest.journal.journal_setup import WAREHOUSE, A, B, Clock


def letter(journal_id: int, ordinal: int = 0, table: TableName = A, key: str | None = None) -> DeadLetter:
    return DeadLetter(
        id=letter_id(WAREHOUSE, table, journal_id, ordinal),
        warehouse=WAREHOUSE,
        table=table,
        journal_id=journal_id,
        ordinal=ordinal,
        key=key,
        code="unfit",
        reason="column a: \0 is no long",
        original=b'{"a": \xff\x00}',
        source="s",
        position="01",
        received_ms=5,
    )


def test_the_same_letter_twice_is_one(journal: Journal) -> None:
    found = [letter(1, 0), letter(1, 1), letter(1, 0, B), letter(1, -1)]
    journal.dead_letters.add(found)
    journal.dead_letters.set_state([found[0].id], "dropped")
    journal.dead_letters.add(found)
    states = {one.id: one.state for one in journal.dead_letters.all(WAREHOUSE)}
    assert states == {one.id: "dropped" if one is found[0] else "open" for one in found}


def test_it_comes_back_as_it_was(journal: Journal) -> None:
    sent = letter(3, key='[1,"ü"]')
    journal.dead_letters.add([sent])
    expected = dataclasses.replace(
        sent, reason="column a: \N{SYMBOL FOR NULL} is no long", changed_ms=sent.received_ms
    )
    assert journal.dead_letters.get(sent.id) == expected
    with pytest.raises(NotFound):
        journal.dead_letters.get("9.9")


def test_pages_in_the_order_of_the_journal(journal: Journal) -> None:
    sent = [letter(n, o, t) for n in (7, 3, 5) for o in (1, 0) for t in (A, B)]
    journal.dead_letters.add(sent)
    seen: list[DeadLetter] = []
    while True:
        page = journal.dead_letters.all(WAREHOUSE, after=seen[-1].id if seen else None, limit=5)
        seen += page
        if len(page) < 5:
            break
    assert len(seen) == len(sent)
    assert [(one.journal_id, one.ordinal) for one in seen] == sorted((s.journal_id, s.ordinal) for s in sent)
    assert {one.id for one in seen} == {one.id for one in sent}


def test_by_table_and_state(journal: Journal) -> None:
    sent = [letter(1), letter(2), letter(3, table=B)]
    journal.dead_letters.add(sent)
    journal.dead_letters.set_state([sent[0].id], "replayed")
    of = journal.dead_letters.all
    assert [one.id for one in of(WAREHOUSE, A)] == [sent[0].id, sent[1].id]
    assert [one.id for one in of(WAREHOUSE, state="open")] == [sent[1].id, sent[2].id]
    assert [one.id for one in of(WAREHOUSE, A, "open")] == [sent[1].id]
    assert of(WAREHOUSE, ()) == []
    assert of("other") == []
    assert journal.dead_letters.counts(WAREHOUSE) == {A: {"open": 1, "replayed": 1}, B: {"open": 1}}


def test_letters_with_the_same_reason_are_counted(journal: Journal) -> None:
    def unfit(number: int, value: str, column: str = "n", table: TableName = A) -> DeadLetter:
        reason = f'column "{column}": {value} does not fit long: not a number'
        return dataclasses.replace(letter(number, table=table), reason=reason, received_ms=number)

    sent = [unfit(n, f"'v{n}'") for n in range(1, 6)] + [unfit(6, "'a: b'", "m"), unfit(7, "'x'", table=B)]
    journal.dead_letters.add(sent)
    journal.dead_letters.add([dataclasses.replace(unfit(8, "'y'"), state="staged", job_id="j")])
    journal.dead_letters.set_state([sent[0].id], "dropped")
    journal.dead_letters.set_state([sent[5].id], "replayed")
    reason = 'column "n": … does not fit long: not a number'
    first, *others = journal.dead_letters.reasons(WAREHOUSE)
    assert (first.table, first.source, first.code, first.reason) == (A, "s", "unfit", reason)
    assert (first.count, first.waiting, first.first_ms, first.last_ms) == (5, 4, 1, 5)
    assert journal.dead_letters.get(first.example).state == "open"
    assert [(one.table, one.reason, one.waiting) for one in others] == [
        (A, reason.replace('"n"', '"m"'), 0),
        (B, reason, 1),
    ]
    assert [one.example for one in others] == [sent[5].id, sent[6].id]
    assert [one.count for one in journal.dead_letters.reasons(WAREHOUSE, A, "dropped")] == [1]
    assert journal.dead_letters.reasons("other") == []


@pytest.mark.parametrize(
    ("reason", "general"),
    [
        (
            "the row id = [7] waits for the dead letter 1.2.3: fix that one, then replay both",
            "the row waits for an earlier change: fix that one, then replay both",
        ),
        (
            "the record's value is not JSON (unexpected end at 17): send JSON",
            "the record's value is not JSON: send JSON",
        ),
        ("`rowId` is not text: send the row's key as text",) * 2,
        ('column "a": \'b": c does not fit x\' does not fit long', 'column "a": … does not fit long'),
    ],
)
def test_what_differs_from_event_to_event_is_left_out_of_a_reason(reason: str, general: str) -> None:
    assert general_reason(reason) == general


def test_fixed_then_replayed(journal: Journal, clock: Clock) -> None:
    one = letter(1)
    journal.dead_letters.add([one])
    journal.dead_letters.fix(one.id, b"better")
    journal.dead_letters.fix(one.id, b"best")
    found = journal.dead_letters.get(one.id)
    assert (found.state, found.replaced, found.original) == ("fixed", b"best", one.original)
    assert found.changed_ms == clock.now_ms
    journal.dead_letters.set_state([one.id], "replayed")
    with pytest.raises(Conflict, match="replayed"):
        journal.dead_letters.fix(one.id, b"late")
    with pytest.raises(NotFound):
        journal.dead_letters.fix("9.9", b"")
    with pytest.raises(Invalid):
        journal.dead_letters.set_state([one.id], "lost")  # type: ignore[arg-type]


def test_keys_that_wait(journal: Journal) -> None:
    sent = [letter(1, key="[1]"), letter(2, key="[1]"), letter(3, key="[2]"), letter(4), letter(5, key="[3]")]
    journal.dead_letters.add(sent)
    journal.dead_letters.fix(sent[2].id, b"x")
    journal.dead_letters.set_state([sent[0].id, sent[4].id], "dropped")
    assert journal.dead_letters.open_keys(WAREHOUSE, A) == {"[1]", "[2]"}
    assert journal.dead_letters.open_keys(WAREHOUSE, B) == set()
