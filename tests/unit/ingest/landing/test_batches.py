"""Which lanes are due, and which go together."""

from __future__ import annotations

from ingest.change import TableName
from ingest.journal.receipts import Pending
from ingest.landing.batches import Lane, choose, lanes, wait_ms
from ingest.settings import Thresholds

THRESHOLDS = Thresholds(events=100, stored_bytes=1000, freshness_ms=500, small_events=50, tables_max=3)
A, B, C, D = ("ns", "a"), ("ns", "b"), ("ns", "c"), ("ns", "d")


def pending(table: TableName, *, oldest_ms: int = 0, last_id: int = 5) -> Pending:
    return Pending(table, 1, 10, oldest_ms, 1, last_id)


def lane(*tables: TableName, events: int = 1, oldest_ms: int = 0, hurried: bool = False) -> Lane:
    return Lane(tables, events, 10, oldest_ms, hurried)


def test_a_change_waits_for_others_until_it_is_old_enough() -> None:
    assert choose([lane(A, oldest_ms=600)], (), THRESHOLDS, now_ms=1000) == ()
    assert choose([lane(A, oldest_ms=500)], (), THRESHOLDS, now_ms=1000) == (lane(A, oldest_ms=500),)


def test_enough_changes_are_due_at_once_and_so_is_a_wish() -> None:
    for due in (lane(A, events=100, oldest_ms=1000), lane(A, oldest_ms=1000, hurried=True)):
        assert choose([due], (), THRESHOLDS, now_ms=1000) == (due,)
    heavy = Lane((A,), 1, 1000, 1000, hurried=False)
    assert choose([heavy], (), THRESHOLDS, now_ms=1000) == (heavy,)


def test_small_lanes_share_a_job_up_to_a_number_of_tables() -> None:
    found = [lane(A), lane(B), lane(C), lane(D)]
    assert choose(found, (), THRESHOLDS, now_ms=1000) == tuple(found[:3])


def test_a_large_lane_goes_alone_and_holds_nobody_up() -> None:
    large, small = lane(A, events=5000), lane(B, oldest_ms=1)
    assert choose([large, small], (), THRESHOLDS, now_ms=1000) == (large,)
    assert choose([large, small], {A}, THRESHOLDS, now_ms=1000) == (small,)
    assert choose([small, large], (), THRESHOLDS, now_ms=1000) == (small,)


def test_a_lane_that_has_failed_goes_alone() -> None:
    failed, others = lane(A), [lane(B), lane(C)]
    assert choose([failed, *others], (), THRESHOLDS, now_ms=1000, alone={A}) == (failed,)
    assert choose([*others, failed], (), THRESHOLDS, now_ms=1000, alone={A}) == tuple(others)
    assert choose([lane(A, B), lane(C)], (), THRESHOLDS, now_ms=1000, alone={B}) == (lane(A, B),)


def test_a_table_at_work_keeps_its_whole_lane_waiting() -> None:
    assert choose([lane(A, B)], {B}, THRESHOLDS, now_ms=1000) == ()


def test_tables_that_share_transactions_are_one_lane() -> None:
    found = lanes([pending(A), pending(B, oldest_ms=-5), pending(C)], [frozenset({A, B, D})], {}, {})
    assert [one.tables for one in found] == [(A, B), (C,)]
    assert found[0].oldest_ms == -5
    assert found[0].events == 2


def test_what_has_landed_is_not_waiting_any_more() -> None:
    assert lanes([pending(A, last_id=5)], [], {}, {A: 5}) == []
    assert len(lanes([pending(A, last_id=6)], [], {}, {A: 5})) == 1


def test_a_wish_holds_until_it_has_landed() -> None:
    assert lanes([pending(A, last_id=9)], [], {A: 7}, {A: 5})[0].hurried
    assert not lanes([pending(A, last_id=9)], [], {A: 7}, {A: 7})[0].hurried


def test_how_long_until_the_next_is_due() -> None:
    assert wait_ms([], THRESHOLDS, now_ms=0) is None
    assert wait_ms([lane(A, oldest_ms=100), lane(B, oldest_ms=50)], THRESHOLDS, now_ms=200) == 350
    assert wait_ms([lane(A, oldest_ms=0)], THRESHOLDS, now_ms=9000) == 0
