"""What the operating system knows about server processes, in the names that Prometheus uses for it.

Read from /proc, summed over all server processes; where there is no /proc, these lines are left out.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

PROC = Path("/proc")


def is_alive(pid: int) -> bool:
    """Is there a process of this id? The id 0 means none."""
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def lines(pids: Sequence[int]) -> list[str]:
    """Metric lines over these processes."""
    found = [measured for pid in pids if (measured := _measure(pid)) is not None]
    text = [
        "# HELP calve_server_processes Server processes that are alive.",
        "# TYPE calve_server_processes gauge",
        f"calve_server_processes {len(pids)}",
    ]
    if not found:
        return text
    cpu, resident, descriptors, started = zip(*found, strict=True)
    rows = (
        ("process_cpu_seconds_total", "counter", "CPU time of the server processes.", sum(cpu)),
        ("process_resident_memory_bytes", "gauge", "Memory of the server processes.", sum(resident)),
        (
            "process_open_fds",
            "gauge",
            "Open files and connections of the server processes.",
            sum(descriptors),
        ),
        ("process_start_time_seconds", "gauge", "Start of the oldest server process.", min(started)),
    )
    for name, kind, doc, value in rows:
        text += [f"# HELP {name} {doc}", f"# TYPE {name} {kind}", f"{name} {value}"]
    return text


def _measure(pid: int) -> tuple[float, int, int, float] | None:
    """CPU seconds, resident bytes, open descriptors, start time; None if there is nothing to read."""
    folder = PROC / str(pid)
    try:
        # The name of the program stands in parentheses and may hold spaces.
        stat = (folder / "stat").read_text().rpartition(")")[2].split()
        descriptors = len(os.listdir(folder / "fd"))  # noqa: PTH208 - counted, not looked at
        boot = next(line for line in (PROC / "stat").read_text().splitlines() if line.startswith("btime"))
    except (OSError, StopIteration):
        return None
    ticks = os.sysconf("SC_CLK_TCK")
    cpu = (int(stat[11]) + int(stat[12])) / ticks
    resident = int(stat[21]) * os.sysconf("SC_PAGE_SIZE")
    return cpu, resident, descriptors, int(boot.split()[1]) + int(stat[19]) / ticks
