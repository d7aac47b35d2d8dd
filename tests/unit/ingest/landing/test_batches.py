"""Which lanes are due, and which go together."""

from __future__ import annotations

from ingest.change import TableName
from ingest.journal.receipts import Pending
from ingest.landing.batches import PendingGroup, choose, pending_groups, wait_ms
from ingest.settings import Thresholds

THRESHOLDS = Thresholds(events=100, stored_bytes=1000, freshness_ms=500, small_events=50, tables_max=3)
A, B, C, D = ("ns", "a"), ("ns", "b"), ("ns", "c"), ("ns", "d")


def pending(table: TableName, *, oldest_ms: int = 0, last_id: int = 5) -> Pending:
    return Pending(table, 1, 10, oldest_ms, 1, last_id)


def group(
    *tables: TableName, events: int = 1, oldest_ms: int = 0, flush_requested: bool = False
) -> PendingGroup:
    return PendingGroup(tables, events, 10, oldest_ms, flush_requested)


def test_a_change_waits_for_others_until_it_is_old_enough() -> None:
    assert choose([group(A, oldest_ms=600)], (), THRESHOLDS, now_ms=1000) == ()
    assert choose([group(A, oldest_ms=500)], (), THRESHOLDS, now_ms=1000) == (group(A, oldest_ms=500),)


def test_enough_changes_are_due_at_once_and_so_is_a_wish() -> None:
    for due in (group(A, events=100, oldest_ms=1000), group(A, oldest_ms=1000, flush_requested=True)):
        assert choose([due], (), THRESHOLDS, now_ms=1000) == (due,)
    heavy = PendingGroup((A,), 1, 1000, 1000, flush_requested=False)
    assert choose([heavy], (), THRESHOLDS, now_ms=1000) == (heavy,)


def test_small_lanes_share_a_job_up_to_a_number_of_tables() -> None:
    found = [group(A), group(B), group(C), group(D)]
    assert choose(found, (), THRESHOLDS, now_ms=1000) == tuple(found[:3])


def test_a_small_lane_that_is_not_due_goes_along() -> None:
    due, young = group(A), group(B, oldest_ms=900)
    assert choose([due, young], (), THRESHOLDS, now_ms=1000) == (due, young)
    assert choose([young, due], (), THRESHOLDS, now_ms=1000) == (due, young)
    assert choose([young], (), THRESHOLDS, now_ms=1000) == ()


def test_a_large_lane_goes_alone_and_holds_nobody_up() -> None:
    large, small = group(A, events=5000), group(B, oldest_ms=1)
    assert choose([large, small], (), THRESHOLDS, now_ms=1000) == (large,)
    assert choose([large, small], {A}, THRESHOLDS, now_ms=1000) == (small,)
    assert choose([small, large], (), THRESHOLDS, now_ms=1000) == (small,)


def test_a_lane_that_has_failed_goes_alone() -> None:
    failed, others = group(A), [group(B), group(C)]
    assert choose([failed, *others], (), THRESHOLDS, now_ms=1000, alone={A}) == (failed,)
    assert choose([*others, failed], (), THRESHOLDS, now_ms=1000, alone={A}) == tuple(others)
    assert choose([group(A, B), group(C)], (), THRESHOLDS, now_ms=1000, alone={B}) == (group(A, B),)


def test_a_table_at_work_keeps_its_whole_lane_waiting() -> None:
    assert choose([group(A, B)], {B}, THRESHOLDS, now_ms=1000) == ()


def test_tables_that_share_transactions_are_one_lane() -> None:
    found = pending_groups([pending(A), pending(B, oldest_ms=-5), pending(C)], [frozenset({A, B, D})], {}, {})
    assert [one.tables for one in found] == [(A, B), (C,)]
    assert found[0].oldest_ms == -5
    assert found[0].events == 2


def test_what_has_landed_is_not_waiting_any_more() -> None:
    assert pending_groups([pending(A, last_id=5)], [], {}, {A: 5}) == []
    assert len(pending_groups([pending(A, last_id=6)], [], {}, {A: 5})) == 1


def test_a_wish_holds_until_it_has_landed() -> None:
    assert pending_groups([pending(A, last_id=9)], [], {A: 7}, {A: 5})[0].flush_requested
    assert not pending_groups([pending(A, last_id=9)], [], {A: 7}, {A: 7})[0].flush_requested


def test_how_long_until_the_next_is_due() -> None:
    assert wait_ms([], THRESHOLDS, now_ms=0) is None
    assert wait_ms([group(A, oldest_ms=100), group(B, oldest_ms=50)], THRESHOLDS, now_ms=200) == 350
    assert wait_ms([group(A, oldest_ms=0)], THRESHOLDS, now_ms=9000) == 0
