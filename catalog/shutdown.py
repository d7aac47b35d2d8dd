"""Set when this server process begins to stop. Long polls check it and end early."""

from __future__ import annotations

import threading

stopping = threading.Event()
