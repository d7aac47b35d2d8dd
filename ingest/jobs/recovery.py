"""What a server finds unfinished when it starts, in one sentence for the log."""

from __future__ import annotations

from collections.abc import Collection

from ingest.journal.journal import Journal
from ingest.landing.jobs import Jobs
from ingest.landing.tables import LandingTables

JOBS_MAX = 1000


def unfinished_work(
    warehouses: Collection[str], journal: Journal, tables: LandingTables, jobs: Jobs
) -> str | None:
    """None if every acknowledged change is visible."""
    events, waiting_tables, unfinished = 0, 0, 0
    for warehouse in warehouses:
        landed = tables.all(warehouse)
        waiting = [
            row
            for row in journal.pending(warehouse)
            if row.table not in landed or row.last_id > landed[row.table].landed_id
        ]
        events += sum(row.events for row in waiting)
        waiting_tables += len(waiting)
        unfinished += sum(job["state"] != "done" for job in jobs.newest(warehouse, JOBS_MAX))
    if not waiting_tables and not unfinished:
        return None
    return (
        f"recovered: {events:,} acknowledged changes of {waiting_tables} tables wait to land, "
        f"{unfinished} unfinished batches are continued"
    )
