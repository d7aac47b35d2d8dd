"""Killed at every step, or out of disk: what was answered is there once, and no mark without its event."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from ingest.journal.journal import Journal
from tests.contract.ingest.journal.crashes import BUGS, Trial, acked, requests, run, run_trim
from tests.contract.ingest.journal.journal_setup import A, B, JournalDatabase, appended, everything, problems

POINTS_MAX = 80
POINTS = {
    "journal.locked",
    "journal.entries-written",
    "journal.numbers-written",
    "journal.marks-written",
    "journal.before-commit",
    "journal.committed",
    "journal.answered",
}
_names = itertools.count()


def trial(folder: Path, *, passes: int = 10**9, bug: str = "", file_bytes_max: int | None = None) -> Trial:
    name = f"w{next(_names)}"
    return Trial(name, folder / f"{name}.acks", folder / f"{name}.trace", passes, file_bytes_max, bug)


def events_of(one: Trial, numbers: set[int]) -> set[int]:
    sent = requests(one)
    return {change.after["event"] for number in numbers for change in sent[number].changes if change.after}


def events_in(journal: Journal, warehouse: str) -> list[int]:
    return [change.after["event"] for _, change in everything(journal, warehouse) if change.after]


def require_sound(journal_database: JournalDatabase, one: Trial) -> None:
    """After a crash, as a server that was started again: then everything is sent once more."""
    everyone = set(range(one.requests))
    with journal_database.opened() as journal:
        assert problems(journal, one.warehouse) == []
        found = events_in(journal, one.warehouse)
        assert events_of(one, acked(one)) <= set(found) <= events_of(one, everyone)
        for parsed in requests(one):
            appended(journal, parsed, one.warehouse)
        assert problems(journal, one.warehouse) == []
        assert sorted(events_in(journal, one.warehouse)) == sorted(events_of(one, everyone))


def crash_everywhere(journal_database: JournalDatabase, folder: Path, bug: str = "") -> list[str]:
    for passes in range(1, POINTS_MAX):
        one = trial(folder, passes=passes, bug=bug)
        died = run(journal_database, one)
        require_sound(journal_database, one)
        if not died:
            assert acked(one) == set(range(one.requests))
            return one.trace.read_text().split()
    raise AssertionError(f"more than {POINTS_MAX} failpoints")


def test_a_crash_at_every_step(journal_database: JournalDatabase, tmp_path: Path) -> None:
    passed = crash_everywhere(journal_database, tmp_path)
    print(f"{len(passed)} crash points, then a clean run")
    assert set(passed) >= POINTS


@pytest.mark.parametrize("bug", BUGS)
def test_the_crashes_find_what_they_are_for(
    tmp_path: Path, postgres_journal: JournalDatabase, bug: str
) -> None:
    postgres_journal.clear()
    with pytest.raises(AssertionError):
        crash_everywhere(postgres_journal, tmp_path, bug)


def test_a_full_disk_is_never_answered_as_durable(tmp_path: Path) -> None:
    """Files may not grow beyond a limit; the limit rises until nothing fails."""
    refused = 0
    for file_bytes_max in range(76 * 1024, 600 * 1024, 8 * 1024):
        folder = tmp_path / str(file_bytes_max)
        folder.mkdir()
        journal_database = JournalDatabase.fresh(f"sqlite:///{folder}/journal.db")
        one = trial(folder, file_bytes_max=file_bytes_max)
        assert not run(journal_database, one)
        require_sound(journal_database, one)
        missing = one.requests - len(acked(one))
        refused += missing
        if not missing and refused:
            return
    raise AssertionError("no limit was large enough, or none too small")


def test_a_trim_that_is_killed_can_be_finished(journal_database: JournalDatabase, tmp_path: Path) -> None:
    """What has not landed is untouched, wherever it dies."""
    for passes in range(1, POINTS_MAX):
        one = trial(tmp_path, passes=passes)
        with journal_database.opened() as journal:
            for parsed in requests(one):
                appended(journal, parsed, one.warehouse)
            head = journal.head(one.warehouse)
            landed = {A: head, B: 2}
            left = [c.after for id_, c in everything(journal, one.warehouse) if id_ > landed[c.table]]
        died = run_trim(journal_database, one, landed)
        with journal_database.opened() as journal:
            found = [c.after for id_, c in everything(journal, one.warehouse) if id_ > landed[c.table]]
            assert found == left
            journal.trim(one.warehouse, landed)
            assert [c.after for _, c in everything(journal, one.warehouse)] == left
            waiting = journal.pending(one.warehouse)
            assert sum(w.events for w in waiting) == len(left)
        if not died:
            return
    raise AssertionError(f"more than {POINTS_MAX} failpoints")
