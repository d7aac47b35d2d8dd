"""A `cdc_batch` from its bytes into the journal. Synchronous: runs in a thread where it is large."""

from __future__ import annotations

from ingest.change import Context
from ingest.door.intake import Taken
from ingest.door.room import Room
from ingest.door.sockets.messages import Batch, Json, Malformed, largest_event
from ingest.formats import read, read_events
from ingest.formats.decode import is_sound, may_be_deep

FORMAT = "native"


def take(
    room: Room, warehouse: str, batch: Batch, raw: bytes, message: Json, *, is_plain: bool, priority: int
) -> Taken:
    """Submit the events of a batch. Raises Malformed, or what the journal raises.

    Events of a message that is not plain JSON are read from its text once more, so that a number like NaN
    costs the event that holds it and no other.
    """
    event_bytes_max = room.settings.event_bytes_max
    if len(raw) > event_bytes_max:  # otherwise no event in it can be larger
        size = largest_event(message)
        if size > event_bytes_max:
            raise Malformed(
                "event_too_large",
                f"An event takes {size} bytes; at most {event_bytes_max} are allowed",
                sequence=batch.sequence,
                correlation=batch.correlation,
                size=(event_bytes_max, size),
            )
    context = Context(format=FORMAT, source=batch.source, namespace=room.settings.default_namespace)
    if is_plain and not (may_be_deep(raw) and not is_sound(message["events"])):
        parsed = read_events(message["events"], context)
    else:
        parsed = read(raw, context)
    return room.intake.submit(warehouse, parsed, priority)
