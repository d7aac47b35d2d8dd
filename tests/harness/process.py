"""One child process: starts, is waited for, is ended by its id, and never outlives the tests.

A `Child` leads a process group of its own, so that `kill` reaches its workers and nothing else. The kernel
ends it when the test process dies without a chance to clean up; to the kernel the parent is a thread, hence
only the main thread may start one.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.harness.components import program
from tests.harness.errors import ComponentFailed

LOG_TAIL_BYTES = 4_000


class Child:
    """`command` with its output appended to `log`; start, stop and kill may follow each other at will."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        log: Path,
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
        user: str | None = None,
        stop_signal: signal.Signals = signal.SIGTERM,
    ) -> None:
        self.log = log
        self._command = [*_guard(user), *command]
        self._environment = environment
        self._folder = folder
        self._stop_signal = stop_signal
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def name(self) -> str:
        return Path(self.log).stem

    @property
    def pid(self) -> int:
        if self._process is None:
            raise ComponentFailed(f"{self.name} is not running")
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self, is_ready: Callable[[], bool], *, timeout_s: float = 120) -> None:
        """Start the process and return when `is_ready` answers true."""
        if self.running:
            raise ComponentFailed(f"{self.name} runs already")
        if threading.current_thread() is not threading.main_thread():
            raise ComponentFailed(f"{self.name} would end with this thread: start it from the main thread")
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self._environment,
                cwd=self._folder,
                start_new_session=True,
            )
        deadline = time.monotonic() + timeout_s
        while not is_ready():
            if self._process.poll() is not None:
                raise ComponentFailed(f"{self.name} ended with {self._process.returncode}:\n{self.tail()}")
            if time.monotonic() > deadline:
                self.kill()
                raise ComponentFailed(f"{self.name} was not ready within {timeout_s:.0f} s:\n{self.tail()}")
            time.sleep(0.02)

    def stop(self, *, timeout_s: float = 30) -> int:
        """Ask it to end and wait for it. The exit code; -9 if it had to be killed."""
        if self._process is None:
            return 0
        if self._process.poll() is None:
            self._process.send_signal(self._stop_signal)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout_s)
        return self.kill()

    def kill(self) -> int:
        """SIGKILL to the process and everything that it started. The exit code."""
        if self._process is None:
            return 0
        # The group outlives its leader while a child is left; an empty one is gone.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        code = self._process.wait()
        self._process = None
        return code

    def wait(self, timeout_s: float) -> int:
        """The exit code of a process that ends by itself."""
        if self._process is None:
            raise ComponentFailed(f"{self.name} is not running")
        return self._process.wait(timeout_s)

    def tail(self) -> str:
        """The end of the log, for messages."""
        return self.log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace")


def _guard(user: str | None) -> list[str]:
    """setpriv replaces itself with the command, so the id we know stays the id of the process itself."""
    guard = [str(program("setpriv")), "--pdeathsig", "KILL"]
    if user is not None:
        account = pwd.getpwnam(user)
        guard += [f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--init-groups"]
    return [*guard, "--"]


def children(pid: int) -> list[int]:
    """The ids of all processes below this one."""
    found = []
    for listed in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in listed.read_text().split():
                found += [int(child), *children(int(child))]
    return found


def is_alive(pid: int) -> bool:
    """Return whether the process runs; a zombie does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
