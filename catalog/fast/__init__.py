"""Everything that exists only for speed. `fast_paths = false` turns all of it off."""

from __future__ import annotations

from catalog.fast.group_commit import GroupCommit
from catalog.store.database import Writer


def writer(url: str) -> Writer | None:
    """Group commit for SQLite. PostgreSQL has its own, so it needs none."""
    return GroupCommit() if url.startswith("sqlite") else None
