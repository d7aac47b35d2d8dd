"""Which producer wrote a request, by its first events. A format that the request names wins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from catalog.errors import Invalid
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
from ingest.formats.contract import Format

# The surest first; rows take whatever nobody knows.
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
_LOOK_AT = 32  # events: a batch may begin with a heartbeat or something broken


def named(name: str) -> Format | None:
    """The format that a request asks for; None if it leaves that to us."""
    if name in ("", "auto"):
        return None
    try:
        return _BY_NAME[name.lower().replace("_", "-")]
    except KeyError:
        known = ", ".join(FORMATS)
        raise Invalid(f"The format {name[:40]!r} is not known: leave it out, or say one of {known}") from None


def is_event(value: object) -> bool:
    """Whether a value looks like an event of a known producer, and not like a plain row."""
    return module_for(value) is not rows


def detected(events: Sequence[tuple[int, Any]]) -> Format:
    """The format of the first event that any of them knows."""
    for _, event in events[:_LOOK_AT]:
        module = module_for(event)
        if module is not rows:
            return module
    return rows


def module_for(event: object) -> Format:
    """The first format, in their order, that knows the event; rows if none does."""
    for module in _KNOWN:
        if module.recognises(event):
            return module
    return rows
