"""Calve: an Iceberg lakehouse server, its command line, and its Python client.

>>> import calve
>>> lake = calve.connect()
>>> lake.query("SELECT count(*) AS n FROM shop.orders").rows
[{'n': 17}]

The client needs httpx alone. The server is the extra `calve[server]`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from calve.client import connect, connect_async

__version__ = "0.1.0"
__all__ = ["__version__", "connect", "connect_async"]


def __getattr__(name: str) -> Any:
    # The server and `calve --help` import this package too, and need no client.
    if name in ("connect", "connect_async"):
        from calve import client

        return getattr(client, name)
    raise AttributeError(f"module 'calve' has no attribute {name!r}")
