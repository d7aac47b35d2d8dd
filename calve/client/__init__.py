"""The Python client. It imports neither the server nor Spark: httpx is all that it needs."""

from __future__ import annotations

from calve.client.async_lake import AsyncLake, AsyncTransaction, connect_async
from calve.client.async_table import AsyncTable
from calve.client.lake import Lake, Transaction, connect
from calve.client.results import Result, WriteResult
from calve.client.subscriptions import Batch, Change
from calve.client.table import Table

__all__ = [
    "AsyncLake",
    "AsyncTable",
    "AsyncTransaction",
    "Batch",
    "Change",
    "Lake",
    "Result",
    "Table",
    "Transaction",
    "WriteResult",
    "connect",
    "connect_async",
]
