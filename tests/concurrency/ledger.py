"""What writers were told, compared with what the catalog says: the final check of every test with writers.

acked ⊆ table ⊆ sent; what was refused is absent; each snapshot once; a linear chain of parents; sequence
numbers rise by one; the history has each commit under one number, without gaps, in the order of the chain; a
commit that ended before another began stands before it; a transaction is in both of its tables or in neither;
every metadata file that the history names is there.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from catalog.storage.files import StorageFiles
from tests.concurrency.writers import Writers
from tests.harness.rest import Rest
from tests.harness.stacks import Stack
from tests.harness.storage_roots import s3_settings

JsonObject = dict[str, Any]


@dataclass
class Ledger:
    """What the writers sent, and what became of it."""

    sent: list[JsonObject] = field(default_factory=list)
    acked: list[JsonObject] = field(default_factory=list)
    refused: list[JsonObject] = field(default_factory=list)
    unknown: list[JsonObject] = field(default_factory=list)
    failed: list[JsonObject] = field(default_factory=list)
    answered: list[JsonObject] = field(default_factory=list)  # 5xx in an outage, each followed by another try
    load: list[JsonObject] = field(default_factory=list)  # loads that did not work

    @classmethod
    def of(cls, lines: Iterable[JsonObject]) -> Ledger:
        ledger = cls()
        for line in lines:
            getattr(ledger, line["what"]).append(line)
        return ledger

    @property
    def replayed(self) -> int:
        """Requests that were sent more than once."""
        return sum(line["tries"] > 1 for line in (*self.acked, *self.refused, *self.unknown))


def verified(stack: Stack, writers: Writers) -> dict[str, int]:
    """Raise AssertionError if anything is lost, doubled or out of order; else the figures."""
    ledger = Ledger.of(writers.lines())
    assert not ledger.failed, f"unexpected answers: {ledger.failed[:3]}"
    rest = Rest(stack.url)
    chains = {table: chain(rest.load(writers.namespace, table)["metadata"]) for table in writers.tables}
    _compare(ledger, chains)
    _require_real_time_order(ledger, chains[writers.table], writers.table)
    events = all_events(rest)
    for table, ids in chains.items():
        _compare_history(events, writers.namespace, table, ids)
    files = _require_files(stack, events)
    return {
        "acked": len(ledger.acked),
        "by transaction": sum(line["by_transaction"] for line in ledger.acked),
        "refused": len(ledger.refused),
        "replayed": ledger.replayed,
        "unknown": len(ledger.unknown),
        "numbers": len(events),
        "files": files,
    }


def chain(metadata: JsonObject) -> list[int]:
    """The snapshot ids from the first to the current one. They must be all there are, in a row."""
    snapshots = {snapshot["snapshot-id"]: snapshot for snapshot in metadata["snapshots"]}
    assert len(snapshots) == len(metadata["snapshots"]), "a snapshot is there twice"
    ids: list[int] = []
    at = metadata.get("current-snapshot-id")
    while at not in (None, -1):
        assert at in snapshots, f"the chain leads to {at}, which is not there"
        assert at not in ids[-1:], "the chain turns in a circle"
        ids.append(at)
        at = snapshots[at].get("parent-snapshot-id")
    assert len(ids) == len(snapshots), f"{len(snapshots) - len(ids)} snapshots are not in the chain"
    ids.reverse()
    numbers = [snapshots[id_]["sequence-number"] for id_ in ids]
    assert numbers == list(range(1, len(ids) + 1)), "sequence numbers do not rise by one"
    logged = [entry["snapshot-id"] for entry in metadata.get("snapshot-log") or []]
    assert logged == ids, "the snapshot log is not the chain"
    return ids


def _compare(ledger: Ledger, chains: dict[str, list[int]]) -> None:
    there = {(table, id_) for table, ids in chains.items() for id_ in ids}
    sent = {pair for line in ledger.sent for pair in line["ids"].items()}
    acked = [pair for line in ledger.acked for pair in line["ids"].items()]
    refused = {pair for line in ledger.refused for pair in line["ids"].items()}
    lost = set(acked) - there
    assert not lost, f"{len(lost)} acknowledged snapshots are lost: {sorted(lost)[:3]}"
    assert len(set(acked)) == len(acked), "a snapshot was acknowledged twice"
    assert not there - sent, "a snapshot is there that nobody sent"
    wrong = refused & there
    told = [line for line in ledger.refused if wrong & set(line["ids"].items())]
    assert not wrong, f"{len(wrong)} refused snapshots are there: {told[:3]}"
    for line in ledger.sent:
        found = {pair in there for pair in line["ids"].items()}
        assert len(found) == 1, f"half of a transaction is there: {line}"


def _require_real_time_order(ledger: Ledger, ids: list[int], table: str) -> None:
    """A commit that was answered before another was sent comes before it in the chain."""
    index_of = {id_: index for index, id_ in enumerate(ids)}
    ended = sorted((line["ended_s"], index_of[line["ids"][table]]) for line in ledger.acked)
    highest: list[int] = []
    for _, at in ended:
        highest.append(max(at, highest[-1]) if highest else at)
    times = [time_s for time_s, _ in ended]
    for line in ledger.acked:
        before = bisect.bisect_left(times, line["began_s"])
        if before:
            assert highest[before - 1] < index_of[line["ids"][table]], f"out of order: {line}"


def all_events(rest: Rest) -> list[JsonObject]:
    """The whole history of `main`; its numbers must begin at 1 and have no gaps."""
    events: list[JsonObject] = []
    while True:
        after = events[-1]["number"] if events else 0
        answer = rest.lake("GET", "main/events", params={"after": after, "limit": 1000}).json()
        events += answer["events"]
        if not answer["events"]:
            break
    assert [event["number"] for event in events] == list(range(1, len(events) + 1)), "the numbers have a gap"
    assert answer["head"] == len(events)
    times = [event["time-ms"] for event in events]
    assert times == sorted(times), "time runs backwards in the history"
    return events


def _compare_history(events: list[JsonObject], namespace: str, table: str, ids: list[int]) -> None:
    changes = [
        change
        for event in events
        for change in event["changes"]
        if (change["namespace"], change["name"]) == ([namespace], table)
    ]
    added = [id_ for change in changes for id_ in change["detail"].get("added-snapshots", [])]
    assert added == ids, f"the history of {table} is not its chain"
    versions = [change["version"] for change in changes]
    assert versions == list(range(versions[0], versions[0] + len(versions))), "versions have a gap"
    places = [change["metadata-location"] for change in changes]
    assert len(set(places)) == len(places), "two versions share a metadata file"


def _require_files(stack: Stack, events: list[JsonObject]) -> int:
    """Every metadata file that the history names is there."""
    files = StorageFiles(s3_settings(stack.s3)) if stack.s3 else StorageFiles()
    named = {
        change["metadata-location"]
        for event in events
        for change in event["changes"]
        if change["metadata-location"] is not None
    }
    missing = [location for location in named if not files.exists(location)]
    assert not missing, f"{len(missing)} metadata files are missing: {missing[:3]}"
    return len(named)
