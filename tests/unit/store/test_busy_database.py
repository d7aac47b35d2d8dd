"""Writers of one SQLite database wait for each other, and not for ever."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sa

from catalog.errors import Unavailable
from catalog.store import database as store
from catalog.store.database import Database


def test_a_write_that_cannot_wait_longer_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = Database(f"sqlite:///{tmp_path / 'x.db'}")
    database.write(lambda connection: connection.execute(sa.text("CREATE TABLE numbers (number INTEGER)")))
    add = sa.text("INSERT INTO numbers VALUES (1)")
    held, may_go = threading.Event(), threading.Event()

    def first(_connection: sa.Connection) -> None:
        held.set()
        assert may_go.wait(60)

    with ThreadPoolExecutor(1) as threads:
        leading = threads.submit(database.write, first)
        assert held.wait(60)
        monkeypatch.setattr(store, "BUSY_TIMEOUT_S", 0.01)
        with pytest.raises(Unavailable, match="nothing was changed"):
            database.write(lambda connection: connection.execute(add))
        monkeypatch.undo()
        may_go.set()
        leading.result(60)
    assert database.fetch_all(sa.text("SELECT * FROM numbers")) == []
    database.write(lambda connection: connection.execute(add))
    assert len(database.fetch_all(sa.text("SELECT * FROM numbers"))) == 1
    database.close()
