"""`POST /v1/{prefix}/transactions/commit`: commits to several tables, all or nothing."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response

from catalog.api import spec
from catalog.api.context import WriteDep, list_field
from catalog.api.responses import no_content
from catalog.errors import Invalid
from catalog.names import identifier_from_body
from catalog.services import commits

router = APIRouter(tags=["Catalog API"])


@router.post(
    f"{spec.PREFIX}/transactions/commit",
    operation_id="commitTransaction",
    summary="Commit changes to several tables, all or nothing",
    **spec.operation(
        errors={**spec.NO_TABLE, **spec.COMMIT}, body="CommitTransactionRequest", writes=True, takes_key=True
    ),
)
def commit_transaction(write: WriteDep) -> Response:
    changes = [table_commit(change) for change in list_field(write.json(), "table-changes")]
    if not changes:
        raise Invalid("table-changes must not be empty")
    write.run_once(
        work=lambda: commits.commit_tables(write.catalog, write.state, write.context, changes),
        restore=lambda _saved: [],
    )
    return no_content()


def table_commit(change: Any) -> commits.TableCommit:
    """An element of `table-changes`."""
    if not isinstance(change, dict):
        raise Invalid("table-changes must be a list of objects")
    identifier = identifier_from_body(change.get("identifier"))
    return commits.TableCommit(identifier, list_field(change, "requirements"), list_field(change, "updates"))
