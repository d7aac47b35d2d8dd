"""POST /cdc, /cdc/{namespace}/{table} and /topics/{topic}: changes over HTTP.

Each is an ASGI endpoint on the undecoded path. The edge has read the body, within its limit and as long as
Content-Length says. An answer is sent after COMMIT, never before; a client that does not wait for it loses
nothing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

from catalog.api.calls import JSON, Answer, json_answer
from catalog.api.errors import error_answer, error_body
from catalog.errors import CatalogError, Unavailable
from ingest.change import TableName
from ingest.door import sources
from ingest.door.answers import Outcome, commit_answer, kafka_answer, receipt_answer
from ingest.door.asgi import Receive, Scope, Send, body_of, headers_of, reply
from ingest.door.asked import Asked, asked
from ingest.door.intake import Taken, committed
from ingest.door.ports import LandedRow
from ingest.door.room import Room, now_ms

log = logging.getLogger(__name__)

KAFKA = (b"content-type", b"application/vnd.kafka.v2+json")
DEADLINE_MARGIN_S = 1.0  # an answer that says "not yet" must be out before the edge gives up


class PostChanges:
    """One address that takes changes. `kafka`: answer as a Kafka REST proxy does."""

    def __init__(self, room: Room, operation: str, *, kafka: bool = False) -> None:
        self._room = room
        self._operation = operation
        self._kafka = kafka

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started_s = time.monotonic()
        scope["calve.operation"] = self._operation
        body = await body_of(scope, receive)
        try:
            answer = await self._perform(scope, body, started_s)
        except CatalogError as error:
            answer = self._refusal(error)
        except Exception:
            log.exception("changes could not be taken")
            message = "Something went wrong in the server; nothing was confirmed: send the request again"
            answer = Answer(500, error_body(message, "InternalServerError", 500), [JSON])
        await reply(send, answer)

    async def _perform(self, scope: Scope, body: bytes, started_s: float) -> Answer:
        room = self._room
        room.require_running()
        headers = headers_of(scope)
        request = asked(scope["path_params"], scope["query_string"], headers, room.settings)
        taken = await room.take(len(body), lambda: self._take(scope, request, headers, body))
        summary = taken.summary
        source = request.context.source or summary.source
        heard = room.sources.received(request.warehouse, source, summary.number, summary.events, now_ms())
        outcome = Outcome(request.warehouse, summary, await committed(taken.future))
        room.failures = 0
        room.measures.acknowledged("http", outcome, time.monotonic() - started_s)
        sources.acked(heard, summary.number, now_ms())
        if request.wait == "commit":
            return await self._after_commit(scope, request, outcome)
        if self._kafka:
            return _with_type(json_answer(kafka_answer(outcome)))
        return json_answer(receipt_answer(outcome, verbose=request.verbose), 202)

    def _take(self, scope: Scope, request: Asked, headers: Mapping[bytes, bytes], body: bytes) -> Taken:
        room = self._room
        scope["calve.caller"] = room.access.poster(headers, body, request.warehouse).name
        return room.intake.take(request.warehouse, body, request.context, request.priority)

    async def _after_commit(self, scope: Scope, request: Asked, outcome: Outcome) -> Answer:
        """200 when all of it is visible; 202 if that takes longer than the request wants to wait."""
        room, begun_s = self._room, time.monotonic()
        deadline_s = scope.get("calve.deadline_s", float("inf"))
        timeout_s = max(0.0, min(request.timeout_s, deadline_s - begun_s - DEADLINE_MARGIN_S))
        until = await self._until(outcome)
        is_visible = await room.arrivals.wait(request.warehouse, until, timeout_s)
        room.measures.waited(committed=is_visible, took_s=time.monotonic() - begun_s)
        landed: Mapping[TableName, LandedRow] | None = None
        if is_visible:
            tables = outcome.summary.tables
            landed = await room.ask(lambda: room.landing.rows(request.warehouse, tables))
        body = commit_answer(outcome, landed, verbose=request.verbose)
        return json_answer(body, 200 if is_visible else 202)

    async def _until(self, outcome: Outcome) -> dict[TableName, int]:
        """What must have landed. Events that came before may be on their way still: those are asked for."""
        until = dict.fromkeys(outcome.receipt.tables, outcome.token_id)
        others = outcome.summary.tables - until.keys()
        if others:
            room = self._room
            pending = await room.ask(lambda: room.journal.pending(outcome.warehouse))
            until.update((row.table, row.last_id) for row in pending if row.table in others)
        return until

    def _refusal(self, error: CatalogError) -> Answer:
        """As everywhere, but nobody is sent away for longer than producers bear."""
        if isinstance(error, Unavailable):
            error.retry_after_s = min(error.retry_after_s, self._room.settings.retry_after_s_max)
        if error.status >= 500:
            log.warning("changes were not taken", extra={"reason": error.message})
        self._room.note_failure(error)
        self._room.measures.refused("http", str(error.status))
        return error_answer(error)


def _with_type(answer: Answer) -> Answer:
    answer.headers = [KAFKA]
    return answer
