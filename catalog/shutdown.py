"""Whether this server process has been told to stop. Requests that wait for news look at it and end early."""

from __future__ import annotations

import threading

stopping = threading.Event()
