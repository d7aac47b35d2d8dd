"""DuckDB as the engine that waits: a process that looks, over and over, for the newest marker in each mirror.

It asks only for markers that are newer than the last, so Iceberg's statistics keep it from reading old files:
it must not take the processor from what is measured.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from multiprocessing.connection import Connection as Pipe
from multiprocessing.synchronize import Event

LOOK_EVERY_S = 0.1

Seen = list[tuple[int, int]]  # when, and up to which marker every table was visible


def read(url: str, tables: Sequence[str], stop: Event, to: Pipe) -> None:
    from tests.clients.duckdb_client import connected

    duck = connected()
    duck.execute("SET threads=1")
    duck.execute(f"ATTACH 'main' AS lake (TYPE iceberg, ENDPOINT '{url}', AUTHORIZATION_TYPE 'none')")
    newest = dict.fromkeys(tables, 0)
    seen: Seen = []
    looks = 0
    to.send(None)  # it has begun
    while not stop.is_set():
        began = time.monotonic()
        for table in tables:
            query = f"SELECT max(marker) FROM lake.{table} WHERE marker > {newest[table]}"
            [[found]] = duck.execute(query).fetchall()
            newest[table] = found or newest[table]
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
