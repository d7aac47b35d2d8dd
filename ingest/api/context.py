"""What all routes of ingest share, one for each server process: the journal, the landing status, access
checks, threads and metrics.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from catalog.errors import CatalogError, CommitStateUnknown, Invalid, Unavailable
from catalog.identity.base import Identity
from catalog.services.catalog import Catalog
from catalog.shutdown import stopping
from ingest import formats
from ingest.api.access import Access
from ingest.api.metrics import IngestMetrics
from ingest.api.ports import Landing, Subscriptions
from ingest.api.responses import RequestSummary
from ingest.api.settings import ApiSettings
from ingest.api.sources import Sources
from ingest.api.visibility import VisibilityWaiter
from ingest.api.websocket_limits import Connections
from ingest.change import Context, Parsed
from ingest.journal.errors import JournalFull
from ingest.journal.journal import Journal
from ingest.journal.receipts import Fill, Receipt

log = logging.getLogger(__name__)

T = TypeVar("T")

FAILURES_UNTIL_OPEN = 5
PARSE_WAIT_S = 0.01
USAGE_WAIT_S_MAX = 0.2


class TooBusy(Unavailable):
    """Nothing of the request was stored."""

    status = 429
    type = "TooManyRequestsException"


@dataclass(frozen=True, slots=True)
class PendingAppend:
    """A request that the journal has been given. It is durable when `receipt` is done."""

    warehouse: str
    summary: RequestSummary
    receipt: Future[Receipt]


class ApiContext:
    """Create it in the process that serves: it has threads."""

    def __init__(
        self,
        journal: Journal,
        landing: Landing,
        identity: Identity,
        catalog: Catalog,
        settings: ApiSettings,
    ) -> None:
        self.journal = journal
        self.landing = landing
        self.catalog = catalog
        self.settings = settings
        self.access = Access(identity, catalog, settings)
        self.metrics = IngestMetrics()
        # Two pools: changes are accepted while many queries wait for a database that does not answer.
        self.parse_threads = ThreadPoolExecutor(settings.parse_threads_max, thread_name_prefix="parse")
        self.query_threads = ThreadPoolExecutor(settings.query_threads_max, thread_name_prefix="query")
        self.visibility = VisibilityWaiter(landing, self.query_threads, settings.visibility_poll_ms)
        self.sources = Sources(settings.sources_remembered_max)
        self.connections = Connections(settings)
        self.subscriptions: Subscriptions | None = None  # None: /ws is for producers only
        self.last_usage = Fill(0, 0, 1, 0.0)  # of the journal's buffer, as of the last append or look
        self.failures = 0  # requests in a row that the journal could not store
        self._parsing_bytes = 0  # of bodies that wait for a thread, or are being parsed
        self._stopped = False

    # -- start and stop

    @property
    def is_stopping(self) -> bool:
        """Whether to begin nothing new; requests under way are finished."""
        return self._stopped or stopping.is_set()

    def stop(self) -> None:
        """Accept no more batches; those under way are finished and answered. Safe from any thread."""
        self._stopped = True

    def close(self) -> None:
        """End the threads, after the last response."""
        self.parse_threads.shutdown(wait=True)
        self.query_threads.shutdown(wait=True)

    def require_running(self) -> None:
        if self._stopped:
            raise Unavailable("the server is stopping: send the request again in a moment", retry_after_s=1)

    # -- threads

    async def run_parse(self, size: int, work: Callable[[], T], *, patient: bool = False) -> T:
        """Run `work`, which parses a body of `size` bytes.

        When more than `parsing_bytes_max` are being parsed, it waits (`patient`) or raises TooBusy: a parsed
        body takes many times its size.
        """
        # SQLite answers faster than a thread can be reached and come back; a database server may hang.
        if size <= self.settings.inline_bytes_max and self.catalog.database.is_sqlite:
            return work()
        while self._parsing_bytes and self._parsing_bytes + size > self.settings.parsing_bytes_max:
            if not patient:
                raise TooBusy("too many bytes are being parsed: send the request again later")
            await asyncio.sleep(PARSE_WAIT_S)
        self._parsing_bytes += size
        try:
            return await asyncio.get_running_loop().run_in_executor(self.parse_threads, work)
        finally:
            self._parsing_bytes -= size

    async def run_query(self, work: Callable[[], T]) -> T:
        """Run `work`, which queries a database, in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self.query_threads, work)

    # -- from bytes to the journal

    def parse(self, body: bytes, context: Context) -> Parsed:
        """Invalid if there is no event in the body."""
        if not body:
            # Some HTTP servers lose bodies. A success would then hide the loss.
            raise Invalid("The body is empty: send at least one event")
        parsed = formats.read(body, context)
        if parsed.events == 0:
            raise Invalid("There is no event in the body: send at least one")
        return parsed

    def append(self, warehouse: str, parsed: Parsed, priority: int) -> PendingAppend:
        """Give the changes to the journal. Returns before they are durable: await `committed`.

        A client that goes away, or a task that is cancelled, does not undo the append.
        """
        receipt = self.journal.submit(warehouse, parsed, priority=priority)
        self.buffer_usage()
        return PendingAppend(warehouse, RequestSummary.of(parsed), receipt)

    def buffer_usage(self) -> Fill:
        """How full the journal is. May query its database."""
        self.last_usage = self.journal.fill()
        return self.last_usage

    # -- failures and figures

    def note_failure(self, error: CatalogError) -> None:
        """Count errors that show that the database is in trouble; a full journal is none."""
        in_trouble = isinstance(error, Unavailable | CommitStateUnknown)
        if in_trouble and not isinstance(error, JournalFull | TooBusy):
            self.failures += 1

    @property
    def circuit(self) -> str:
        """The word that clients know: `open` while the database of the journal stores nothing."""
        return "open" if self.failures >= FAILURES_UNTIL_OPEN else "closed"

    def render_metrics(self, render: Callable[[], bytes]) -> bytes:
        """The text of /metrics, with the figures that all server processes share."""
        try:
            usage = self.query_threads.submit(self.buffer_usage).result(USAGE_WAIT_S_MAX)
        except (CatalogError, TimeoutError):
            usage = self.last_usage  # the database does not answer
        self.metrics.buffer_usage(usage)
        return render()


async def committed(receipt: Future[Receipt]) -> Receipt:
    """The receipt after COMMIT; raises what the journal raises.

    Unlike asyncio.wrap_future, a cancelled wait does not cancel the journal's future.
    """
    if receipt.done():
        return receipt.result()
    loop = asyncio.get_running_loop()
    waiter: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not waiter.done():
            waiter.set_result(None)

    receipt.add_done_callback(lambda _: loop.call_soon_threadsafe(wake))
    await waiter
    return receipt.result()


def now_ms() -> int:
    return time.time_ns() // 1_000_000
