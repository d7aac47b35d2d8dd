"""One server under measurement: its address, its start-up time, its memory and its processor time."""

from __future__ import annotations

import contextlib
import http.client
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.harness.process import Child

START_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Server:
    name: str
    port: int
    warehouse: str
    pid: int
    start_s: float  # from the start of the process to its first right answer
    start_cpu_s: float  # processor time that this took; on a busy machine the truer figure

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def resident_mb(self) -> float:
        """Memory of the process and of all processes below it; pages that they share count for each."""
        return sum(_resident_kb(pid) for pid in _family(self.pid)) / 1024

    def cpu_s(self) -> float:
        """Processor time used until now by the process and all processes below it."""
        return _cpu_s(self.pid)


@contextlib.contextmanager
def serving(name: str, child: Child, *, port: int, warehouse: str) -> Iterator[Server]:
    """Start `child`, yield when `GET /v1/config` answers 200, end it at the end of the block."""
    began = time.monotonic()
    child.start(lambda: _answers(port, warehouse), timeout_s=START_TIMEOUT_S)
    try:
        start_s = time.monotonic() - began
        yield Server(name, port, warehouse, child.pid, start_s, _cpu_s(child.pid))
    finally:
        child.stop()


def _answers(port: int, warehouse: str) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", f"/v1/config?warehouse={warehouse}")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False  # not listening yet
    finally:
        connection.close()


def _cpu_s(pid: int) -> float:
    return sum(map(_own_cpu_s, _family(pid)))


def family_cpu_s(pid: int) -> dict[int, tuple[str, float]]:
    """The name and the processor time of a process and of all processes below it."""
    return {one: (_name(one), _own_cpu_s(one)) for one in _family(pid)}


def family_resident_mb(pid: int) -> dict[int, tuple[str, float]]:
    """The name and the memory of a process and of all processes below it."""
    return {one: (_name(one), _resident_kb(one) / 1024) for one in _family(pid)}


def _name(pid: int) -> str:
    with contextlib.suppress(FileNotFoundError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def _family(pid: int) -> list[int]:
    found = [pid]
    for parent in found:
        for thread in Path(f"/proc/{parent}/task").glob("*/children"):
            with contextlib.suppress(OSError):  # ended between two looks
                found += [int(child) for child in thread.read_text().split()]
    return found


def _resident_kb(pid: int) -> int:
    with contextlib.suppress(FileNotFoundError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1])
    return 0


def _own_cpu_s(pid: int) -> float:
    """By the clock of the process (clock_getcpuclockid), because /proc counts hundredths of a second."""
    with contextlib.suppress(OSError):  # it has ended
        return time.clock_gettime(~pid << 3 | 2)
    return 0.0
