"""Whether this server process has been told to stop: a request that only waits for news ends then."""

from __future__ import annotations

import threading

stopping = threading.Event()
