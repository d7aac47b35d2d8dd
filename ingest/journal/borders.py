"""Where a cut may lie: at no id that would split a source transaction. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from ingest.journal.transactions import Spanning

Span = tuple[int, int | None]  # a cut at an id inside (both ends included) is not allowed; None: no end yet


def forbidden(
    found: Iterable[Spanning], tables: frozenset[str], now_ms: int, linger_ms: int, wait_ms: int = 0
) -> list[Span]:
    """The cuts that transactions which touch these tables do not allow."""
    spans: list[Span] = []
    for one in found:
        if one.first_id == 0 or tables.isdisjoint(one.tables):
            continue
        if one.is_open_at(now_ms, linger_ms, wait_ms):
            spans.append((one.first_id, None))
        elif one.first_id < one.last_id:
            spans.append((one.first_id, one.last_id - 1))
    return spans


def at_or_below(up_to: int, spans: Iterable[Span]) -> int:
    """The largest id that is not behind `up_to` and allowed."""
    border = up_to
    for first, last in sorted(spans, key=lambda span: span[0], reverse=True):
        if first <= border and (last is None or border <= last):
            border = first - 1
    return border


def at_or_above(up_to: int, spans: Iterable[Span]) -> int | None:
    """The smallest id that is not before `up_to` and allowed; None if something there has no end yet."""
    border = up_to
    for first, last in sorted(spans, key=lambda span: span[0]):
        if first > border:
            break
        if last is None:
            return None
        border = max(border, last + 1)
    return border
