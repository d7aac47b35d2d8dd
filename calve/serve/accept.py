"""Accepting connections when several processes share one listening socket.

Left to themselves, event loops take all that waits: of 32 connections that arrive together, one of four
workers often gets every one, and clients keep their connections. So a worker accepts one connection at a
time, and only while it has no more than the others; who has more steps aside for a moment, and accepts after
all if nobody else has. The counts are numbers in memory that all workers share, and only a hint: nothing but
balance hangs on them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import mmap
import socket
from collections.abc import Callable

STEP_ASIDE_S = 0.001
PAUSE_S = 1.0
ABSENT = 2**62  # more connections than anybody: a worker that is not there takes none

_log = logging.getLogger(__name__)


class Loads:
    """How many connections each worker has. Made before the fork."""

    def __init__(self, workers: int) -> None:
        self._counts = memoryview(mmap.mmap(-1, workers * 8)).cast("q")
        for number in range(workers):
            self.leave(number)

    def leave(self, number: int) -> None:
        """The worker is gone, or not ready yet."""
        self._counts[number] = ABSENT

    def report(self, number: int, connections: int) -> bool:
        """Note the count of a worker. Has it no more than any other?"""
        self._counts[number] = connections
        return connections <= min(self._counts)


class Acceptor:
    """Accepts for one worker. Has what uvicorn wants of an asyncio server."""

    def __init__(
        self,
        listener: socket.socket,
        connect: Callable[[], asyncio.Protocol],
        connections: Callable[[], int],
        loads: Loads,
        number: int,
    ) -> None:
        self._listener = listener
        self._connect = connect
        self._connections = connections
        self._loads = loads
        self._number = number
        self._loop = asyncio.get_running_loop()
        self._opening: set[asyncio.Task[object]] = set()
        self._closed = False
        self.report()
        self._listen()

    def report(self) -> bool:
        """Tell the others how many connections there are; true if it is our turn."""
        return self._loads.report(self._number, self._connections() + len(self._opening))

    def close(self) -> None:
        """Accept no more."""
        if not self._closed:
            self._closed = True
            self._loop.remove_reader(self._listener)
            self._loads.leave(self._number)

    async def wait_closed(self) -> None:
        """Nothing to wait for: connections are uvicorn's."""

    def _listen(self) -> None:
        self._loop.add_reader(self._listener, self._on_waiting)

    def _on_waiting(self) -> None:
        if self.report():
            self._accept()
        else:
            self._step_aside(STEP_ASIDE_S)

    def _step_aside(self, time_s: float) -> None:
        self._loop.remove_reader(self._listener)
        self._loop.call_later(time_s, self._return)

    def _return(self) -> None:
        if not self._closed:
            self._listen()
            self._accept()

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return  # another worker was quicker, or the client has thought better of it
        except OSError:
            # Out of descriptors, most likely. Those that wait are not lost, and trying at once does not help.
            _log.exception("cannot accept connections")
            self._step_aside(PAUSE_S)
            return
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        opening = self._loop.create_task(self._open(connection))
        self._opening.add(opening)
        opening.add_done_callback(self._opening.discard)

    async def _open(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError):  # the client may be gone already
            await self._loop.connect_accepted_socket(self._connect, connection)
