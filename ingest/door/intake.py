"""From bytes to the journal: what HTTP and WebSocket share.

`take` reads a body and hands its changes to the journal. It returns before they are durable; `committed`
waits for that. Nothing here answers a producer, and whoever does must have awaited `committed`. A client that
goes away, or a task that is cancelled, does not take its changes back: the journal finishes what it was
given.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from dataclasses import dataclass

from catalog.errors import Invalid
from ingest import formats
from ingest.change import Context, Parsed
from ingest.door.answers import Summary
from ingest.journal.journal import Journal
from ingest.journal.receipts import Fill, Receipt


@dataclass(frozen=True, slots=True)
class Taken:
    """A batch on its way into the journal."""

    warehouse: str
    summary: Summary
    future: Future[Receipt]


class Intake:
    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.fill = Fill(0, 0, 1, 0.0)  # how full the journal was when it was last looked at

    def take(self, warehouse: str, body: bytes, context: Context, priority: int) -> Taken:
        """Read a body and submit it. Invalid if it holds nothing or cannot be read at all; JournalFull,
        Unavailable.
        """
        return self.submit(warehouse, self.read(body, context), priority)

    def read(self, body: bytes, context: Context) -> Parsed:
        if not body:
            # Some servers mislay bodies; success would then mean a loss that nobody notices.
            raise Invalid("The body is empty: send at least one event")
        parsed = formats.read(body, context)
        if parsed.events == 0:
            raise Invalid("There is no event in the body: send at least one")
        return parsed

    def submit(self, warehouse: str, parsed: Parsed, priority: int) -> Taken:
        future = self._journal.submit(warehouse, parsed, priority=priority)
        self.look()
        return Taken(warehouse, Summary.of(parsed), future)

    def look(self) -> Fill:
        """How full the journal is. May ask its database."""
        self.fill = self._journal.fill()
        return self.fill


async def committed(future: Future[Receipt]) -> Receipt:
    """The receipt, once COMMIT is through; raises what the journal raises.

    Unlike asyncio.wrap_future, a cancelled wait leaves the journal's future alone.
    """
    if future.done():
        return future.result()
    loop = asyncio.get_running_loop()
    waiter: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not waiter.done():
            waiter.set_result(None)

    future.add_done_callback(lambda _: loop.call_soon_threadsafe(wake))
    await waiter
    return future.result()
