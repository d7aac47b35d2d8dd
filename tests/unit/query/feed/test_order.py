"""The order of the changes of one publish: that of each row is kept, and a truncate overtakes nothing."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.settings import NAMES
from query.feed.order import change_order

Made = tuple[str, str, str, int]  # operation, source, position, key


def ordered(files: list[list[Made]]) -> list[Made]:
    rows = [row for file in files for row in file]
    table = pa.table(
        {
            "_operation": [row[0] for row in rows],
            "_source": [row[1] for row in rows],
            "_position": [row[2] for row in rows],
        }
    )
    order = change_order([len(file) for file in files], table, NAMES)
    return rows if order is None else [rows[index] for index in order]


def applied(changes: list[Made]) -> dict[int, str]:
    rows: dict[int, str] = {}
    for operation, source, position, key in changes:
        if operation == "truncate":
            rows.clear()
        else:
            rows[key] = source + position
    return rows


@settings(deadline=None)  # the first use of PyArrow imports other packages
@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 5), st.booleans()), max_size=30),
    st.integers(1, 4),
    st.booleans(),
)
def test_applying_the_changes_gives_the_rows(
    arrived: list[tuple[str, int, bool]], shares: int, is_one_source: bool
) -> None:
    """Written as tasks do: each has its share of the keys, the first one also the truncates."""
    changes: list[Made] = []
    for number, (source, key, is_truncate) in enumerate(arrived):
        # A truncate empties the rows of its source only if it is the only one: so here it is.
        name = "a" if is_one_source else source
        operation = "truncate" if is_truncate and is_one_source else "insert"
        changes.append((operation, name, f"{number:04d}", key))
    files: list[list[Made]] = [[] for _ in range(shares)]
    for change in changes:
        files[0 if change[0] == "truncate" else change[3] % shares].append(change)
    found = ordered(files)
    assert sorted(found) == sorted(changes)
    assert applied(found) == applied(changes)


@pytest.mark.parametrize("seed", range(20))
def test_a_truncate_of_one_of_several_sources_overtakes_nothing_of_its_own(seed: int) -> None:
    rng = random.Random(seed)
    changes: list[Made] = [
        (rng.choice(["insert", "insert", "truncate"]), rng.choice("ab"), f"{n:04d}", rng.randrange(9))
        for n in range(40)
    ]
    files: list[list[Made]] = [[], [], []]
    for change in changes:
        files[0 if change[0] == "truncate" else change[3] % 3].append(change)
    found = ordered(files)
    for source in "ab":
        own = [change for change in found if change[1] == source]
        for index, change in enumerate(own):
            if change[0] == "truncate":
                assert all(one[2] < change[2] for one in own[:index])
                assert all(one[2] > change[2] for one in own[index + 1 :])


@settings(deadline=None)  # the first use of PyArrow imports other packages
@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 5), st.booleans()), max_size=30),
    st.randoms(use_true_random=False),
)
def test_noted_numbers_give_the_order_whatever_files_have_the_changes(
    arrived: list[tuple[str, int, bool]], rng: random.Random
) -> None:
    """After a compaction the rows lie in other files, in any order: a token means the same change."""
    changes: list[Made] = [
        ("truncate" if is_truncate else "insert", source, f"{number:04d}", key)
        for number, (source, key, is_truncate) in enumerate(arrived)
    ]
    numbers = list(range(len(changes)))
    rng.shuffle(numbers)
    cut = rng.randint(0, len(numbers))
    table = pa.table(
        {
            "_operation": pa.array([changes[number][0] for number in numbers], pa.string()),
            "_source": pa.array([changes[number][1] for number in numbers], pa.string()),
            "_position": pa.array([changes[number][2] for number in numbers], pa.string()),
            "_order": pa.array([2 * number + 1 for number in numbers], pa.int64()),
        }
    )
    order = change_order([cut, len(numbers) - cut], table, NAMES)
    found = numbers if order is None else [numbers[row] for row in order]
    assert [changes[number] for number in found] == changes


def test_a_late_change_of_a_source_comes_at_its_position() -> None:
    table = pa.table(
        {
            "_operation": ["insert", "insert", "truncate", "insert"],
            "_source": ["a", "b", "a", "a"],
            "_position": ["1", "7", "3", "2"],  # the last one overtook the truncate of its source
            "_order": [1, 3, 5, 7],
        }
    )
    assert change_order([4], table, NAMES) == [0, 1, 3, 2]
