"""Writing rows: batches of the same requests on fresh tables, repeated until they took long enough.

The more snapshots a table has, the more a commit costs: a faster server must not be measured on larger
tables. Hence a batch has a fixed number of commits, and ends early only where a server is very slow. Making
the tables, and looking afterwards whether all that was answered is really there, is not in the time.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from bench.catalog.client import Answer, WrongAnswer
from bench.catalog.operations import Table, commit_body, create_body, transaction_body
from bench.catalog.target import NAMESPACE, Target
from bench.catalog.writers import Job, Run, Writer, in_parallel

# A batch is cut short when it takes this many times longer than the row was given.
PATIENCE = 2.0


@dataclass
class Batches:
    """What the batches of one measurement amount to."""

    run: Run
    limit_s: float
    cpu_s: float = 0.0
    lost: int = 0  # answered with success, and not there afterwards


Headers = dict[str, str]
Turns = Callable[[], Iterator[float]]
Batch = Callable[[Target, int, Headers, Batches], None]


def repeat(batch: Batch, target: Target, clients: int, seconds: float, headers: Headers) -> Batches:
    batches = Batches(Run(), limit_s=PATIENCE * seconds)
    while batches.run.seconds < seconds:
        batch(target, clients, headers, batches)
    if target.strict and batches.lost:
        raise WrongAnswer(f"{batches.lost} commits were answered with success and are lost")
    return batches


def create_and_drop(target: Target, clients: int, headers: Headers, batches: Batches) -> None:
    def job(writer: Writer) -> None:
        for began in _turns(10, batches.limit_s):
            name = target.new_name()
            create = partial(writer.send, "POST", target.api.tables(NAMESPACE), create_body(name))
            drop = partial(writer.send, "DELETE", target.api.table(NAMESPACE, name))
            _until(target, writer, create, good=200, after_doubt=409)
            _until(target, writer, drop, good=204, after_doubt=404)
            writer.done(began)

    _timed(target, [job] * clients, headers, batches)


def commits(per_writer: int) -> Batch:
    """Each writer on a table of its own."""

    def batch(target: Target, clients: int, headers: Headers, batches: Batches) -> None:
        tables = target.new_tables(clients)
        landed: dict[str, list[int]] = {table.name: [] for table in tables}

        def writing(table: Table) -> Job:
            turns = partial(_turns, per_writer, batches.limit_s)
            return lambda writer: _append(target, writer, table, landed[table.name], turns)

        _timed(target, [writing(table) for table in tables], headers, batches)
        batches.lost += sum(_lost(target, table, landed[table.name]) for table in tables)
        target.drop(tables)

    return batch


def contended_commits(per_writer: int) -> Batch:
    """All writers on one table; who loses reads the table again and tries at once, until it lands."""

    def batch(target: Target, clients: int, headers: Headers, batches: Batches) -> None:
        [table] = target.new_tables(1)
        landed: list[list[int]] = [[] for _ in range(clients)]

        def writing(mine: list[int]) -> Job:
            view = Table(table.namespace, table.name, _metadata(target, table))
            turns = partial(_turns, per_writer, batches.limit_s)
            return lambda writer: _append(target, writer, view, mine, turns)

        _timed(target, [writing(mine) for mine in landed], headers, batches)
        batches.lost += _lost(target, table, [one for mine in landed for one in mine])
        target.drop([table])

    return batch


def transactions(per_writer: int) -> Batch:
    """Each writer on two tables of its own, changed together."""

    def batch(target: Target, clients: int, headers: Headers, batches: Batches) -> None:
        tables = target.new_tables(2 * clients)
        pairs = [tables[index : index + 2] for index in range(0, len(tables), 2)]
        landed: dict[str, list[int]] = {table.name: [] for table in tables}

        def writing(pair: list[Table]) -> Job:
            turns = partial(_turns, per_writer, batches.limit_s)
            return lambda writer: _append_to_both(target, writer, pair, landed, turns)

        _timed(target, [writing(pair) for pair in pairs], headers, batches)
        batches.lost += sum(_lost(target, table, landed[table.name]) for table in tables)
        target.drop(tables)

    return batch


def _turns(count: int, limit_s: float) -> Iterator[float]:
    """The moment at which each turn begins; at least one turn."""
    first = time.perf_counter()
    for number in range(count):
        began = time.perf_counter()
        if number and began - first > limit_s:
            return
        yield began


def _timed(target: Target, jobs: list[Job], headers: Headers, batches: Batches) -> None:
    cpu = target.server.cpu_s()
    batches.run.add(in_parallel(target.port, jobs, headers))
    batches.cpu_s += target.server.cpu_s() - cpu


def _append(target: Target, writer: Writer, table: Table, landed: list[int], turns: Turns) -> None:
    path = target.api.table(table.namespace, table.name)
    for began in turns():
        while True:
            snapshot_id = _new_id()
            answer = writer.send("POST", path, commit_body(table, snapshot_id))
            if answer.status == 200:
                answer.expect(200, b'"snapshot-id":%d' % snapshot_id)
                table.landed(snapshot_id)
                break
            _note(target, writer, answer)
            metadata = writer.send("GET", f"{path}?snapshots=all").expect(200).json()["metadata"]
            table.refreshed(metadata)
            if answer.status != 409 and _has(metadata, snapshot_id):
                break
        landed.append(snapshot_id)
        writer.done(began)


def _append_to_both(
    target: Target, writer: Writer, pair: list[Table], landed: dict[str, list[int]], turns: Turns
) -> None:
    path = f"{target.api.root}/transactions/commit"
    for began in turns():
        while True:
            snapshot_ids = [_new_id(), _new_id()]
            answer = writer.send("POST", path, transaction_body(pair, snapshot_ids))
            if answer.status == 204:
                break
            _note(target, writer, answer)
            for table in pair:
                table.refreshed(_metadata(target, table))
        for table, snapshot_id in zip(pair, snapshot_ids, strict=True):
            table.landed(snapshot_id)
            landed[table.name].append(snapshot_id)
        writer.done(began)


def _until(
    target: Target, writer: Writer, send: Callable[[], Answer], *, good: int, after_doubt: int
) -> None:
    """Send until it is done; once an answer left open what happened, a request may find its own work done."""
    answer = send()
    if answer.status == after_doubt:
        raise WrongAnswer(f"{answer.status}: {answer.body[:600]!r}")
    while answer.status not in (good, after_doubt):
        _note(target, writer, answer)
        answer = send()


def _note(target: Target, writer: Writer, answer: Answer) -> None:
    if answer.status == 409:
        writer.conflicts += 1
    elif target.strict:
        raise WrongAnswer(f"{answer.status}: {answer.body[:600]!r}")
    else:
        writer.unknown += 1


def _lost(target: Target, table: Table, landed: list[int]) -> int:
    there = {one["snapshot-id"] for one in _metadata(target, table)["snapshots"]}
    return len(set(landed) - there)


def _metadata(target: Target, table: Table) -> dict[str, Any]:
    path = f"{target.api.table(table.namespace, table.name)}?snapshots=all"
    metadata: dict[str, Any] = target.look(path).expect(200).json()["metadata"]
    return metadata


def _has(metadata: dict[str, Any], snapshot_id: int) -> bool:
    return any(one["snapshot-id"] == snapshot_id for one in metadata["snapshots"])


def _new_id() -> int:
    return random.randrange(1, 2**62)
