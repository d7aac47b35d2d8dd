"""Warm query processes, and who may use one when.

A process runs one query at a time. A caller waits while all processes are busy, or while the caller has as many
queries running as one caller may; callers are served in the order in which they came. A process that was killed
or that ended is replaced in the background, so it costs its own query alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from query import frames

START_TIMEOUT_S = 60.0
QUERIES_PER_PROCESS_MAX = 1000  # then it is replaced, so that a leak in a library stays small

log = logging.getLogger(__name__)


class PoolBusy(Exception):
    """All processes are busy, and too many callers wait, or this one has waited long enough."""


class QueryError(Exception):
    """What a query process answered instead of a result. `type` is DuckDB's name of the error."""

    def __init__(self, type_: str, message: str) -> None:
        super().__init__(message)
        self.type = type_
        self.message = message


class ProcessEnded(QueryError):
    """The process ended before the query did: killed, out of memory, or crashed."""

    def __init__(self, message: str = "the query process ended before the query did; run it again") -> None:
        super().__init__("ProcessEnded", message)


@dataclass(frozen=True, slots=True)
class ProcessSettings:
    """What a query process may reach and use. It cannot be changed after the start."""

    endpoint: str  # the catalog, as the process reaches it
    read_paths: tuple[str, ...] = ()  # local folders of warehouses
    data_paths: tuple[str, ...] = ()  # storage roots of warehouses, as tables name them
    tcp_ports: tuple[int, ...] = ()
    s3: tuple[tuple[str, str], ...] = ()
    memory_bytes_max: int = 2**30
    threads: int = 2
    confine: bool = True

    def as_message(self) -> dict[str, Any]:
        names = (
            "endpoint",
            "read_paths",
            "data_paths",
            "tcp_ports",
            "memory_bytes_max",
            "threads",
            "confine",
        )
        return {name: getattr(self, name) for name in names} | {"s3": dict(self.s3)}


@dataclass(slots=True)
class QueryProcess:
    """One child process, as the server sees it."""

    settings: ProcessSettings
    process: asyncio.subprocess.Process
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    confined: list[str] = field(default_factory=list)
    queries: int = 0
    is_broken: bool = False

    @classmethod
    async def start(cls, settings: ProcessSettings) -> QueryProcess:
        ours, theirs = socket.socketpair()
        with theirs:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "query.child",
                str(theirs.fileno()),
                pass_fds=(theirs.fileno(),),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
            )
        ours.setblocking(False)
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        started = cls(settings, process, reader, writer)
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                await frames.write_message(writer, settings.as_message())
                answer = await started._message()
            started.confined = answer["ready"]["confined"]
        except BaseException:
            await started.kill()
            raise
        return started

    async def prepare(self, sql: str) -> dict[str, Any]:
        """The statement: is_explain, parameters, tables. Raises QueryError where it may not run."""
        await self._send({"prepare": {"sql": sql}})
        statement: dict[str, Any] = (await self._message())["statement"]
        return statement

    async def run(self, request: dict[str, Any]) -> AsyncIterator[bytes | dict[str, Any]]:
        """Pieces of the body, then what was done. Raises QueryError, also in the middle."""
        self.queries += 1
        await self._send({"run": request})
        while True:
            kind, payload = await self._frame()
            if kind == frames.DATA:
                yield payload
            else:
                yield self._checked(payload)["done"]
                return

    async def kill(self) -> None:
        """End it at once, whatever it is doing."""
        self.is_broken = True
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        self.writer.close()
        await self.process.wait()

    async def _send(self, message: dict[str, Any]) -> None:
        try:
            await frames.write_message(self.writer, message)
        except frames.Closed as error:
            self.is_broken = True
            raise ProcessEnded from error

    async def _frame(self) -> tuple[int, bytes]:
        try:
            return await frames.read_frame(self.reader)
        except frames.Closed as error:
            self.is_broken = True
            raise ProcessEnded from error

    async def _message(self) -> dict[str, Any]:
        _, payload = await self._frame()
        return self._checked(payload)

    @staticmethod
    def _checked(payload: bytes) -> dict[str, Any]:
        message = frames.decode(payload)
        if "error" in message:
            raise QueryError(message["error"]["type"], message["error"]["message"])
        return message


@dataclass(slots=True)
class _Waiter:
    caller: str
    process: asyncio.Future[QueryProcess]


class ProcessPool:
    """At most `size` processes. Belongs to one event loop."""

    def __init__(
        self,
        settings: Callable[[], ProcessSettings],
        *,
        size: int,
        per_caller_max: int,
        waiting_max: int,
    ) -> None:
        self._settings = settings
        self._size = size
        self._per_caller_max = per_caller_max
        self._waiting_max = waiting_max
        self._idle: list[QueryProcess] = []
        self._count = 0  # started or being started
        self._running: Counter[str] = Counter()
        self._waiting: list[_Waiter] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def warm_up(self) -> None:
        """Start one process in the background, so that the first query need not wait for it."""
        if self._count == 0:
            self._start_one()

    @property
    def running(self) -> int:
        return sum(self._running.values())

    @contextlib.asynccontextmanager
    async def process(self, caller: str, timeout_s: float) -> AsyncIterator[QueryProcess]:
        """A process for one query. Raises PoolBusy. It is killed if the block ends by cancellation."""
        process = await self._acquire(caller, timeout_s)
        try:
            yield process
        except QueryError:
            raise  # the process answered, and can go on
        except BaseException:
            # Cancelled, timed out, or the client is gone: the query must not go on.
            await asyncio.shield(process.kill())
            raise
        finally:
            self._release(caller, process)

    async def close(self) -> None:
        self._is_closed = True
        for task in self._tasks:
            task.cancel()
        for waiter in self._waiting:
            waiter.process.cancel()
        await asyncio.gather(*(process.kill() for process in self._idle))
        self._idle.clear()

    async def _acquire(self, caller: str, timeout_s: float) -> QueryProcess:
        if len(self._waiting) >= self._waiting_max:
            raise PoolBusy("too many queries wait already: try again in a moment")
        waiter = _Waiter(caller, asyncio.get_running_loop().create_future())
        self._waiting.append(waiter)
        self._dispatch()
        try:
            async with asyncio.timeout(timeout_s):
                return await waiter.process
        except TimeoutError as error:
            raise PoolBusy(f"no query process became free within {timeout_s:g} s: try again later") from error
        finally:
            if waiter in self._waiting:
                self._waiting.remove(waiter)
                self._give_back(waiter)

    def _give_back(self, waiter: _Waiter) -> None:
        if waiter.process.done() and not waiter.process.cancelled() and waiter.process.exception() is None:
            self._release(waiter.caller, waiter.process.result())

    def _release(self, caller: str, process: QueryProcess) -> None:
        self._running[caller] -= 1
        if not self._running[caller]:
            del self._running[caller]
        if process.is_broken or self._is_closed:
            self._count -= 1
        elif process.queries >= QUERIES_PER_PROCESS_MAX or process.settings != self._settings():
            self._count -= 1
            self._in_background(process.kill())
        else:
            self._idle.append(process)
        self._dispatch()

    def _dispatch(self) -> None:
        """Give idle processes to those who wait, and start more where that is allowed."""
        for waiter in list(self._waiting):
            if waiter.process.done() or self._running[waiter.caller] >= self._per_caller_max:
                continue
            if not self._idle:
                break
            self._running[waiter.caller] += 1
            self._waiting.remove(waiter)
            waiter.process.set_result(self._idle.pop())
        if self._waiting and not self._idle and self._count < self._size and not self._is_closed:
            self._start_one()

    def _start_one(self) -> None:
        self._count += 1
        self._in_background(self._started())

    async def _started(self) -> None:
        try:
            process = await QueryProcess.start(self._settings())
        except (OSError, TimeoutError, QueryError) as error:
            self._count -= 1
            log.exception("a query process did not start")
            self._fail_one(error)
            return
        self._idle.append(process)
        self._dispatch()

    def _fail_one(self, error: Exception) -> None:
        """One who waits hears of it; the others may have more luck with the next process."""
        if self._waiting and not self._waiting[0].process.done():
            waiter = self._waiting.pop(0)
            waiter.process.set_exception(PoolBusy(f"a query process did not start: {error}"))

    def _in_background(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
