"""Groups of tables grow together, and never apart."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ingest.journal.cut_points import are_in_one_group, merged_groups

MEETINGS = st.lists(st.sets(st.sampled_from("abcdefgh"), min_size=2, max_size=4), max_size=6)


def _connected(meetings: list[set[str]], one: str, other: str) -> bool:
    reached, grew = {one}, True
    while grew:
        more = reached.union(*(tables for tables in meetings if tables & reached))
        grew, reached = more != reached, more
    return other in reached


@given(MEETINGS, MEETINGS)
def test_tables_are_together_if_a_chain_of_meetings_joins_them(
    first: list[set[str]], second: list[set[str]]
) -> None:
    groups = merged_groups(merged_groups({}, first), second)
    met = set().union(*first, *second)
    assert set(groups) == met
    for one in met:
        for other in met:
            assert are_in_one_group(groups, {one, other}) == _connected([*first, *second], one, other)
    assert all(key in groups and groups[key] == key for key in groups.values())


def test_a_table_that_nobody_knows_is_with_nobody() -> None:
    assert not are_in_one_group({}, {"a", "b"})
    assert not are_in_one_group({"a": "a"}, {"a", "b"})
