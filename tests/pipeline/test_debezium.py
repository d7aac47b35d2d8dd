"""Debezium Server, unmodified, from a real PostgreSQL: the mirror is the table, whatever crashes."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

import pytest

from tests.harness.stacks import StackName, Stacks
from tests.pipeline.debezium import Sending
from tests.pipeline.debezium_proof import Run, require_equal, require_mirrors, running
from tests.pipeline.shop import Shop

pytestmark = [pytest.mark.proof, pytest.mark.timeout(1_800)]

SINGLE, BATCHED = Sending(), Sending(batches=True)
BARE = Sending(schemas=False, batches=True)
PLAIN = ("people", "accounts", "scratch", "done")  # tables whose values need no declared type


@pytest.mark.parametrize(
    ("name", "sending", "rows"),
    [("embedded", SINGLE, 200), ("embedded", BATCHED, 1_000), ("postgres-s3", BATCHED, 200)],
    ids=["embedded-single", "embedded-batched", "postgres-s3-batched"],
)
def test_the_mirror_is_the_table_over_all_crashes(
    name: StackName, sending: Sending, rows: int, stacks: Stacks, tmp_path: Path
) -> None:
    with (
        stacks.started(name, tmp_path / "stack") as stack,
        running(stack, tmp_path, sending=sending, rows=rows) as run,
    ):
        run.worker.start(wait=False)
        run.debezium.start()
        run.wait_for_load()
        run.shop.corner_cases()
        for crash in (run.kill_debezium, run.kill_server, run.kill_worker, run.kill_debezium):
            before = run.received()
            live(run.shop, 40)
            wait_for_some(run, before)
            crash()
        live(run.shop, 20)
        run.wait_for_all()
        require_equal(run)


def test_a_first_load_that_is_killed_is_done_again(stacks: Stacks, tmp_path: Path) -> None:
    """The rows come twice, as Debezium reads them twice; the mirror has them once.

    What is deleted before Debezium reads again it never tells of, so nothing is.
    """
    with (
        stacks.started("embedded", tmp_path / "stack") as stack,
        running(stack, tmp_path, sending=SINGLE, rows=300) as run,
    ):
        run.worker.start(wait=False)
        run.debezium.start(wait=False)
        wait_for_some(run, 0)
        run.debezium.kill()
        for table in run.shop.tables[:-1]:
            run.shop.transaction(partial(run.shop.insert, table))
            run.shop.transaction(partial(run.shop.update, table))
        run.debezium.start()
        live(run.shop, 20)
        run.wait_for_all()
        require_mirrors(run)


def test_without_schemas_plain_values_are_what_they_are(stacks: Stacks, tmp_path: Path) -> None:
    with (
        stacks.started("embedded", tmp_path / "stack") as stack,
        running(stack, tmp_path, sending=BARE, rows=50, tables=PLAIN) as run,
    ):
        run.worker.start(wait=False)
        run.debezium.start()
        run.wait_for_load()
        run.shop.corner_cases()
        live(run.shop, 40)
        run.kill_debezium()
        live(run.shop, 20)
        run.wait_for_all()
        require_equal(run)


def test_a_transaction_that_is_open_while_the_first_load_begins(stacks: Stacks, tmp_path: Path) -> None:
    """Its change stands in the database's log before the load's place, and is newer than what the load read.

    Debezium's slot waits until all that ran before it is over, in two steps; `within` begins after the first.
    """
    with (
        stacks.started("embedded", tmp_path / "stack") as stack,
        running(stack, tmp_path, sending=SINGLE, rows=3, tables=("scratch", "done")) as run,
        run.shop.connected() as first,
        run.shop.connected() as second,
        run.shop.connected() as within,
    ):
        first.execute("INSERT INTO shop.scratch VALUES (1, 'first')")
        run.worker.start(wait=False)
        run.debezium.start(wait=False)
        run.shop.wait_for_slot()
        second.execute("INSERT INTO shop.scratch VALUES (2, 'second')")
        first.commit()
        run.shop.wait_for_slot(second)
        within.execute("UPDATE shop.scratch SET word = 'within' WHERE id > 2")
        second.commit()
        run.wait_for_load()
        within.commit()
        run.wait_for_all()
        require_mirrors(run)


def live(shop: Shop, transactions: int) -> None:
    for _ in range(transactions):
        shop.step()


def wait_for_some(run: Run, before: int, events: int = 20) -> None:
    """Until something has been taken since `before`: the next crash is in the middle, or at the end."""
    until_s = time.monotonic() + 120
    while run.received() < before + events:
        assert time.monotonic() < until_s, f"nothing arrives:\n{run.debezium.tail()}"
        time.sleep(0.05)
