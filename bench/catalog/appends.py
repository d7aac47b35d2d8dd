"""Writing rows: batches of the same requests on tables of the same size, repeated until they took long enough.

A batch begins with fresh tables, because a commit costs more the more snapshots a table has: a server that is faster
must not be measured on larger tables. Making them, and looking afterwards whether everything that was answered is
really there, is not in the time.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bench.catalog.client import Answer, WrongAnswer
from bench.catalog.operations import Table, commit_body, create_body, transaction_body
from bench.catalog.target import NAMESPACE, Target
from bench.catalog.writers import Job, Run, Writer, in_parallel

# A row's batches together may take this many times longer than asked, preparation included.
PATIENCE = 8


@dataclass
class Batches:
    run: Run
    cpu_s: float = 0.0
    lost: int = 0  # answered with success, and not there afterwards
    count: int = 0


Headers = dict[str, str]
Batch = Callable[[Target, int, Headers, Batches], None]


def repeat(batch: Batch, target: Target, clients: int, seconds: float, headers: Headers) -> Batches:
    batches = Batches(Run())
    began = time.monotonic()
    while batches.run.seconds < seconds and time.monotonic() - began < PATIENCE * max(seconds, 1.0):
        batch(target, clients, headers, batches)
        batches.count += 1
    if target.strict and batches.lost:
        raise WrongAnswer(f"{batches.lost} commits were answered with success and are lost")
    return batches


def create_and_drop(target: Target, clients: int, headers: Headers, batches: Batches) -> None:
    def job(writer: Writer) -> None:
        for _ in range(10):
            began = time.perf_counter()
            name = target.new_name()
            create = lambda: writer.send("POST", target.api.tables(NAMESPACE), create_body(name))  # noqa: E731, B023
            drop = lambda: writer.send("DELETE", target.api.table(NAMESPACE, name))  # noqa: E731, B023
            _until(target, writer, create, {200, 409}, {200})
            _until(target, writer, drop, {204, 404}, {204})
            writer.done(began)

    _timed(target, [job] * clients, headers, batches)


def commits(per_writer: int) -> Batch:
    """Each writer on a table of its own."""

    def batch(target: Target, clients: int, headers: Headers, batches: Batches) -> None:
        tables = target.new_tables(clients)
        landed: dict[str, list[int]] = {table.name: [] for table in tables}

        def writing(table: Table) -> Job:
            return lambda writer: _append(target, writer, table, landed[table.name], per_writer)

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
            return lambda writer: _append(target, writer, view, mine, per_writer)

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
            return lambda writer: _append_to_both(target, writer, pair, landed, per_writer)

        _timed(target, [writing(pair) for pair in pairs], headers, batches)
        batches.lost += sum(_lost(target, table, landed[table.name]) for table in tables)
        target.drop(tables)

    return batch


def _timed(target: Target, jobs: list[Job], headers: Headers, batches: Batches) -> None:
    cpu = target.server.cpu_s()
    batches.run.add(in_parallel(target.port, jobs, headers))
    batches.cpu_s += target.server.cpu_s() - cpu


def _append(target: Target, writer: Writer, table: Table, landed: list[int], count: int) -> None:
    path = target.api.table(table.namespace, table.name)
    for _ in range(count):
        began = time.perf_counter()
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
    target: Target, writer: Writer, pair: list[Table], landed: dict[str, list[int]], count: int
) -> None:
    path = f"{target.api.root}/transactions/commit"
    for _ in range(count):
        began = time.perf_counter()
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
    target: Target, writer: Writer, send: Callable[[], Answer], good_after_doubt: set[int], good: set[int]
) -> None:
    """Once an answer left open what happened, the request may find its own work done."""
    answer = send()
    while answer.status not in good:
        _note(target, writer, answer)
        answer = send()
        if answer.status in good_after_doubt:
            return


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
