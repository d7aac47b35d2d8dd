"""Groups of tables: which sets of tables go together."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ingest.journal.table_groups import SETS_MAX, components, merged

TABLES = st.frozensets(st.sampled_from("abcdefgh"), min_size=2, max_size=3)


def _connected(sets: list[frozenset[str]], one: str) -> frozenset[str]:
    reached, grew = frozenset({one}), True
    while grew:
        more = reached.union(*(tables for tables in sets if tables & reached))
        grew, reached = more != reached, more
    return reached


@given(st.lists(TABLES, max_size=8))
def test_tables_are_in_one_component_if_a_chain_of_sets_joins_them(sets: list[frozenset[str]]) -> None:
    named = [frozenset((table,) for table in tables) for tables in sets]
    found = components(named)
    met = frozenset().union(*sets)
    assert sorted(table for group in found for table in group) == sorted((table,) for table in met)
    for group in found:
        assert {table for (table,) in group} == _connected(sets, min(group)[0])


def test_equal_sets_of_an_append_are_one_row() -> None:
    ab, bc = frozenset("ab"), frozenset("bc")
    assert merged([(ab, 1, 2), (bc, 3, 3), (ab, 5, 6)]) == [(ab, 1, 6), (bc, 3, 3)]


def test_very_many_sets_become_few() -> None:
    spans = [(frozenset({"hub", f"t{n}"}), n, n) for n in range(SETS_MAX + 1)]
    assert merged(spans) == [(frozenset({"hub", *(f"t{n}" for n in range(SETS_MAX + 1))}), 0, SETS_MAX)]
