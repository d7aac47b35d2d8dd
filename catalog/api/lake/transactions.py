"""Open transactions: open, list, load, extend, commit, abort.

Reads and writes inside one go through the prefix `warehouse~name`.
"""

from __future__ import annotations

from typing import Any, Literal

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from catalog.api.dependencies import (
    CallerDep,
    CatalogDep,
    ReaderTransaction,
    ReaderWarehouse,
    WriterTransaction,
    WriterWarehouse,
    WriteSlot,
)
from catalog.api.pagination import INTEGER_MAX, Paged, PageDep
from catalog.models import Role, StagedChange, Transaction
from catalog.services import transactions
from catalog.services.catalog import Catalog

router = APIRouter(tags=["Transactions"])


class OpenRequest(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True)
    name: str | None = Field(None, description="Unique while open; generated if omitted")
    ttl_s: int | None = Field(
        None, alias="ttl-s", ge=1, description="The transaction expires after this many seconds"
    )


class ExtendRequest(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True)
    ttl_s: int = Field(alias="ttl-s", ge=1)


class TransactionAnswer(BaseModel):
    name: str
    id: str
    warehouse: str = Field(description="What engines attach to: warehouse=main~name")
    state: Literal["open", "committed", "aborted", "expired"]
    base_number: int = Field(serialization_alias="base-number")
    number: int | None = Field(None, description="The number under which it was published")
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
        description="The number under which everything became visible; null if nothing was changed"
    )
    touched: list[TouchedAnswer]


@router.post("/{warehouse}/transactions", operation_id="openTransaction", response_model=TransactionAnswer)
def open_transaction(
    catalog: CatalogDep, caller: CallerDep, warehouse: WriterWarehouse, body: OpenRequest, _: WriteSlot
) -> Any:
    """Open a transaction at the newest number. It belongs to the caller and to administrators."""
    return _answer(
        catalog, transactions.open_transaction(catalog, warehouse, caller.name, body.name, body.ttl_s)
    )


@router.get("/{warehouse}/transactions", operation_id="listTransactions", response_model=TransactionList)
def list_transactions(
    catalog: CatalogDep, caller: CallerDep, warehouse: ReaderWarehouse, page: PageDep
) -> Any:
    """Transactions, newest first, open and closed: the caller's own, or all for an administrator."""
    before_ms, before_id = page.after(INTEGER_MAX, "")
    owner = "" if caller.role(warehouse) == Role.ADMIN else caller.name
    rows = catalog.transactions.before(warehouse, before_ms, before_id, page.rows_max, owner)
    shown, token = page.cut(rows, lambda found: (found.opened_ms, found.id))
    return {"transactions": [_answer(catalog, found) for found in shown], "next_page_token": token}


@router.get(
    "/{warehouse}/transactions/{name}", operation_id="loadTransaction", response_model=TransactionDetail
)
def load_transaction(catalog: CatalogDep, transaction: ReaderTransaction) -> Any:
    """The newest transaction of that name, with its staged changes."""
    touched = [_touched(held) for held in catalog.transactions.all_staged(transaction.id)]
    return _answer(catalog, transaction) | {"touched": touched}


@router.post(
    "/{warehouse}/transactions/{name}/extend",
    operation_id="extendTransaction",
    response_model=TransactionAnswer,
)
def extend_transaction(
    catalog: CatalogDep, transaction: WriterTransaction, body: ExtendRequest, _: WriteSlot
) -> Any:
    """Extend the lifetime of an open transaction."""
    extended = transactions.extend(
        catalog, transaction.warehouse, transaction.name, body.ttl_s, id_=transaction.id
    )
    return _answer(catalog, extended)


@router.post(
    "/{warehouse}/transactions/{name}/commit", operation_id="publishTransaction", response_model=CommitAnswer
)
def publish_transaction(
    catalog: CatalogDep, caller: CallerDep, transaction: WriterTransaction, _: WriteSlot
) -> Any:
    """Publish all changes at once, or none: 409 names the tables that have changed meanwhile."""
    warehouse = transaction.warehouse
    number, staged = transactions.publish(
        catalog, warehouse, caller.name, transaction.name, id_=transaction.id
    )
    catalog.purge_worker.submit(
        warehouse, [held.last.uuid for held in staged if transactions.is_purged(held)]
    )
    return {"number": number, "touched": [_touched(held) for held in staged]}


@router.delete("/{warehouse}/transactions/{name}", operation_id="abortTransaction", status_code=204)
def abort_transaction(catalog: CatalogDep, transaction: WriterTransaction, _: WriteSlot) -> None:
    """Abort the transaction and discard its changes."""
    transactions.abort(catalog, transaction.warehouse, transaction.name, id_=transaction.id)


def _answer(catalog: Catalog, found: Transaction) -> dict[str, Any]:
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


def _touched(held: StagedChange) -> dict[str, Any]:
    return {
        "operation": held.operation,
        "kind": held.kind,
        "namespace": held.namespace.split("\x1f"),
        "name": held.name or None,
        "added_snapshots": held.detail.get("added-snapshots", []),
        "base_version": held.base_version,
        "metadata_location": held.last.metadata_location,
    }
