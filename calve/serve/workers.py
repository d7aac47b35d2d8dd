"""Several server processes on one port, and the process that looks after them.

The parent opens the socket and forks the workers, which all accept on it. It serves nothing itself.

- The first worker starts alone, so that only one process sets up a new database; if it cannot start, nor can
  the others, and the parent ends with its reason.
- A worker that dies is replaced; one that dies at once is replaced more and more slowly.
- SIGTERM and SIGINT are passed on, and every worker finishes its requests. Who takes too long is killed.
- Every worker holds one end of a pipe whose other end only the parent has. When the parent dies, however it
  dies, the pipe closes and the workers stop by themselves (worker.py).
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import selectors
import signal
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from calve.serve.accept import Loads
from calve.serve.server import CreateApp, Share
from calve.serve.worker import GRACE_S, READY, Place, be_worker
from calve.settings import Settings
from calve.startup import StartupError
from calve.telemetry.metrics import metrics

SETTLED_S = 5.0  # a worker that lived so long did start
RESTART_DELAY_S_MAX = 30.0
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)

_log = logging.getLogger(__name__)
_restarts = metrics.counter("calve_worker_restarts_total", "Workers that died and were replaced.")


@dataclass(slots=True)
class _Worker:
    """What the parent knows of one worker. `pid` is 0 while there is none."""

    number: int
    pid: int = 0
    reports: int = -1  # the pipe on which it says that it is ready, or why it is not
    said: bytes = b""
    started_s: float = 0.0
    restart_delay_s: float = 0.0
    restart_at_s: float = field(default=float("inf"))

    @property
    def ready(self) -> bool:
        return self.said == READY


class Supervisor:
    """The parent. `run` returns after a graceful stop."""

    def __init__(
        self, settings: Settings, create_app: CreateApp, listener: socket.socket, announce: Callable[[], None]
    ) -> None:
        self._settings = settings
        self._create_app = create_app
        self._listener = listener
        self._announce = announce
        self._announced = False
        self._workers = [_Worker(number) for number in range(settings.workers)]
        self._loads = Loads(settings.workers)
        self._parent_alive, self._parent_end = os.pipe()
        self._selector = selectors.DefaultSelector()
        self._stop_at_s: float | None = None
        self._failure: str | None = None

    def run(self) -> None:
        """Look after the workers until told to stop."""
        metrics.share(len(self._workers) + 1)
        metrics.attach(len(self._workers))
        gc.freeze()  # what is here now stays shared with the workers
        with self._signals() as caught:
            self._start(self._workers[0])
            while self._stop_at_s is None or any(worker.pid for worker in self._workers):
                self._wait(caught)
                self._reap()
                self._advance()
        os.close(self._parent_end)
        os.close(self._parent_alive)
        self._selector.close()
        if self._failure is not None:
            raise StartupError(self._failure)

    @contextlib.contextmanager
    def _signals(self) -> Iterator[socket.socket]:
        """Signals arrive as bytes on a socket, so that one wait sees them and the workers."""
        caught, sender = socket.socketpair()
        caught.setblocking(False)
        sender.setblocking(False)
        self._selector.register(caught, selectors.EVENT_READ)
        before = {number: signal.signal(number, _noted) for number in (*STOP_SIGNALS, signal.SIGCHLD)}
        signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
        try:
            yield caught
        finally:
            signal.set_wakeup_fd(-1)
            for number, handler in before.items():
                signal.signal(number, handler)
            self._selector.unregister(caught)
            caught.close()
            sender.close()

    def _wait(self, caught: socket.socket) -> None:
        """Until something happens: a signal, a report, a time that has come."""
        times = [worker.restart_at_s for worker in self._workers]
        times.append(self._stop_at_s or float("inf"))
        wait_s = max(0.0, min(times) - time.monotonic())
        for key, _ in self._selector.select(None if wait_s == float("inf") else wait_s):
            if key.fileobj is caught:
                if any(number in STOP_SIGNALS for number in caught.recv(64)):
                    self._stop()
            else:
                self._hear(key.data)

    def _hear(self, worker: _Worker) -> None:
        said = os.read(worker.reports, 4096)
        if said:
            worker.said += said
        else:
            self._hang_up(worker)

    def _hang_up(self, worker: _Worker) -> None:
        if worker.reports >= 0:
            self._selector.unregister(worker.reports)
            os.close(worker.reports)
            worker.reports = -1

    def _reap(self) -> None:
        """Notice which workers are gone."""
        for worker in self._workers:
            if not worker.pid:
                continue
            gone, status = os.waitpid(worker.pid, os.WNOHANG)
            if gone:
                while worker.reports >= 0:  # what it said last is still in the pipe
                    self._hear(worker)
                worker.pid = 0
                self._loads.leave(worker.number)
                self._replace(worker, os.waitstatus_to_exitcode(status))

    def _replace(self, worker: _Worker, exit_code: int) -> None:
        if self._stop_at_s is not None:
            return
        reason = "" if worker.ready else worker.said.decode(errors="replace")
        if not self._announced:
            self._failure = reason or f"a server process ended with {exit_code} before it was ready."
            self._stop()
            return
        settled = time.monotonic() - worker.started_s > SETTLED_S
        delay_s = 0.0 if settled else min(max(0.5, worker.restart_delay_s * 2), RESTART_DELAY_S_MAX)
        worker.restart_delay_s = delay_s
        worker.restart_at_s = time.monotonic() + delay_s
        _restarts.labels().add()
        _log.error(
            "worker died",
            extra={
                "worker": worker.number,
                "exit_code": exit_code,
                "reason": reason,
                "restart_in_s": delay_s,
            },
        )

    def _advance(self) -> None:
        """Start who is due, kill who is overdue, say once that all are ready."""
        now_s = time.monotonic()
        if self._stop_at_s is not None:
            if now_s >= self._stop_at_s:
                self._signal_all(signal.SIGKILL)
            return
        if self._workers[0].ready and not self._announced:
            for worker in self._workers:
                if not worker.pid:
                    self._start(worker)
        for worker in self._workers:
            if now_s >= worker.restart_at_s:
                self._start(worker)
        if not self._announced and all(worker.ready for worker in self._workers):
            self._announced = True
            self._announce()

    def _stop(self) -> None:
        """No new connections from now on; everybody finishes what is in flight."""
        if self._stop_at_s is None:
            self._listener.close()
            self._stop_at_s = time.monotonic() + self._settings.shutdown_timeout_s + GRACE_S
            for worker in self._workers:
                worker.restart_at_s = float("inf")
        self._signal_all(signal.SIGTERM)

    def _signal_all(self, number: signal.Signals) -> None:
        for worker in self._workers:
            if worker.pid:
                os.kill(worker.pid, number)

    def _start(self, worker: _Worker) -> None:
        reports, reported = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(self._parent_end)
            self._selector.close()
            place = Place(Share(worker.number, self._loads), self._listener, self._parent_alive, reported)
            be_worker(place, self._settings, self._create_app)
        os.close(reported)
        worker.pid, worker.reports, worker.said = pid, reports, b""
        worker.started_s, worker.restart_at_s = time.monotonic(), float("inf")
        self._selector.register(reports, selectors.EVENT_READ, worker)
        if self._announced:
            _log.info("worker started", extra={"worker": worker.number, "worker_pid": pid})


def _noted(_number: int, _frame: object) -> None:
    """A signal that has its byte on the socket. Python needs a handler, or there would be no byte."""
