"""A query process: it enters its sandbox, then runs DuckDB and one query at a time.

    python -P -m query.child FD

The server starts it with one end of a socket pair, and sends `ProcessSettings` (pool.py) first. The order
matters, because the kernel restricts only the calling thread and threads that it starts later:

1. While there is one thread, the process gives up all rights except to read libraries and warehouses, and to
   connect to the catalog and its storage.
2. It imports DuckDB and the rest (engine.py), which may start threads.
3. It gives up the libraries too, and lets DuckDB start its own threads.
"""

from __future__ import annotations

import socket
import sys
from pathlib import Path
from typing import Any

from query import frames, sandbox

# Files that Python and its libraries read while they are imported.
LIBRARY_PATHS = (
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib64",
    "/usr/local/lib",
    "/usr/share/zoneinfo",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/dev/urandom",
    "/dev/null",
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/self",
    "/sys/fs/cgroup",
    "/sys/devices/system/cpu",
)


def confine_imports(configuration: dict[str, Any]) -> list[str]:
    """Run the first step. Returns what the kernel restricts."""
    if not configuration["confine"]:
        return []
    own = {sys.prefix, sys.base_prefix, str(Path(__file__).parent)}
    paths = [Path(path) for path in (*own, *LIBRARY_PATHS, *configuration["read_paths"])]
    return sandbox.confine(paths, configuration["tcp_ports"])


def main() -> None:
    sandbox.end_with_parent()
    with socket.socket(fileno=int(sys.argv[1])) as server, sandbox.memory_status() as status:
        try:
            configuration = frames.receive_message(server)
            confined = confine_imports(configuration)
            from query.engine import Engine

            engine = Engine(server, configuration, status)
            frames.send_message(server, {"ready": {"confined": confined}})
            engine.serve()
        except (frames.Closed, BrokenPipeError, ConnectionResetError):
            return  # the server has ended, or has closed the connection


if __name__ == "__main__":
    main()
