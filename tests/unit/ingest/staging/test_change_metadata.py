"""Facts of changes as arrays: the short ways say what the changes say one by one."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from ingest.change import Change
from ingest.staging.arrow_table import before_column, event_ids, text_column, time_column
from tests.unit.ingest.types.changes import insert

TIME_MS_MAX = 2**63 // 1_000 - 1
EDGES = st.sampled_from([TIME_MS_MAX, TIME_MS_MAX + 1, -TIME_MS_MAX, -TIME_MS_MAX - 1, 2**63, -(2**70)])
TEXTS = st.none() | st.sampled_from(["", "a", "ä", "\ud800"])


@given(st.lists(st.none() | st.integers(0, 10**13)) | st.lists(st.none() | st.integers(-9, 9) | EDGES))
def test_times_are_microseconds_and_none_is_beyond_all_time(given_ms: list[int | None]) -> None:
    found = time_column(given_ms)
    assert found.type == pa.timestamp("us", tz="UTC")
    assert found.cast(pa.int64()).to_pylist() == [
        None if time_ms is None or abs(time_ms) > TIME_MS_MAX else time_ms * 1_000 for time_ms in given_ms
    ]


@given(st.lists(TEXTS) | st.builds(lambda text, count: [text] * count, TEXTS, st.integers(0, 9)))
def test_texts_are_as_they_were_given_but_always_unicode(values: list[str | None]) -> None:
    found = text_column(values)
    found.validate(full=True)
    assert found.type == pa.string()
    assert found.to_pylist() == [r"\ud800" if value == "\ud800" else value for value in values]


def numbered(source: str, identity: str, number: int | None) -> Change:
    return insert({}, source=source, identity=identity, number=number)


NUMBERED = st.sampled_from(["s", "st"]).flatmap(
    lambda sources: st.lists(st.builds(numbered, st.sampled_from(sources), st.just(""), st.integers(0, 9)))
)
NAMED = st.lists(st.builds(numbered, st.sampled_from("st"), st.text("xyz", min_size=1), st.none()))
MIXED = st.lists(
    st.builds(
        numbered,
        st.sampled_from(["s", "t", ""]),
        st.sampled_from(["", "", "x"]),
        st.none() | st.integers(-(2**70), 2**70),
    )
)


@given(NUMBERED | NAMED | MIXED, st.booleans())
def test_event_ids(changes: list[Change], with_fallback: bool) -> None:
    fallback = [f"1.{row}" for row in range(len(changes))] if with_fallback else []
    expected = []
    for row, change in enumerate(changes):
        counted = None if change.number is None else f"{change.source}:{change.number}"
        expected.append(change.identity or counted or (fallback[row] if fallback else None))
    found = event_ids(changes, fallback)
    assert found.type == pa.string()
    assert found.to_pylist() == expected


def test_numbers_of_a_source_that_is_not_unicode() -> None:
    assert event_ids([numbered("\ud800", "", 1)], ()).to_pylist() == [r"\ud800:1"]


ROWS = st.dictionaries(st.sampled_from("ab"), st.none() | st.integers() | st.sampled_from([2**70, "ä"]))


@given(st.lists(st.none() | ROWS) | st.lists(st.none()))
def test_the_row_before_is_json_of_it(rows: list[dict[str, Any] | None]) -> None:
    rejects: dict[int, str] = {}
    found = before_column([insert({}, before=row) for row in rows], rejects)
    assert found.type == pa.string()
    assert [None if text is None else json.loads(text) for text in found.to_pylist()] == rows
    assert not rejects


def test_a_row_before_that_cannot_be_written_is_a_reject_and_the_others_are_kept() -> None:
    rejects = {1: "known already"}
    rows: list[dict[str, Any] | None] = [{"a": 1}, {"a": "\ud800"}, None, {"a": "\ud800"}]
    found = before_column([insert({}, before=row) for row in rows], rejects)
    assert found.to_pylist() == ['{"a":1}', None, None, None]
    assert sorted(rejects) == [1, 3]
    assert rejects[1] == "known already"
    assert rejects[3].startswith("the row as it was before cannot be kept: ")
