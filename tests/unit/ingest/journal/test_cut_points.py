"""Where a cut may lie, against a look at every id."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ingest.journal.table_groups import (
    ForbiddenRange,
    SourceTransaction,
    cut_at_or_above,
    cut_at_or_below,
    forbidden_cuts,
)

SPANS = st.lists(
    st.tuples(st.integers(1, 15), st.none() | st.integers(0, 6)).map(
        lambda span: (span[0], None if span[1] is None else span[0] + span[1])
    ),
    max_size=5,
)


def _allowed(id_: int, spans: list[ForbiddenRange]) -> bool:
    return not any(first <= id_ and (last is None or id_ <= last) for first, last in spans)


@given(st.integers(0, 20), SPANS)
def test_the_largest_below_and_the_smallest_above(up_to: int, spans: list[ForbiddenRange]) -> None:
    below = [id_ for id_ in range(up_to + 1) if _allowed(id_, spans)]
    above = [id_ for id_ in range(up_to, 40) if _allowed(id_, spans)]
    assert cut_at_or_below(up_to, spans) == below[-1]
    assert cut_at_or_above(up_to, spans) == (above[0] if above else None)


def test_only_transactions_of_these_tables_count() -> None:
    found = [
        SourceTransaction("s", "whole", ended=True, first_id=1, last_id=1, tables={"a"}),
        SourceTransaction("s", "complete", ended=True, first_id=2, last_id=5, tables={"a", "b"}),
        SourceTransaction("s", "other", ended=True, first_id=3, last_id=9, tables={"c"}),
        SourceTransaction("s", "open", first_id=7, last_id=7, tables={"b"}, updated_ms=100),
        SourceTransaction("s", "not begun", expected=2, ended=True, tables=set(), updated_ms=100),
    ]
    assert forbidden_cuts(found, frozenset("a"), 150, 100) == [(2, 4)]
    assert forbidden_cuts(found, frozenset("b"), 150, 100) == [(2, 4), (7, None)]
    assert forbidden_cuts(found, frozenset("b"), 200, 100) == [(2, 4)]
