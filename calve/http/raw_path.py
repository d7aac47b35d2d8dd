"""Route by the path as the client sent it, not by the decoded one.

The name of a table may contain an encoded slash, which must not separate segments: `a%2Fb` is one name. The
dependencies of the routes decode the segments. A path without a prefix (`/v1/namespaces/...`) means the
warehouse `main`; it gets that prefix here, so that each operation is one route.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any

App = Callable[[Any, Any, Any], Awaitable[None]]

RAW_PREFIXES = ("/v1/", "/lake/v1/", "/cdc", "/topics/")
# These words cannot name a warehouse (RESERVED_WAREHOUSE_NAMES).
_WITHOUT_PREFIX = re.compile(r"/v1(?=/(namespaces|tables|views|transactions)(/|$))")


class RawPathMiddleware:
    def __init__(self, app: App) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["path"].startswith(RAW_PREFIXES):
            raw = scope["raw_path"].decode("ascii", "replace")
            scope["path"] = _WITHOUT_PREFIX.sub("/v1/main", raw, count=1) if raw.startswith("/v1/") else raw
        await self.app(scope, receive, send)
