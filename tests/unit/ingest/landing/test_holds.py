"""How far tables may land while others wait."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ingest.change import TableName
from ingest.journal.table_groups import SharedSpan
from ingest.landing.holds import limits

A, B, C = ("ns", "a"), ("ns", "b"), ("ns", "c")


def test_a_transaction_that_touches_a_held_table_waits_and_what_is_before_it_does_not() -> None:
    spans = [SharedSpan(frozenset({A, B}), 1, 2), SharedSpan(frozenset({A, B}), 5, 6)]
    assert limits({B: 3}, spans) == {A: 4, B: 3}


def test_a_transaction_behind_one_that_waits_waits_too() -> None:
    spans = [SharedSpan(frozenset({A, C}), 7, 8), SharedSpan(frozenset({A, B}), 5, 6)]
    assert limits({B: 0}, spans) == {A: 4, B: 0, C: 6}


def test_tables_that_share_nothing_have_no_limit() -> None:
    assert limits({B: 0}, [SharedSpan(frozenset({A, C}), 1, 2)]) == {B: 0}


@st.composite
def _spans(draw: st.DrawFn) -> SharedSpan:
    first = draw(st.integers(1, 20))
    tables = draw(st.frozensets(st.sampled_from([(name,) for name in "abcde"]), min_size=2, max_size=3))
    return SharedSpan(tables, first, first + draw(st.integers(0, 3)))


@given(
    st.lists(_spans(), max_size=12), st.dictionaries(st.sampled_from([("a",), ("b",)]), st.integers(0, 20))
)
def test_no_limit_splits_a_transaction(spans: list[SharedSpan], held: dict[TableName, int]) -> None:
    found = limits(held, spans)
    for one in spans:
        inside = [found.get(table, 1_000) >= one.last_id for table in one.tables]
        outside = [found.get(table, 1_000) < one.first_id for table in one.tables]
        assert all(inside) or all(outside)
    assert all(found[table] <= limit for table, limit in held.items())
