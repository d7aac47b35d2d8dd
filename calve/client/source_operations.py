"""The operations on sources, as steps that `Connection` and `AsyncConnection` run."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from calve.client.calls import Call, Steps
from calve.client.operations import WarehouseAddress

Document = dict[str, Any]
PAGE = 1000


def sources(address: WarehouseAddress) -> Steps[list[Document]]:
    found: list[Document] = []
    token: str | None = None
    while True:
        params = {"pageSize": PAGE} | ({} if token is None else {"pageToken": token})
        response = yield Call("GET", _path(address), params)
        page = response.json()
        found += page["sources"]
        token = page.get("next-page-token")
        if token is None:
            return found


def source(address: WarehouseAddress, name: str) -> Steps[Document]:
    response = yield Call("GET", _path(address, name))
    found: Document = response.json()
    return found


def set_source(address: WarehouseAddress, name: str, rules: Document) -> Steps[Document]:
    response = yield Call("PUT", _path(address, name), json=rules)
    found: Document = response.json()
    return found


def delete_source(address: WarehouseAddress, name: str) -> Steps[None]:
    yield Call("DELETE", _path(address, name))


def pause_source(address: WarehouseAddress, name: str, reason: str | None) -> Steps[Document]:
    body = {} if reason is None else {"reason": reason}
    response = yield Call("POST", f"{_path(address, name)}/pause", json=body)
    found: Document = response.json()
    return found


def resume_source(address: WarehouseAddress, name: str) -> Steps[Document]:
    response = yield Call("POST", f"{_path(address, name)}/resume")
    found: Document = response.json()
    return found


def begin_epoch(
    address: WarehouseAddress, name: str, reason: str | None, *, same_history: bool
) -> Steps[Document]:
    body: Document = {"same-history": same_history} | ({} if reason is None else {"reason": reason})
    response = yield Call("POST", f"{_path(address, name)}/epoch", json=body)
    found: Document = response.json()
    return found


def _path(address: WarehouseAddress, name: str | None = None) -> str:
    path = f"/lake/v1/{quote(address.warehouse, safe='')}/sources"
    return path if name is None else f"{path}/{quote(name, safe='')}"
