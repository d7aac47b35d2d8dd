"""Every SQL table has something that bounds it, and the journal's own rows end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from catalog.store import schema as catalog_schema
from catalog.store.database import Database
from ingest.journal import schema as journal_schema
from ingest.store import schema as landing_schema
from maintenance.row_lifetimes import CLOSED_LETTERS_MS, LIFETIMES, RowLifetimes
from tests.harness.components import ROOT

SCHEMAS = (catalog_schema, landing_schema, journal_schema)
NOW_MS = 10**13


def test_every_sql_table_has_a_lifetime() -> None:
    tables = {name for schema in SCHEMAS for name in schema.metadata.tables}
    assert set(LIFETIMES) == tables


def test_the_documentation_lists_every_lifetime() -> None:
    page = (ROOT / "docs" / "maintenance.md").read_text()
    missing = [name for name, bound in LIFETIMES.items() if f"| `{name}` | {bound} |" not in page]
    assert not missing


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Database]:
    database = Database(f"sqlite:///{tmp_path}/journal.db")
    journal_schema.metadata.create_all(database.engine)
    yield database
    database.close()


def letter(number: int, **more: Any) -> dict[str, Any]:
    return {
        "id": f"l{number}",
        "warehouse": "main",
        "table_key": "shop\x1forders",
        "journal_id": number,
        "ordinal": 0,
        "code": "type",
        "reason": "it does not fit",
        "original": b"{}",
        "source": "s",
        "position": "1",
        "received_ms": NOW_MS,
        "state": "open",
        "changed_ms": NOW_MS,
        **more,
    }


def test_closed_letters_end_and_open_ones_are_capped(journal: Database) -> None:
    old_ms = NOW_MS - CLOSED_LETTERS_MS - 1
    rows = [
        letter(1, state="dropped", changed_ms=old_ms, code="other"),
        letter(2, state="open", changed_ms=old_ms, code="other"),
        letter(3, state="replayed", code="other"),
        *(letter(number) for number in range(10, 20)),
    ]
    insert = sa.insert(journal_schema.dead_letters)
    journal.write(lambda connection: [connection.execute(insert, row) for row in rows])
    RowLifetimes(journal, letters_max=4).sweep(NOW_MS)
    left = {row[0] for row in journal.fetch_all(sa.select(journal_schema.dead_letters.c.id))}
    assert left == {"l2", "l3", "l16", "l17", "l18", "l19"}


def test_only_the_newest_ranges_of_a_source_stay(journal: Database) -> None:
    def work(connection: sa.Connection) -> None:
        for source in ("a", "b"):
            for first in range(0, 100 if source == "a" else 6, 2):
                row = {"warehouse": "main", "source": source, "first": first, "last": first}
                connection.execute(sa.insert(journal_schema.ranges), row)

    journal.write(work)
    RowLifetimes(journal, ranges_max=5).sweep(NOW_MS)
    ranges = journal_schema.ranges
    found = journal.fetch_all(
        sa.select(ranges.c.source, ranges.c.first).order_by(ranges.c.source, ranges.c.first)
    )
    assert [tuple(row) for row in found] == [("a", n) for n in (90, 92, 94, 96, 98)] + [
        ("b", n) for n in (0, 2, 4)
    ]
