"""The rows of the comparison: what each does, at how many clients, and what Calve aims at.

`measure` gives a Sample: one row, one server, once.
"""

from __future__ import annotations

import resource
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from bench.catalog import appends, wrk
from bench.catalog.client import Answer
from bench.catalog.target import TABLES, Target
from bench.catalog.writers import Run


@dataclass(frozen=True, slots=True)
class Sample:
    operations: int
    seconds: float
    p50_ms: float
    p99_ms: float
    server_cpu_s: float
    client_cpu_s: float
    conflicts: int = 0
    unknown: int = 0
    lost: int = 0

    @property
    def rate(self) -> float:
        return self.operations / self.seconds

    @property
    def server_cpu_ms(self) -> float:
        """Processor time of the server for each operation."""
        return self.server_cpu_s * 1000 / self.operations


@dataclass(frozen=True, slots=True)
class Get:
    """A GET of what `path` says, answered as `check` wants it."""

    path: Callable[[Target], str]
    headers: Callable[[Target], dict[str, str]]
    check: Callable[[Answer], bool]

    def measure(self, target: Target, clients: int, seconds: int) -> Sample:
        headers = self.headers(target)
        expected = self._look(target, headers)
        cpu, own = target.server.cpu_s(), _children_cpu_s()
        done = wrk.load(
            f"{target.server.url}{self.path(target)}",
            expected,
            clients=clients,
            seconds=seconds,
            headers=headers,
        )
        cpu, own = target.server.cpu_s() - cpu, _children_cpu_s() - own
        return Sample(done.requests, done.seconds, done.p50_ms, done.p99_ms, cpu, own)

    def _look(self, target: Target, headers: dict[str, str]) -> Answer:
        answer = target.look(self.path(target), headers)
        assert self.check(answer), (answer.status, answer.body[:300])
        return answer


@dataclass(frozen=True, slots=True)
class Write:
    batch: appends.Batch

    def measure(self, target: Target, clients: int, seconds: int) -> Sample:
        batches = appends.repeat(self.batch, target, clients, seconds, {})
        run = batches.run
        p50_ms, p99_ms = _percentiles_ms(run)
        return Sample(
            operations=len(run.latencies_s),
            seconds=run.seconds,
            p50_ms=p50_ms,
            p99_ms=p99_ms,
            server_cpu_s=batches.cpu_s,
            client_cpu_s=run.client_cpu_s,
            conflicts=run.conflicts,
            unknown=run.unknown,
            lost=batches.lost,
        )


@dataclass(frozen=True, slots=True)
class Row:
    key: str
    title: str
    clients: tuple[int, ...]
    work: Get | Write
    # Times the reference server on the same kind of database, by that database and the number of clients.
    aims: Mapping[tuple[str, int], float] = field(default_factory=dict)
    p99_aim: float | None = None


def _is_ok(answer: Answer) -> bool:
    return answer.status == 200 and bool(answer.body)


def _is_table(answer: Answer) -> bool:
    return answer.status == 200 and "table-uuid" in answer.json()["metadata"]


def _is_list(answer: Answer) -> bool:
    return answer.status == 200 and len(answer.json()["identifiers"]) == TABLES


def _is_not_modified(answer: Answer) -> bool:
    return answer.status == 304


def _its_tag(target: Target) -> dict[str, str]:
    return {"If-None-Match": target.look(target.grown_path()).expect(200).headers["etag"]}


def _percentiles_ms(run: Run) -> tuple[float, float]:
    ranked = sorted(run.latencies_s)
    return statistics.median(ranked) * 1000, ranked[min(len(ranked) - 1, int(len(ranked) * 0.99))] * 1000


def _children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _aims(sqlite: tuple[float, ...], postgres: tuple[float, ...]) -> dict[tuple[str, int], float]:
    """For one and for eight clients; where only one figure is given it holds for both."""
    found = {}
    for database, given in (("sqlite", sqlite), ("postgres", postgres)):
        found[database, 1], found[database, 8] = given[0], given[-1]
    return found


ROWS = (
    Row(
        "load-fresh",
        "loadTable, fresh table",
        (1, 8),
        Get(Target.fresh_path, lambda _: {}, _is_table),
        _aims((2.3, 2.5), (1.6, 2.2)),
    ),
    Row(
        "load-grown",
        "loadTable, 1,000 snapshots",
        (1, 8),
        Get(Target.grown_path, lambda _: {}, _is_table),
        _aims((20,), (10,)),
    ),
    Row(
        "load-grown-gzip",
        "the same, gzip as Java asks for it",
        (1, 8),
        Get(Target.grown_path, lambda _: {"Accept-Encoding": "gzip"}, _is_ok),
    ),
    Row(
        "not-modified",
        "304 on it",
        (1, 8),
        Get(Target.grown_path, _its_tag, _is_not_modified),
        {("sqlite", 1): 15, ("sqlite", 8): 15},
    ),
    Row("list", "listTables, 1,000", (1, 8), Get(Target.list_path, lambda _: {}, _is_list)),
    Row("create-drop", "create + drop", (1, 8), Write(appends.create_and_drop), _aims((3,), (2,))),
    Row("commit", "commit, each writer its table", (1, 8), Write(appends.commits(25)), _aims((4,), (3,))),
    Row(
        "contended",
        "commit, all on one table",
        (8,),
        Write(appends.contended_commits(15)),
        _aims((3,), (3,)),
        0.25,
    ),
    Row("transaction", "transaction of 2 tables", (1, 8), Write(appends.transactions(15)), _aims((5,), (4,))),
)
