"""The objects that all ingest routes share in one server process: journal, landing status, access, threads,
metrics.

Access is checked for every request and every batch, so a revoked token is refused at once. A warehouse in
which the caller has no role is reported as not existing. A dropped warehouse accepts changes for up to
`PRESENT_S` more. A producer may sign its bodies instead of sending a token (Standard Webhooks).
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import logging
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Annotated, TypeVar

from fastapi import Depends
from starlette.requests import HTTPConnection

from catalog.errors import (
    CatalogError,
    CommitStateUnknown,
    Forbidden,
    Invalid,
    NoSuchWarehouse,
    NotAuthorized,
    Unavailable,
)
from catalog.identity.base import Identity
from catalog.identity.open import OpenIdentity
from catalog.models import Caller, Role
from catalog.names import check_warehouse_name
from catalog.services.catalog import Catalog
from catalog.shutdown import stopping
from ingest.api.ports import Subscriptions
from ingest.api.results import IngestMetrics, RequestSummary, Sources
from ingest.api.visibility import VisibilityWaiter
from ingest.api.websocket_limits import Connections
from ingest.change import ParsedRequest, RequestContext, TableName
from ingest.formats.detect import parse
from ingest.journal.journal import Journal
from ingest.journal.receipts import AppendReceipt, BufferUsage, JournalFull
from ingest.landing.resync import ResyncService
from ingest.landing.status import LandingStatus
from ingest.settings import ApiSettings
from ingest.sources.store import WarehouseRules, apply

SECRET_PREFIX = "whsec_"  # noqa: S105
SECRET_BYTES = range(24, 65)
SIGNATURES_MAX = 8
UNSIGNED = "The webhook signature is wrong, missing or too old"


def secret_key(text: str) -> bytes:
    """Return the key of a configured secret. ValueError says what is wrong with it, without showing it."""
    try:
        key = base64.b64decode(text.removeprefix(SECRET_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("webhook_secret must be whsec_ followed by base64") from None
    if len(key) not in SECRET_BYTES:
        raise ValueError("webhook_secret must hold 24 to 64 bytes")
    return key


def is_signed(headers: Mapping[bytes, bytes]) -> bool:
    return b"webhook-signature" in headers


def verify_signature(
    key: bytes, headers: Mapping[bytes, bytes], body: bytes, *, now_s: float, tolerance_s: int
) -> None:
    """Check the signature of a body. NotAuthorized has always the same message."""
    identity, timestamp = headers.get(b"webhook-id", b""), headers.get(b"webhook-timestamp", b"")
    given = headers.get(b"webhook-signature", b"").split(b" ")
    if not identity or not timestamp.isdigit() or len(timestamp) > 12:
        raise NotAuthorized(UNSIGNED)
    if abs(now_s - int(timestamp)) > tolerance_s or len(given) > SIGNATURES_MAX:
        raise NotAuthorized(UNSIGNED)
    digest = hmac.new(key, b"%b.%b.%b" % (identity, timestamp, body), hashlib.sha256).digest()
    wanted = b"v1," + base64.b64encode(digest)
    # All signatures are compared, so that the response time reveals nothing.
    if not sum(hmac.compare_digest(wanted, one) for one in given):
        raise NotAuthorized(UNSIGNED)


# -- access checks

WEBHOOK = "webhook"
PRESENT_S = 1.0


class Access:
    def __init__(
        self,
        identity: Identity,
        catalog: Catalog,
        settings: ApiSettings,
        *,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self._identity = identity
        self._catalog = catalog
        self._settings = settings
        self._is_open = isinstance(identity, OpenIdentity)
        self._now_s = now_s
        self._present_s: dict[str, float] = {}  # when each warehouse was last found
        secret = settings.webhook_secret
        self._key = secret_key(secret) if secret is not None else None

    def poster(self, headers: Mapping[bytes, bytes], body: bytes, warehouse: str) -> Caller:
        """Return the caller of a POST with changes, identified by a token, by a signature, or by both."""
        return self._require(self._signed_or_known(headers, body), warehouse, Role.WRITER)

    def writer(self, authorization: str | None, warehouse: str) -> Caller:
        return self._require(self._identity.identify(authorization), warehouse, Role.WRITER)

    def reader(self, authorization: str | None, warehouse: str) -> Caller:
        return self._require(self._identity.identify(authorization), warehouse, Role.READER)

    def _signed_or_known(self, headers: Mapping[bytes, bytes], body: bytes) -> Caller:
        authorization = headers.get(b"authorization")
        if self._key is not None:
            signed = is_signed(headers)
            # A server without tokens accepts any Authorization header, so the header proves nothing there.
            if not signed and (self._is_open or authorization is None):
                raise NotAuthorized(UNSIGNED)
            if signed:
                tolerance_s = self._settings.webhook_tolerance_s
                verify_signature(self._key, headers, body, now_s=self._now_s(), tolerance_s=tolerance_s)
                if authorization is None:
                    return Caller(WEBHOOK, {self._settings.webhook_warehouse: Role.WRITER})
        return self._identity.identify(header_text(authorization))

    def _require(self, caller: Caller, warehouse: str, least: Role) -> Caller:
        role = caller.role(check_warehouse_name(warehouse))
        if role is None:
            raise NoSuchWarehouse(f"Warehouse does not exist: {warehouse}")
        self._require_present(warehouse)
        if role < least:
            raise Forbidden(f"{caller.name} needs the role {least} in {warehouse} for this")
        return caller

    def _require_present(self, warehouse: str) -> None:
        """Check that the warehouse exists, at most once in `PRESENT_S`: for small requests the query would be
        most of the work.
        """
        now_s = time.monotonic()
        if now_s - self._present_s.get(warehouse, float("-inf")) > PRESENT_S:
            self._catalog.warehouse(warehouse)
            self._present_s[warehouse] = now_s


def header_text(header: bytes | None) -> str | None:
    return header.decode("latin-1") if header is not None else None


# -- the context of all routes

log = logging.getLogger(__name__)

T = TypeVar("T")

FAILURES_UNTIL_OPEN = 5
PARSE_WAIT_S = 0.01
USAGE_WAIT_S_MAX = 0.2


class TooBusy(Unavailable):
    """The server cannot parse the request now. Nothing of it was stored."""

    status = 429
    type = "TooManyRequestsException"


@dataclass(frozen=True, slots=True)
class PendingAppend:
    """A request that was submitted to the journal. It is durable when `receipt` is done."""

    warehouse: str
    summary: RequestSummary
    receipt: Future[AppendReceipt]


class ApiContext:
    """The objects that all ingest routes share. Create it in the process that serves: it has threads."""

    def __init__(
        self,
        journal: Journal,
        landing: LandingStatus,
        identity: Identity,
        catalog: Catalog,
        settings: ApiSettings,
        rules: Callable[[str], WarehouseRules] | None = None,
        resync: ResyncService | None = None,
    ) -> None:
        self._rules = rules
        self._resync = resync
        self.journal = journal
        self.landing = landing
        self.catalog = catalog
        self.settings = settings
        self.access = Access(identity, catalog, settings)
        self.metrics = IngestMetrics()
        # Two pools: changes are accepted while many queries wait for a database that does not respond.
        self.parse_threads = ThreadPoolExecutor(settings.parse_threads_max, thread_name_prefix="parse")
        self.query_threads = ThreadPoolExecutor(settings.query_threads_max, thread_name_prefix="query")
        self.visibility = VisibilityWaiter(landing, self.query_threads, settings.visibility_poll_ms)
        self.sources = Sources(settings.sources_remembered_max)
        self.connections = Connections(settings)
        self.subscriptions: Subscriptions | None = None  # None: /ws is for producers only
        self.last_usage = BufferUsage(0, 0, 1, 0.0)  # of the journal's buffer, at the last append or query
        self.failures = 0  # consecutive requests that the journal could not store
        self._parsing_bytes = 0  # of bodies that wait for a thread, or are being parsed
        self._stopped = False

    # -- start and stop

    @property
    def is_stopping(self) -> bool:
        """Return whether new requests are refused; running requests are finished."""
        return self._stopped or stopping.is_set()

    def stop(self) -> None:
        """Accept no more batches; running requests are finished. Thread-safe."""
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
        # SQLite responds faster than a thread switch takes; a database server may hang.
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

    def parse(self, body: bytes, context: RequestContext, warehouse: str) -> ParsedRequest:
        """Parse a body and apply the rules of its sources. Invalid if it has no event."""
        if not body:
            # Some HTTP servers lose bodies. A success would hide the loss.
            raise Invalid("The body is empty: send at least one event")
        parsed = parse(body, context)
        if parsed.events == 0:
            raise Invalid("There is no event in the body: send at least one")
        return self.under_rules(parsed, warehouse)

    def under_rules(self, parsed: ParsedRequest, warehouse: str) -> ParsedRequest:
        """Apply the rules of sources: return what may be stored or shown."""
        return parsed if self._rules is None else apply(parsed, self._rules(warehouse))

    def append(self, warehouse: str, parsed: ParsedRequest, priority: int) -> PendingAppend:
        """Submit the changes to the journal. Returns before they are durable: await `committed`.

        A client that disconnects, or a task that is cancelled, does not undo the append.
        """
        if self._resync is not None and has_reads(parsed):
            self._resync.mark(warehouse, parsed.changes)
        receipt = self.journal.submit(warehouse, parsed, priority=priority)
        if parsed.load_ends:
            tables = {change.table for change in parsed.changes if change.index in parsed.load_ends}
            receipt.add_done_callback(lambda done: self._loaded(warehouse, tables, done))
        self.buffer_usage()
        return PendingAppend(warehouse, RequestSummary.of(parsed), receipt)

    def _loaded(self, warehouse: str, tables: Collection[TableName], done: Future[AppendReceipt]) -> None:
        """End the resyncs of tables whose last rows are durable. The journal waits for this."""
        if self._resync is None or done.cancelled() or done.exception() is not None:
            return
        resync = self._resync

        def end() -> None:
            try:
                resync.loaded(warehouse, tables)
            except CatalogError as error:
                log.warning("a resync was not ended", extra={"reason": error.message})

        self.query_threads.submit(end)

    def buffer_usage(self) -> BufferUsage:
        """Return how full the journal is. May query its database."""
        self.last_usage = self.journal.buffer_usage()
        return self.last_usage

    # -- failures and figures

    def note_failure(self, error: CatalogError) -> None:
        """Count errors that indicate a failing database; a full journal is not one."""
        in_trouble = isinstance(error, Unavailable | CommitStateUnknown)
        if in_trouble and not isinstance(error, JournalFull | TooBusy):
            self.failures += 1

    @property
    def circuit(self) -> str:
        """Return `open` while the database of the journal stores nothing: a word of the WebSocket
        protocol.
        """
        return "open" if self.failures >= FAILURES_UNTIL_OPEN else "closed"

    def render_metrics(self, render: Callable[[], bytes]) -> bytes:
        """Return the text of /metrics, with the figures that all server processes share."""
        try:
            usage = self.query_threads.submit(self.buffer_usage).result(USAGE_WAIT_S_MAX)
        except (CatalogError, TimeoutError):
            usage = self.last_usage  # the database does not respond
        self.metrics.buffer_usage(usage)
        return render()


async def committed(receipt: Future[AppendReceipt]) -> AppendReceipt:
    """Return the receipt after COMMIT; raises the error of the journal.

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


def has_reads(parsed: ParsedRequest) -> bool:
    """Return whether a request has rows of a load; columns have none."""
    return parsed.columns is None and any(change.operation == "read" for change in parsed.changes)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


async def _context(connection: HTTPConnection) -> ApiContext:
    context: ApiContext = connection.app.state.ingest.api
    return context


ContextOf = Annotated[ApiContext, Depends(_context)]
