"""A producer that sends at a constant rate, and notes when each of its requests became visible.

It runs in a process of its own. Its main thread sends every `EVERY_S`; a thread beside it follows the tokens
of the answers with GET /lake/v1/main/landed. All events of a request carry the time of its sending as their
`marker`.
"""

from __future__ import annotations

import bisect
import queue
import threading
import time
from dataclasses import dataclass, field
from multiprocessing.connection import Connection as Pipe

from bench.catalog.client import Connection
from bench.ingest import events
from bench.ingest.pipeline import is_visible, posted

EVERY_S = 0.1
LAND_S = 300.0
SEED = 5


@dataclass(frozen=True, slots=True)
class Spec:
    port: int
    tables: tuple[str, ...]
    rate: int  # events in a second, over all tables
    keys: int  # rows that each table has already
    warm_up_s: float
    seconds: float
    source: str
    key_of: events.KeyOf = events.integer_key


@dataclass(frozen=True, slots=True)
class Request:
    sent_us: int  # by the clock of the machine; the marker of its events
    acknowledged_us: int
    token: str


@dataclass
class Told:
    """What the producer noted after the warm-up."""

    requests: list[Request] = field(default_factory=list)
    landed_us: dict[str, int] = field(default_factory=dict)  # by token
    events: int = 0
    seconds: float = 0.0


def produce(spec: Spec, to: Pipe) -> None:
    orders = [events.Orders(table, spec.keys, SEED, spec.key_of) for table in spec.tables]
    tokens: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    told = Told()
    watcher = threading.Thread(target=_follow, args=(spec.port, tokens, told.landed_us), daemon=True)
    watcher.start()
    each = max(1, round(spec.rate * EVERY_S / len(orders)))
    sequence = 1
    began = time.monotonic()
    with Connection(spec.port, {"X-Source-Id": spec.source}) as connection:
        for turn in range(round((spec.warm_up_s + spec.seconds) / EVERY_S)):
            time.sleep(max(0.0, began + turn * EVERY_S - time.monotonic()))
            sent_us = now_us()
            changes = []
            for one in orders:
                # The first is no delete, so that the marker is there to be seen.
                changes.append(one.update(sequence, sent_us))
                changes += [one.change(sequence + place, sent_us) for place in range(1, each)]
                sequence += each
            token = posted(connection, events.body(changes))
            if turn * EVERY_S >= spec.warm_up_s:
                told.requests.append(Request(sent_us, now_us(), token))
                told.events += len(changes)
                tokens.put(token)
    told.seconds = time.monotonic() - began - spec.warm_up_s
    tokens.put(None)
    watcher.join(LAND_S)
    to.send(told)


def _follow(port: int, tokens: queue.SimpleQueue[str | None], landed_us: dict[str, int]) -> None:
    """Until None comes and all before it are visible."""
    waiting: list[str] = []
    ended = False
    with Connection(port) as connection:
        while waiting or not ended:
            while not ended and (not waiting or not tokens.empty()):
                token = tokens.get()
                ended = token is None
                waiting += [] if token is None else [token]
            if not waiting or not is_visible(connection, waiting[0], wait_s=1):
                continue
            # Tokens rise, and one publish covers many: look for the last of them that is visible.
            count = bisect.bisect_left(waiting, 1, lo=1, key=lambda t: 0 if is_visible(connection, t) else 1)
            landed_us.update(dict.fromkeys(waiting[:count], now_us()))
            waiting = waiting[count:]


def now_us() -> int:
    return time.time_ns() // 1_000
