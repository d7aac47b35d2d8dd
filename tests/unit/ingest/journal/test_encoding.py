"""What was encoded is what is decoded, whatever a producer put into its rows."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.change import Change, Declared, Reject
from ingest.journal.encoding import DEPTH_MAX, decode, encode

TABLE = ("db", "t")
TEXTS = st.text(max_size=12)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.decimals(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(), max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
ROWS = st.none() | st.dictionaries(TEXTS, VALUES, max_size=4)
DECLARED = st.none() | st.builds(
    Declared,
    st.dictionaries(TEXTS, st.sampled_from(("long", "string", "decimal(10,2)")), max_size=2),
    st.dictionaries(TEXTS, st.sampled_from(("days", "us")), max_size=2),
    st.frozensets(TEXTS, max_size=2),
    st.dictionaries(TEXTS, st.booleans() | st.integers(0, 9) | TEXTS, max_size=2),
)
CHANGES = st.builds(
    Change,
    index=st.integers(0, 50),
    table=st.just(TABLE),
    operation=st.sampled_from(("insert", "update", "delete", "truncate", "read")),
    before=ROWS,
    after=ROWS,
    key=st.none() | st.lists(TEXTS, max_size=2).map(tuple),
    row_id=st.none() | TEXTS,
    source=TEXTS,
    position=TEXTS,
    identity=TEXTS,
    number=st.none() | st.integers(-(2**70), 2**70),
    transaction=st.none() | TEXTS,
    transaction_ends=st.booleans(),
    time_ms=st.none() | st.integers(0, 2**45),
    declared=DECLARED,
    origin=TEXTS,
    unchanged=st.none() | st.lists(TEXTS, max_size=2).map(tuple),
)
REJECTS = st.builds(
    Reject,
    index=st.integers(0, 50),
    reason=TEXTS,
    original=st.binary(max_size=40),
    code=TEXTS,
    table=st.just(TABLE),
    source=TEXTS,
    position=TEXTS,
    identity=TEXTS,
    number=st.none() | st.integers(0, 9),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(CHANGES, max_size=6), st.lists(REJECTS, max_size=3))
def test_everything_comes_back(changes: list[Change], rejects: list[Reject]) -> None:
    found_changes, found_rejects = decode(encode(changes, rejects), TABLE)
    assert found_changes == changes
    assert found_rejects == rejects
    # Equal is not enough: 1 == 1.0 == True.
    assert [_written_out(change) for change in found_changes] == [_written_out(change) for change in changes]


def _written_out(change: Change) -> str:
    return repr((change.before, change.after, change.number, change.time_ms, change.transaction_ends))


@given(st.lists(CHANGES, max_size=5), st.lists(REJECTS, max_size=3), st.sets(st.integers(0, 7)))
def test_skipped_events_are_left_out(changes: list[Change], rejects: list[Reject], skips: set[int]) -> None:
    both = [*changes, *rejects]
    kept = [event for place, event in enumerate(both) if place not in skips]
    found_changes, found_rejects = decode(encode(changes, rejects), TABLE, skips)
    assert [*found_changes, *found_rejects] == kept


def test_types_are_kept_once_and_shared() -> None:
    columns = {f"column_{number}": "decimal(10,2)" for number in range(200)}
    own = [Change(n, TABLE, "insert", after={"a": n}, declared=Declared(dict(columns))) for n in range(100)]
    blob = encode(own, ())
    assert len(blob) < 3_000
    changes, _ = decode(blob, TABLE)
    assert all(change.declared is changes[0].declared for change in changes)
    assert changes == own


def test_a_reject_without_a_table_stays_one() -> None:
    reject = Reject(0, "no table", b"\xff\x00{")
    assert decode(encode((), [reject]), ()) == ([], [reject])


@pytest.mark.parametrize(
    "value",
    [
        2**64,
        -(2**63) - 1,
        Decimal("1.10"),
        "\ud800",
        {"\0decimal": "x", "b": 1},
        [{"\0decimal": "x"}, 2**64],
        [{"\0decimal": "1.5"}, {"\0\0decimal": "1.5"}, {"\0": {"\0decimal": 1}}, Decimal("1.5")],
    ],
)
def test_what_json_writers_stumble_over(value: Any) -> None:
    change = Change(0, TABLE, "insert", after={"a": [value], "b": 2**40})
    found = decode(encode([change], ()), TABLE)[0]
    assert repr(found) == repr([change])


def _nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def test_deep_rows_are_kept_or_refused_but_never_written_unreadably() -> None:
    change = Change(0, TABLE, "insert", after={"a": _nested(DEPTH_MAX - 10)})
    assert decode(encode([change], ()), TABLE)[0] == [change]
    for levels in (DEPTH_MAX + 1, 5_000):
        with pytest.raises(TypeError):
            encode([Change(0, TABLE, "insert", after={"a": _nested(levels)})], ())


def test_a_value_that_is_not_json_is_refused() -> None:
    with pytest.raises(TypeError, match="object"):
        encode([Change(0, TABLE, "insert", after={"a": object()})], ())
