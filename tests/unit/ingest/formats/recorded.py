"""Recorded events of the producers, a reading of them that checks that no event is lost, and broken ones."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import orjson
from hypothesis import strategies as st

from ingest.change import ParsedRequest, RequestContext
from ingest.formats.fields import Format

SAMPLES = Path(__file__).parent / "samples"
HERE = RequestContext()

_scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=12)
    | st.sampled_from(("", "0/0", "I", "insert", "INSERT", "d", "2026-02-30", "a.b", "1.2", "\x00", "²"))
)
json_values: st.SearchStrategy[Any] = st.recursive(
    _scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def sample(producer: str, name: str) -> list[Any]:
    """The events of a recorded request, as the body's reader hands them on."""
    events = orjson.loads((SAMPLES / producer / f"{name}.json").read_bytes())
    assert isinstance(events, list)
    return events


@cache
def samples_of(producer: str) -> list[Any]:
    files = sorted((SAMPLES / producer).glob("*.json"))
    assert files
    return [event for file in files for event in sample(producer, file.stem)]


def parse(module: Format, events: Sequence[Any], context: RequestContext = HERE) -> ParsedRequest:
    """What the module makes of the events; each of them must have become something."""
    parsed = ParsedRequest(module.NAME, len(events))
    module.read(list(enumerate(events)), context, parsed)
    found = set(parsed.ignored)
    found.update(change.index for change in parsed.changes)
    found.update(refused.index for refused in parsed.rejects)
    found.update(end.index for end in parsed.ends)
    assert found == set(range(len(events)))
    return parsed


def changed(event: Any, *path: str | int, to: Any) -> Any:
    """A copy of the event with another value at one place."""
    result = copy.deepcopy(event)
    inner = result
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = to
    return result


def without(event: Any, *path: str | int) -> Any:
    """A copy of the event without one of its fields."""
    result = copy.deepcopy(event)
    inner = result
    for step in path[:-1]:
        inner = inner[step]
    del inner[path[-1]]
    return result


@st.composite
def broken(draw: st.DrawFn, events: Sequence[Any]) -> Any:
    """A recorded event in which some value, at any depth, is another one or is missing."""
    event = copy.deepcopy(draw(st.sampled_from(list(events))))
    for _ in range(draw(st.integers(1, 3))):
        inner: Any = event
        while True:
            keys = list(inner) if isinstance(inner, dict) else list(range(len(inner)))
            if not keys:
                break
            key = draw(st.sampled_from(keys))
            child = inner[key]
            if isinstance(child, dict | list) and child and draw(st.booleans()):
                inner = child
                continue
            if isinstance(inner, dict) and draw(st.booleans()):
                del inner[key]
            else:
                inner[key] = draw(json_values)
            break
    return event
