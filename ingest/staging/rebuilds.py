"""Request rebuilds during staging: of mirrors in which nothing may land before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from catalog.errors import Conflict
from ingest.change import Change
from ingest.evidence import of_changes
from ingest.identity import Key
from ingest.staging.context import StagingContext
from ingest.staging.targets import TablePlan, TableState
from ingest.store.mirrors import Mirrors


def rebuilt_instead(context: StagingContext, warehouse: str, state: TableState, reason: str) -> str:
    """Return why a mirror that others changed does not accept changes. Requests a rebuild if its setting says
    so.
    """
    landed = state.landed
    if landed.settings.mirror_changed != "rebuild" or landed.rebuild is not None:
        return reason
    reason = reason.partition(":")[0]  # without the advice for the user
    Mirrors(context.catalog.database).request(warehouse, landed.table, reason, is_needed=True)
    return f"{reason}: it is rebuilt from its changes table"


def rebuild_by_key(context: StagingContext, warehouse: str, state: TableState, found: TablePlan) -> Conflict:
    """Request a rebuild of a mirror with rows of another key, and return the error until it is done."""
    keys, key = orjson.loads(state.landed.keys or "[]"), Key(found.key, found.key_reason)
    Mirrors(context.catalog.database).rekey(warehouse, found.table, keys, key)
    return Conflict(f"the key of the mirror is ({', '.join(found.key)}) now: it is rebuilt first")


def evidence_of(found: TablePlan, changes: Sequence[Change]) -> dict[str, Any]:
    """Return the evidence in these changes about a guessed key."""
    columns = tuple(column.name for column in found.plan.columns)
    return {"columns": columns, "evidence": of_changes(changes).as_json()}
