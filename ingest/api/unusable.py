"""Handle requests of which no event can be used: refuse them with an example, or keep them as dead
letters.
"""

from __future__ import annotations

from catalog.errors import Invalid
from ingest.change import ParsedRequest, RequestContext
from ingest.settings import ApiSettings

REASON_CHARS_MAX = 500
NATIVE = (
    '{"events": [{"sequence": 1, "timestamp": 1790000000000, "operation": "INSERT", "table": "shop.orders", '
    '"rowId": "1", "after": {"id": 1, "name": "x"}}]}'
)
DEBEZIUM = (
    '{"op": "c", "before": null, "after": {"id": 1, "name": "x"}, "source": {"connector": "postgresql", '
    '"name": "shop", "db": "shop", "schema": "public", "table": "orders", "lsn": 1}, "ts_ms": 1790000000000}'
)
ROWS = '[{"id": 1, "name": "x"}]'
RECORDS = '{"records": [{"value": {"id": 1, "name": "x"}}]}'
KEEP = "Send ?on-unusable=dead-letter to keep such requests as dead letters."


def keeps_unusable(parsed: ParsedRequest, context: RequestContext, settings: ApiSettings) -> bool:
    """Return whether unusable requests of this source are kept, by the settings."""
    sources = settings.dead_letter_sources
    return "*" in sources or (context.source or parsed.rejects[0].source) in sources


def unusable_refusal(parsed: ParsedRequest, context: RequestContext) -> Invalid:
    """Return an error that names the wrong event and the reason, and shows a correct request."""
    first = parsed.rejects[0]
    count = "The event" if parsed.events == 1 else f"None of the {parsed.events} events"
    verb = "cannot" if parsed.events == 1 else "can"
    reason = first.reason[:REASON_CHARS_MAX]
    return Invalid(
        f"{count} {verb} be used; nothing was stored. Event {first.index}: {reason}. {KEEP} "
        f"Example: {_example_body(parsed.format, context)}"
    )


def _example_body(format_: str, context: RequestContext) -> str:
    """Return an example of a body for the same path."""
    if format_ == "debezium":
        return DEBEZIUM
    if context.topic is not None:
        return RECORDS
    return NATIVE if context.table is None or format_ == "native" else ROWS
