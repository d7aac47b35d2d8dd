"""Parse the body of a request into changes, by the format of its first events. Pure.

Every event of the request is in the result: as changes, as a reject with its reason, as the end of a
transaction, or as ignored. A format that the request names is used without detection. `Invalid` is raised
only if the body has no event, or if the request names an unknown format.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

from catalog.errors import Invalid
from ingest.change import BatchName, Change, ParsedRequest, Refused, Reject, RequestContext
from ingest.formats import (
    canal,
    cloudevents,
    cockroach,
    debezium,
    debezium_flattened,
    dms,
    hasura,
    kafka_rest,
    maxwell,
    native,
    rows,
    sequin,
    supabase,
    wal2json,
)
from ingest.formats.fields import TIME_MS_MAX, Format, reject
from ingest.formats.json_body import add_events, split_events

# The most specific format first; `rows` accepts events that no other format recognises.
MODULES: tuple[Format, ...] = (
    native,
    cloudevents,
    debezium,
    sequin,
    hasura,
    supabase,
    maxwell,
    canal,
    wal2json,
    dms,
    cockroach,
    kafka_rest,
    debezium_flattened,
    rows,
)
FORMATS: tuple[str, ...] = tuple(module.NAME for module in MODULES)

_BY_NAME = {module.NAME: module for module in MODULES}
_KNOWN = MODULES[:-1]
# An event of the format has one of these keys; a format that is not listed checks every event.
_KEYS = {native.NAME: frozenset({"rowId", "table"}), cloudevents.NAME: frozenset({"specversion"})}
_LOOK_AT = 32  # events: a batch may begin with a heartbeat or an invalid event


def named(name: str) -> Format | None:
    """Return the format that a request names; None if it names none."""
    if name in ("", "auto"):
        return None
    try:
        return _BY_NAME[name.lower().replace("_", "-")]
    except KeyError:
        known = ", ".join(FORMATS)
        raise Invalid(f"The format {name[:40]!r} is not known: leave it out, or say one of {known}") from None


def is_event(value: object) -> bool:
    """Return whether a value looks like an event of a known producer, and not like a plain row."""
    return module_for(value) is not rows


def detected(events: Sequence[tuple[int, Any]]) -> Format:
    """Return the format of the first event that any format recognises."""
    for _, event in events[:_LOOK_AT]:
        module = module_for(event)
        if module is not rows:
            return module
    return rows


def module_for(event: object) -> Format:
    """Return the first format that recognises the event; rows if none does."""
    for module in _KNOWN:
        keys = _KEYS.get(module.NAME)
        if keys is not None and isinstance(event, dict) and keys.isdisjoint(event):
            continue
        if module.recognises(event):
            return module
    return rows


# -- from a body to changes

_UNREAD = Refused("unread", "the event is of a kind that is not known: say its format, or send another kind")


def parse(body: bytes, context: RequestContext) -> ParsedRequest:
    """Parse the body of a request, whose content encoding has been decoded already."""
    requested = named(context.format)
    parsed = ParsedRequest(context.format)
    events = split_events(body, context, is_event, parsed)
    _parse(requested, events, context, parsed, marked=native.MARK.encode() in body)
    if context.batch and (parsed.columns is None or parsed.rejects):  # events in columns all have numbers
        _name_by_batch(parsed, context, body)
    return parsed


def parse_events(values: Sequence[Any], context: RequestContext) -> ParsedRequest:
    """Parse events that are decoded already, from a message of a connection."""
    requested = named(context.format)
    parsed = ParsedRequest(context.format)
    return _parse(requested, add_events(values, context, parsed), context, parsed, marked=True)


def _parse(
    requested: Format | None,
    events: list[tuple[int, Any]],
    context: RequestContext,
    parsed: ParsedRequest,
    *,
    marked: bool,
) -> ParsedRequest:
    if events:
        chosen = requested or detected(events)
        parsed.format = chosen.NAME
        if chosen is native and not marked:
            native.read_unmarked(events, context, parsed)
        else:
            chosen.read(events, context, parsed)
        if chosen is not native:  # `native` does both itself
            _drop_impossible_times(parsed)
            _add_requested_key(parsed, context)
        _add_unread(events, context, parsed)
    if parsed.rejects:
        _keep_context(parsed, context)
    parsed.epoch = context.epoch
    return parsed


def _add_unread(events: list[tuple[int, Any]], context: RequestContext, parsed: ParsedRequest) -> None:
    """Add a reject for each event that a format did not handle, so that nothing is lost."""
    if parsed.change_count + len(parsed.rejects) + len(parsed.ignored) + len(parsed.ends) == parsed.events:
        return
    known = {item.index for found in (parsed.changes, parsed.rejects, parsed.ends) for item in found}
    known.update(parsed.ignored)
    parsed.rejects.extend(
        reject(index, event, _UNREAD, context) for index, event in events if index not in known
    )


def _keep_context(parsed: ParsedRequest, context: RequestContext) -> None:
    """Keep what a replay needs besides the event."""
    kept = {
        "format": context.format,
        "detected": parsed.format,
        "content_type": context.content_type,
        "key": context.key,
        "topic": context.topic,
        "namespace": context.namespace,
    }
    usual = RequestContext()
    differs = {name: value for name, value in kept.items() if value != getattr(usual, name, "auto")}
    for reject_ in parsed.rejects:
        reject_.context = differs or None


def _drop_impossible_times(parsed: ParsedRequest) -> None:
    """Remove times that are out of range: the time of a change is informative, so a wrong one must not reject
    the change.
    """
    for change in parsed.changes:
        if change.time_ms is not None and not -TIME_MS_MAX <= change.time_ms <= TIME_MS_MAX:
            change.time_ms = None


def _add_requested_key(parsed: ParsedRequest, context: RequestContext) -> None:
    """Set the key that the request names in changes whose producer names none."""
    if context.key is None:
        return
    for change in parsed.changes:
        if change.key is None and change.operation not in ("truncate", "rename"):
            change.key = context.key


def _name_by_batch(parsed: ParsedRequest, context: RequestContext, body: bytes) -> None:
    """In a batch with a name, an event without an identity is identified by its index. The name applies
    within the address that the batch was sent to.
    """
    address = ".".join(context.table) if context.table is not None else context.topic or ""
    batch = f"{address}:{context.batch}"
    last, ordinal = -1, 0
    found: list[Change | Reject] = [*parsed.changes, *parsed.rejects]
    for item in found:
        ordinal = ordinal + 1 if item.index == last else 0
        last = item.index
        if not item.identity and item.number is None:
            item.identity = f"{batch}:{item.index}:{ordinal}" if ordinal else f"{batch}:{item.index}"
            parsed.batch = parsed.batch or BatchName(batch, blake2b(body, digest_size=16).hexdigest())
