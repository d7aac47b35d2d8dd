"""Open transactions: their requests, and the state that both forms of the client share."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from calve.client import operations
from calve.client.calls import Call, Steps
from calve.client.operations import WarehouseAddress


def _path(address: WarehouseAddress, rest: str = "") -> str:
    return f"/lake/v1/{quote(address.warehouse, safe='')}/transactions{rest}"


def open_transaction(address: WarehouseAddress, name: str | None, ttl_s: int | None) -> Steps[dict[str, Any]]:
    body: dict[str, Any] = {}
    if name is not None:
        body["name"] = name
    if ttl_s is not None:
        body["ttl-s"] = ttl_s
    response = yield Call("POST", _path(address), json=body)
    found: dict[str, Any] = response.json()
    return found


def extend(address: WarehouseAddress, name: str, ttl_s: int) -> Steps[None]:
    yield Call("POST", _path(address, f"/{quote(name, safe='')}/extend"), json={"ttl-s": ttl_s})


def publish(address: WarehouseAddress, name: str) -> Steps[int | None]:
    """A publish is safe to repeat: a published transaction answers with its number."""
    response = yield Call("POST", _path(address, f"/{quote(name, safe='')}/commit"), is_repeatable=True)
    number: int | None = response.json()["number"]
    return number


def abort(address: WarehouseAddress, name: str) -> Steps[None]:
    yield Call("DELETE", _path(address, f"/{quote(name, safe='')}"))


class OpenTransaction:
    """The name of a transaction, and settings that make engines write into it."""

    def __init__(self, address: WarehouseAddress, found: dict[str, Any]) -> None:
        self._address = address
        self.name: str = found["name"]
        self.warehouse: str = found["warehouse"]  #: what engines attach: main~name
        self.base_number: int = found["base-number"]  #: the state that it began with
        self.number: int | None = None  #: the number it was published under
        self.is_closed = False

    def __repr__(self) -> str:
        return f"<calve transaction {self.warehouse}>"

    def catalog_properties(self) -> dict[str, str]:
        """For PyIceberg: `load_catalog("tx", **tx.catalog_properties())`."""
        return operations.catalog_properties(self._address, self.warehouse)

    def spark_properties(self, name: str = "tx") -> dict[str, str]:
        """For Spark: settings of a catalog of this name."""
        return operations.spark_properties(self._address, self.warehouse, name)

    def duckdb_sql(self, name: str = "tx") -> str:
        """For DuckDB: statements that attach the transaction under this name."""
        return operations.duckdb_sql(self._address, self.warehouse, name)

    def _published(self, number: int | None) -> None:
        self.number = number
        self.is_closed = True
