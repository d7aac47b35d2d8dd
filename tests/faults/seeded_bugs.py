"""Deliberate mistakes, a line each, that show whether the tests would notice: the test of the tests.

`plant(name)` makes one in this process for good, for a child that is about to die; `planted(name, patch)`
makes one until the patch is undone. tests/faults/test_seeded_bugs.py names the check that finds each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from catalog.api import context as api_context
from catalog.locations import Location
from catalog.models import IdempotencyRecord, WriteRequest
from catalog.services import commits, transactions, writes
from catalog.services.catalog import CurrentState
from catalog.storage.files import StorageFiles
from catalog.store import entries as store
from catalog.store import structure
from catalog.store import transactions as publishing_store
from catalog.store import transactions as transaction_store

Put = Callable[[Any, str, Any], None]


def _update_without_the_version_predicate(put: Put) -> None:
    put(store, "_UPDATE", store._update.where(*structure.row))


def _number_in_its_own_transaction(put: Put) -> None:
    taken = store._take_number

    def take(connection: sa.Connection, warehouse: str) -> tuple[int, int]:
        with connection.engine.begin() as own:
            return taken(own, warehouse)

    put(store, "_take_number", take)


def _rows_of_one_commit_set_one_by_one(put: Put) -> None:
    written = CurrentState.write

    def write(self: CurrentState, wanted: WriteRequest) -> None:
        for change in wanted.changes:
            written(self, WriteRequest([change], wanted.principal, wanted.now_ms))

    put(CurrentState, "write", write)


def _key_not_scoped_to_the_operation(put: Put) -> None:
    def record(**fields: Any) -> IdempotencyRecord:
        return IdempotencyRecord(**fields | {"operation": "", "target": "", "body_hash": ""})

    put(api_context, "IdempotencyRecord", record)


def _prefix_compared_without_the_slash(put: Put) -> None:
    put(Location, "is_inside", lambda self, root: self.canonical.startswith(root.canonical))


def _file_written_after_the_swap(put: Put) -> None:
    waiting: list[tuple[StorageFiles, str, bytes]] = []
    created, written = StorageFiles.create, CurrentState.write

    def write(self: CurrentState, wanted: WriteRequest) -> None:
        written(self, wanted)
        while waiting:
            created(*waiting.pop())

    put(StorageFiles, "create", lambda self, location, data: waiting.append((self, location, data)))
    put(CurrentState, "write", write)


def _replay_detection_off(put: Put) -> None:
    put(commits, "is_replay", lambda *_: False)


def _late_writers_let_in(put: Put) -> None:
    for module in (transaction_store, publishing_store):
        put(module, "lock_open", lambda *_: None)


def _first_committer_does_not_win(put: Put) -> None:
    put(transactions, "_rebased", lambda catalog, present, held, live: held.after)


def _files_deleted_when_nobody_knows(put: Put) -> None:
    class Never(Exception):
        pass

    put(writes, "CommitStateUnknown", Never)


def _protection_forgotten_in_a_publish(put: Put) -> None:
    put(transactions, "_refuse_protected", lambda *_: None)
    put(store, "_REPLACE", store._UPDATE)


BUGS: dict[str, Callable[[Put], None]] = {
    "update without the version predicate": _update_without_the_version_predicate,
    "number taken in its own transaction": _number_in_its_own_transaction,
    "rows of one commit set one by one": _rows_of_one_commit_set_one_by_one,
    "idempotency key not scoped to the operation": _key_not_scoped_to_the_operation,
    "location prefix compared without the slash": _prefix_compared_without_the_slash,
    "file written after the swap": _file_written_after_the_swap,
    "replay detection off": _replay_detection_off,
    "late writers let in": _late_writers_let_in,
    "first committer does not win": _first_committer_does_not_win,
    "files deleted when nobody knows": _files_deleted_when_nobody_knows,
    "protection forgotten in a publish": _protection_forgotten_in_a_publish,
}


def plant(name: str) -> None:
    BUGS[name](setattr)


def planted(name: str, patch: pytest.MonkeyPatch) -> None:
    BUGS[name](patch.setattr)
