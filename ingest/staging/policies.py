"""What the settings of a table say about truncates and deletes, applied to its changes. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from catalog.errors import Invalid
from ingest.change import Change, Declared
from ingest.identity import ArrivedChange
from ingest.store.table_settings import IS_DELETED, TableSettings


def under_policies(arrived: Sequence[ArrivedChange], settings: TableSettings) -> list[ArrivedChange]:
    """The changes as they land. Invalid if a truncate has to wait for a decision."""
    if settings.truncate != "apply":
        arrived = _without_truncates(arrived, settings)
    if settings.deletes == "soft":
        return [ArrivedChange(item.journal_id, item.ordinal, _soft(item.change)) for item in arrived]
    return list(arrived)


def _without_truncates(arrived: Sequence[ArrivedChange], settings: TableSettings) -> list[ArrivedChange]:
    kept = [item for item in arrived if item.change.operation != "truncate"]
    if settings.truncate == "hold" and len(kept) < len(arrived):
        raise Invalid("the source has truncated the table: set truncate to apply or ignore, and it goes on")
    return kept


def _soft(change: Change) -> Change:
    """A delete becomes an update that says so; every other column keeps its value."""
    if change.operation == "truncate":
        return change
    is_delete = change.operation == "delete"
    row = {} if is_delete else change.after or {}
    declared = change.declared
    if declared is not None:
        columns = {**declared.columns, IS_DELETED: "boolean"}
        declared = Declared(columns, declared.encodings, declared.required)
    return replace(
        change,
        operation="update" if is_delete else change.operation,
        before=change.before if not is_delete else {**(change.after or {}), **(change.before or {})},
        after={**row, IS_DELETED: is_delete},
        declared=declared,
    )
