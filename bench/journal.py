"""How quickly changes become durable: the journal alone, without HTTP and without parsing.

    python -m bench.journal [--database postgres] [--seconds 5]

Each producer is a thread that sends a request, waits for its answer, and sends the next. `cpu` is what the
whole process burned for one event, producers included; it says how many events one core can take. The first
line is what a COMMIT of one small row costs on the same database at the same time.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from catalog.store.database import Database
from ingest.change import Change, ParsedRequest
from ingest.journal import schema
from ingest.journal.entries import advance_counter, lock_counter
from ingest.journal.journal import Journal
from ingest.settings import JournalLimits
from tests.harness.postgres import PostgresServer

TABLE = ("bench", "orders")
MIB = 2**20


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    producers: int
    events: int  # of one request
    numbered: bool = True


CASES = (
    Case("numbered, 1 x 1,000", 1, 1_000),
    Case("numbered, 8 x 1,000", 8, 1_000),
    Case("numbered, 1 x 10", 1, 10),
    Case("numbered, 8 x 10", 8, 10),
    Case("numbered, 8 x 1", 8, 1),
    Case("identified, 1 x 1,000", 1, 1_000, numbered=False),
    Case("identified, 8 x 10", 8, 10, numbered=False),
    Case("identified, 1 x 10,000", 1, 10_000, numbered=False),
)


def request(source: str, start: int, case: Case) -> ParsedRequest:
    """Rows of six columns, about 120 bytes each as JSON."""
    changes = [
        Change(
            index=place,
            table=TABLE,
            operation="insert",
            after={
                "id": start + place,
                "customer": f"customer {(start + place) * 7919 % 10_007}",
                "amount": (start + place) % 997 * 1.25,
                "status": ("new", "paid", "sent")[place % 3],
                "note": f"order {start + place} of {source}",
                "active": place % 2 == 0,
            },
            key=("id",),
            row_id=str(start + place),
            source=source,
            position=f"{start + place:016x}",
            identity="" if case.numbered else f"{source}:{start + place}",
            number=start + place if case.numbered else None,
            time_ms=1_763_280_000_000 + start + place,
        )
        for place in range(case.events)
    ]
    return ParsedRequest("native", case.events, changes)


def run(journal: Journal, case: Case, seconds: float) -> str:
    latencies: list[list[float]] = [[] for _ in range(case.producers)]
    made_s = [0.0] * case.producers  # making requests is not what is measured
    stop = time.monotonic() + seconds

    def produce(number: int) -> None:
        start = 0
        while time.monotonic() < stop:
            began_cpu = time.thread_time()
            parsed = request(f"{case.name}-{number}", start, case)
            made_s[number] += time.thread_time() - began_cpu
            start += case.events
            began = time.perf_counter()
            journal.submit("main", parsed).result()
            latencies[number].append(time.perf_counter() - began)

    threads = [threading.Thread(target=produce, args=(number,)) for number in range(case.producers)]
    began, began_cpu = time.perf_counter(), time.process_time()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took_s = time.perf_counter() - began
    cpu_s = time.process_time() - began_cpu - sum(made_s)
    all_ms = [one * 1e3 for each in latencies for one in each]
    events = len(all_ms) * case.events
    journal.trim("main", {TABLE: journal.head("main")})
    rate = f"{events / took_s:>10,.0f} events/s   cpu {cpu_s / events * 1e6:>6.2f} us/event"
    return shown(case.name, all_ms, rate)


def calibrate(database: Database) -> str:
    latencies = []
    database.write(lambda connection: lock_counter(connection, "calibration"))
    for _ in range(300):
        began = time.perf_counter()
        database.write(lambda connection: advance_counter(connection, "calibration", 1, 0, 0))
        latencies.append((time.perf_counter() - began) * 1e3)
    return shown("COMMIT of one row", latencies)


def shown(name: str, latencies_ms: list[float], rate: str = "") -> str:
    ordered = sorted(latencies_ms)
    p99 = ordered[int(len(ordered) * 0.99)]
    return f"{name:24} {rate:50} p50 {statistics.median(ordered):>7.2f} ms   p99 {p99:>7.2f} ms"


@contextlib.contextmanager
def opened(kind: str) -> Iterator[Database]:
    with contextlib.ExitStack() as stack:
        if kind == "postgres":
            database = Database(stack.enter_context(PostgresServer.started()).database())
        else:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            database = Database(f"sqlite:///{folder}/journal.db")
        schema.migrate(database)
        stack.callback(database.close)
        yield database


def main() -> None:
    arguments = argparse.ArgumentParser(description="Measure the journal.")
    arguments.add_argument("--database", choices=("sqlite", "postgres"), default="sqlite")
    arguments.add_argument("--seconds", type=float, default=5)
    given = arguments.parse_args()
    with opened(given.database) as database:
        journal = Journal(database, JournalLimits(bytes_max=2_048 * MIB))
        print(f"journal on {given.database}")
        for case in CASES:
            print(calibrate(database))
            print(run(journal, case, given.seconds), flush=True)
        journal.close()


if __name__ == "__main__":
    main()
