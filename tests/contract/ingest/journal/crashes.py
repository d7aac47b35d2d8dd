"""A child process that appends and dies at the k-th failpoint it passes; k rises until one ends by itself.

The child writes down each answer it got. It is forked by a server of `multiprocessing` that has everything
imported, which makes a trial a matter of milliseconds.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import signal
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

from catalog import faults
from catalog.errors import CatalogError
from ingest.change import Change, ParsedRequest, TableName, TransactionEnd
from ingest.journal.encoded_request import EncodedRequest
from ingest.journal.group_commit import GroupCommit
from ingest.journal.journal import Journal
from ingest.journal.receipts import AppendReceipt
from ingest.journal.sources import _INSERT_DIGESTS, GroupDigests
from tests.contract.ingest.journal.journal_setup import A, B, JournalDatabase

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload([__name__])
EVENTS = 6


@dataclass(frozen=True, slots=True)
class Trial:
    """`passes`: die there. `file_bytes_max`: no file may grow larger. `bug`: a deliberate mistake."""

    warehouse: str
    acks: Path
    trace: Path
    passes: int = 10**9
    file_bytes_max: int | None = None
    bug: str = ""
    requests: int = 3


def requests(trial: Trial) -> list[ParsedRequest]:
    """Numbered, identified and plain changes, rejects, a source transaction over several requests."""
    return [_request(number) for number in range(trial.requests)]


def _request(number: int) -> ParsedRequest:
    changes = []
    for place in range(EVENTS):
        event = number * EVENTS + place
        is_counted = place % 2 == 0
        changes.append(
            Change(
                place,
                (A, B)[place % 3 % 2],
                "insert",
                after={"event": event, "text": f"{event * 7919}" * 20},
                source="counts" if is_counted else "names",
                number=event // 2 if is_counted else None,
                identity="" if is_counted else f"e{event}",
                transaction=f"{number // 2}",
            )
        )
    return ParsedRequest("any", EVENTS, changes, ends=[TransactionEnd(EVENTS, "counts", f"{number // 2}", 6)])


def run(journal_database: JournalDatabase, trial: Trial) -> bool:
    """True if the child died of the failpoint, False if it ended by itself."""
    child = _context.Process(target=_child, args=(journal_database, trial))
    child.start()
    child.join(120)
    assert child.exitcode in (0, -signal.SIGKILL), f"the child ended with {child.exitcode}: {trial}"
    return child.exitcode != 0


def run_trim(journal_database: JournalDatabase, trial: Trial, landed: Mapping[TableName, int]) -> bool:
    child = _context.Process(target=_trimming_child, args=(journal_database, trial, landed))
    child.start()
    child.join(120)
    assert child.exitcode in (0, -signal.SIGKILL), f"the child ended with {child.exitcode}: {trial}"
    return child.exitcode != 0


def _trimming_child(journal_database: JournalDatabase, trial: Trial, landed: Mapping[TableName, int]) -> None:
    with journal_database.opened() as journal:
        faults.reach = faults.armed(f"*=kill:{trial.passes}")
        journal.trim(trial.warehouse, landed)


def acked(trial: Trial) -> set[int]:
    """The requests that were answered."""
    return {int(line) for line in trial.acks.read_text().split()} if trial.acks.exists() else set()


def _child(journal_database: JournalDatabase, trial: Trial) -> None:
    if trial.bug:
        BUGS[trial.bug]()
    kill = faults.armed(f"*=kill:{trial.passes}")
    trace = os.open(trial.trace, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    acks = os.open(trial.acks, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def reach(name: str) -> None:
        os.write(trace, name.encode() + b"\n")
        kill(name)

    with journal_database.opened() as journal:
        faults.reach = reach
        if trial.file_bytes_max is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (trial.file_bytes_max, resource.RLIM_INFINITY))
        _append(journal, trial, lambda number: os.write(acks, f"{number}\n".encode()))


def _append(journal: Journal, trial: Trial, answered: Callable[[int], object]) -> None:
    """The first alone, the others two at a time, so that some share a commit."""
    sent = requests(trial)
    for group in _pairs(sent):
        futures: list[tuple[int, Future[AppendReceipt]]] = []
        with journal._group_commit._condition:
            for number in group:
                try:
                    futures.append((number, journal.submit(trial.warehouse, sent[number])))
                except CatalogError:
                    continue
        for number, future in futures:
            try:
                future.result(timeout=60)
            except CatalogError:
                continue
            answered(number)


def _pairs(sent: list[ParsedRequest]) -> Iterator[list[int]]:
    yield [0]
    for first in range(1, len(sent), 2):
        yield list(range(first, min(first + 2, len(sent))))


# -- deliberate mistakes: a test that does not notice them proves nothing


def _answer_before_commit() -> None:
    commit = GroupCommit._commit

    def early(self: GroupCommit, group: list[tuple[EncodedRequest, Future[AppendReceipt]]]) -> None:
        for _, future in group:
            future.set_result(AppendReceipt(1, 1, frozenset(), (), 1))
        import time

        time.sleep(0.01)  # so that the one who waits writes it down
        commit(self, [(encoded, Future()) for encoded, _ in group])

    setattr(GroupCommit, "_commit", early)  # noqa: B010


def _marks_in_their_own_transaction() -> None:

    def store(self: GroupDigests, journal_id: int, expires_ms: int) -> None:
        row = {
            "warehouse": self._warehouse,
            "id": journal_id,
            "expires_ms": expires_ms,
            "marks": b"".join(self._new),
        }
        with self._connection.engine.connect() as apart:
            apart.execute(_INSERT_DIGESTS, row)
            apart.commit()

    setattr(GroupDigests, "store", store)  # noqa: B010


BUGS: dict[str, Callable[[], None]] = {
    "answer before commit": _answer_before_commit,
    "marks in their own transaction": _marks_in_their_own_transaction,
}
