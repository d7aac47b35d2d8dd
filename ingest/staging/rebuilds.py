"""What staging does about mirrors that have to be rebuilt before anything lands in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from catalog.errors import Conflict
from ingest.change import Change, TableName
from ingest.evidence import of_changes
from ingest.identity import Key
from ingest.staging.context import StagingContext
from ingest.staging.targets import TablePlan, TableState
from ingest.store.mirrors import Mirrors


def rebuilt_instead(context: StagingContext, warehouse: str, state: TableState, reason: str) -> str:
    """Why a mirror that others changed is not landed into. If its setting says so, it is rebuilt."""
    landed = state.landed
    if landed.settings.mirror_changed != "rebuild" or landed.rebuild is not None:
        return reason
    reason = reason.partition(":")[0]  # without what a person could do
    Mirrors(context.catalog.database).request(warehouse, landed.table, reason, is_needed=True)
    return f"{reason}: it is rebuilt from its changes table"


def has_another_key(state: TableState, found: TablePlan, known: Key) -> bool:
    """`known`: the key that rows were landed by, with the names that its columns have now."""
    if found.mirror is None or state.mirror is None or not found.key or not known.columns:
        return False
    return set(found.key) != set(known.columns)


def rebuild_by_key(
    context: StagingContext, warehouse: str, table: TableName, state: TableState, found: TablePlan
) -> Conflict:
    """Request a rebuild, and say so: before a mirror gets rows by another key, it is rebuilt."""
    keys, key = orjson.loads(state.landed.keys or "[]"), Key(found.key, found.key_reason)
    Mirrors(context.catalog.database).rekey(warehouse, table, keys, key)
    return Conflict(f"the key of the mirror is ({', '.join(found.key)}) now: it is rebuilt first")


def evidence_of(found: TablePlan, changes: Sequence[Change]) -> dict[str, Any]:
    """What these changes say of a guessed key."""
    columns = tuple(column.name for column in found.plan.columns)
    return {"columns": columns, "evidence": of_changes(changes).as_json()}
