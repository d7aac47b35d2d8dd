"""What webhooks still have to read, and so must not be deleted: rows of the history and of finished jobs.

A receiver may be down for longer than the history is kept. What follows the token of a webhook is kept for
`HOLD_MS` after the webhook was last up to date, also if it is dead by then.
"""

from __future__ import annotations

import sqlalchemy as sa

from catalog.store.database import Database
from catalog.store.schema import webhooks

HOLD_MS = 2 * 86_400_000
_HELD = sa.select(sa.func.min(webhooks.c.number)).where(
    webhooks.c.warehouse == sa.bindparam("w"), webhooks.c.read_ms >= sa.bindparam("since")
)


def held_number(database: Database, warehouse: str, now_ms: int) -> int | None:
    """The lowest number whose rows are held; None if nothing is."""
    row = database.fetch_one(_HELD, {"w": warehouse, "since": now_ms - HOLD_MS})
    return None if row is None or row[0] is None else int(row[0])


def is_held(
    warehouse: sa.ColumnElement[str], number: sa.ColumnElement[int], since: sa.BindParameter[int]
) -> sa.ColumnElement[bool]:
    """The same as a condition on rows of another table; `since` is the time before which nothing is held."""
    return sa.exists().where(
        webhooks.c.warehouse == warehouse, webhooks.c.number <= number, webhooks.c.read_ms >= since
    )
