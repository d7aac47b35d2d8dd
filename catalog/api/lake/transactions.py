"""Open transactions: open, look, extend, commit, abort.

Their work goes through the prefix `warehouse~name`.
"""

from __future__ import annotations

from typing import Any, Literal

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from catalog.api.lake.access import CallerOf, CatalogOf, Readable, Writable
from catalog.api.lake.pages import INTEGER_MAX, Paged, PageOf
from catalog.names import check_transaction_name
from catalog.rows import Staged, Transaction
from catalog.service import transactions

router = APIRouter(tags=["Transactions"])


class OpenRequest(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True)
    name: str | None = Field(None, description="Unique while open; made up where left out")
    ttl_s: int | None = Field(None, alias="ttl-s", ge=1, description="Ends by itself after this many seconds")


class ExtendRequest(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True)
    ttl_s: int = Field(alias="ttl-s", ge=1)


class TransactionAnswer(BaseModel):
    name: str
    id: str
    warehouse: str = Field(description="What engines attach to: warehouse=main~name")
    state: Literal["open", "committed", "aborted", "expired"]
    base_number: int = Field(serialization_alias="base-number")
    number: int | None = Field(None, description="The number it was published under")
    opened_ms: int = Field(serialization_alias="opened-ms")
    expires_ms: int = Field(serialization_alias="expires-ms")
    principal: str


class TouchedAnswer(BaseModel):
    operation: str
    kind: str
    namespace: list[str]
    name: str | None
    added_snapshots: list[int] = Field(serialization_alias="added-snapshots")
    base_version: int | None = Field(serialization_alias="base-version")
    metadata_location: str | None = Field(serialization_alias="metadata-location")


class TransactionDetail(TransactionAnswer):
    touched: list[TouchedAnswer]


class TransactionList(Paged):
    transactions: list[TransactionAnswer]


class CommitAnswer(BaseModel):
    number: int | None = Field(
        description="The number everything became visible under; null if nothing was changed"
    )
    touched: list[TouchedAnswer]


@router.post("/{warehouse}/transactions", operation_id="openTransaction", response_model=TransactionAnswer)
def open_transaction(catalog: CatalogOf, caller: CallerOf, warehouse: Writable, body: OpenRequest) -> Any:
    """Open a transaction at the newest number."""
    return _answer(
        catalog, transactions.open_transaction(catalog, warehouse, caller.name, body.name, body.ttl_s)
    )


@router.get("/{warehouse}/transactions", operation_id="listTransactions", response_model=TransactionList)
def list_transactions(catalog: CatalogOf, warehouse: Readable, page: PageOf) -> Any:
    """Transactions, newest first, whatever became of them."""
    before_ms, before_id = page.after(INTEGER_MAX, "")
    rows = catalog.transactions.before(warehouse, before_ms, before_id, page.rows_max)
    shown, token = page.cut(rows, lambda found: (found.opened_ms, found.id))
    return {"transactions": [_answer(catalog, found) for found in shown], "next_page_token": token}


@router.get(
    "/{warehouse}/transactions/{name}", operation_id="loadTransaction", response_model=TransactionDetail
)
def load_transaction(catalog: CatalogOf, warehouse: Readable, name: str) -> Any:
    """The newest transaction of that name, with what it holds back."""
    found = transactions.newest(catalog, warehouse, check_transaction_name(name))
    touched = [_touched(held) for held in catalog.transactions.all_staged(found.id)]
    return _answer(catalog, found) | {"touched": touched}


@router.post(
    "/{warehouse}/transactions/{name}/extend",
    operation_id="extendTransaction",
    response_model=TransactionAnswer,
)
def extend_transaction(catalog: CatalogOf, warehouse: Writable, name: str, body: ExtendRequest) -> Any:
    """More time."""
    return _answer(catalog, transactions.extend(catalog, warehouse, check_transaction_name(name), body.ttl_s))


@router.post(
    "/{warehouse}/transactions/{name}/commit", operation_id="publishTransaction", response_model=CommitAnswer
)
def publish_transaction(catalog: CatalogOf, caller: CallerOf, warehouse: Writable, name: str) -> Any:
    """Make all of it visible at once, or nothing: 409 names the tables that moved meanwhile."""
    number, staged = transactions.publish(catalog, warehouse, caller.name, check_transaction_name(name))
    catalog.purging.soon(warehouse, [held.last.uuid for held in staged if transactions.is_purged(held)])
    return {"number": number, "touched": [_touched(held) for held in staged]}


@router.delete("/{warehouse}/transactions/{name}", operation_id="abortTransaction", status_code=204)
def abort_transaction(catalog: CatalogOf, warehouse: Writable, name: str) -> None:
    """Forget all of it."""
    transactions.abort(catalog, warehouse, check_transaction_name(name))


def _answer(catalog: CatalogOf, found: Transaction) -> dict[str, Any]:
    over = found.state == "open" and not found.is_open(catalog.now_ms())
    return {
        "name": found.name,
        "id": found.id,
        "warehouse": f"{found.warehouse}~{found.name}",
        "state": "expired" if over else found.state,
        "base_number": found.base_number,
        "number": found.number,
        "opened_ms": found.opened_ms,
        "expires_ms": found.expires_ms,
        "principal": found.principal,
    }


def _touched(held: Staged) -> dict[str, Any]:
    return {
        "operation": held.operation,
        "kind": held.kind,
        "namespace": held.namespace.split("\x1f"),
        "name": held.name or None,
        "added_snapshots": held.detail.get("added-snapshots", []),
        "base_version": held.base_version,
        "metadata_location": held.last.metadata_location,
    }
