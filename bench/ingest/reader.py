"""DuckDB as the engine that waits: a process that looks, over and over, for the newest marker in each mirror.

One query reads all mirrors, so a look at ten tables is one look. It asks only for markers that are newer than
the last, so Iceberg's statistics keep it from reading old files: it must not take the processor from what is
measured.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection as Pipe
from multiprocessing.synchronize import Event

from bench.ingest import processes
from tests.harness.s3 import S3Access

LOOK_EVERY_S = 0.1

Seen = list[tuple[int, int]]  # when, and up to which marker every table was visible


@contextlib.contextmanager
def looking(url: str, s3: S3Access | None, tables: Sequence[str]) -> Iterator[Callable[[], tuple[Seen, int]]]:
    """A reader that has begun. The function stops it after a last look: what it saw, and its looks."""
    context = multiprocessing.get_context("spawn")
    stop, (ours, its) = context.Event(), context.Pipe()
    child = context.Process(target=_read, args=(url, s3, list(tables), stop, its), daemon=True)

    def stopped() -> tuple[Seen, int]:
        time.sleep(2 * LOOK_EVERY_S + 1)
        stop.set()
        found: tuple[Seen, int] = processes.heard(ours, child)
        return found

    with processes.ended(child):
        child.start()
        processes.heard(ours, child)
        yield stopped


def _read(url: str, s3: S3Access | None, tables: Sequence[str], stop: Event, to: Pipe) -> None:
    from tests.clients.duckdb_client import attach, connected

    duck = connected()
    duck.execute("SET threads=1")
    attach(duck, url, s3)
    newest = dict.fromkeys(tables, 0)
    seen: Seen = []
    looks = 0
    to.send(None)  # it has begun
    while not stop.is_set():
        began = time.monotonic()
        query = " UNION ALL ".join(
            f"SELECT '{table}', max(marker) FROM lake.{table} WHERE marker > {newest[table]}"
            for table in tables
        )
        found = duck.execute(query).fetchall()
        newest.update((table, marker) for table, marker in found if marker is not None)
        looks += 1
        whole = min(newest.values())
        if not seen or whole > seen[-1][1]:
            seen.append((time.time_ns() // 1_000, whole))
        stop.wait(max(0.0, LOOK_EVERY_S - (time.monotonic() - began)))
    duck.close()
    to.send((seen, looks))


def first_seen_us(seen: Seen, markers: Sequence[int]) -> list[int | None]:
    """When each of the markers, which rise, was first visible."""
    found: list[int | None] = []
    place = 0
    for marker in markers:
        while place < len(seen) and seen[place][1] < marker:
            place += 1
        found.append(seen[place][0] if place < len(seen) else None)
    return found
