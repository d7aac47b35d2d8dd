"""The pool of query processes of a server process.

The first query starts a process: each takes 170 MB, which a server without queries does not need. From then
on one process is kept ready for the next query, within the size of the pool.

A process runs one query at a time. A caller waits while all processes are busy, or while the caller has as
many running queries as one caller may have. Callers are served in the order of arrival. A process that was
killed or that ended is replaced in the background, so only its own query fails.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from catalog.errors import CatalogError
from query import frames

START_TIMEOUT_S = 60.0
QUERIES_PER_PROCESS_MAX = 1000  # then it is replaced, so that a leak in a library stays small
STDERR_BYTES_KEPT = 4096
# Arrow's own allocator reserves 1 GiB of address space at once, which counts as memory of the process.
ARROW = {"ARROW_DEFAULT_MEMORY_POOL": "system"}

log = logging.getLogger(__name__)


class PoolBusy(Exception):
    """All processes are busy, and too many callers wait, or this one has waited long enough."""


class QueryError(Exception):
    """The error of a query process. `type` is DuckDB's name of the error."""

    def __init__(self, type_: str, message: str) -> None:
        super().__init__(message)
        self.type = type_
        self.message = message


class ProcessEnded(QueryError):
    """The process ended before the query did: killed, out of memory, or crashed."""

    def __init__(self) -> None:
        super().__init__("ProcessEnded", "the query process ended before the query did")


@dataclass(frozen=True, slots=True)
class ProcessSettings:
    """The resources of a query process. They cannot be changed after the start."""

    endpoint: str  # the address of the catalog for the process
    read_paths: tuple[str, ...] = ()  # local folders of warehouses
    data_paths: tuple[str, ...] = ()  # storage roots of warehouses, as tables name them
    tcp_ports: tuple[int, ...] = ()
    s3: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    memory_bytes_max: int = 2**30
    threads: int = 2
    confine: bool = True

    def covers(self, root: str) -> bool:
        """Return whether a query may read the tables of a warehouse with this root."""
        return f"{root.rstrip('/')}/" in self.data_paths

    def as_message(self) -> dict[str, Any]:
        return asdict(self) | {"s3": dict(self.s3)}


@dataclass(slots=True, eq=False)
class QueryProcess:
    """One child process, as the server sees it."""

    settings: ProcessSettings
    process: asyncio.subprocess.Process
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    confined: list[str] = field(default_factory=list)
    queries: int = 0
    generation: int = 0
    is_broken: bool = False
    is_killed: bool = False
    done: dict[str, Any] | None = None  # the summary of the last query, set before its last piece is sent

    @classmethod
    async def spawn(cls, settings: ProcessSettings) -> QueryProcess:
        """Start a process, which has not loaded anything yet."""
        ours, theirs = socket.socketpair()
        with theirs:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",  # the working directory may have its own folder `query`
                "-m",
                "query.child",
                str(theirs.fileno()),
                pass_fds=(theirs.fileno(),),
                env=environment(),
                cwd="/",
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
            )
        ours.setblocking(False)
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        return cls(settings, process, reader, writer)

    async def prepare_to_serve(self) -> None:
        """Wait until it has loaded DuckDB and is sandboxed."""
        async with asyncio.timeout(START_TIMEOUT_S):
            await self._send(self.settings.as_message())
            answer = await self._message()
        self.confined = answer["ready"]["confined"]

    async def watch(self) -> None:
        """Wait for its end. The standard error of a crashed process is logged."""
        assert self.process.stderr is not None
        kept = b""
        while part := await self.process.stderr.read(STDERR_BYTES_KEPT):
            kept = (kept + part)[-STDERR_BYTES_KEPT:]
        code = await self.process.wait()
        self.writer.close()
        with contextlib.suppress(OSError):  # the other side has closed it
            await self.writer.wait_closed()
        if not self.is_killed and code != 0:
            stderr = kept.decode(errors="replace")
            log.warning("a query process ended", extra={"exit_code": code, "stderr": stderr})

    async def prepare(self, sql: str) -> dict[str, Any]:
        """Return the statement: is_explain, parameters, tables. Raises QueryError if it may not run."""
        await self._send({"prepare": {"sql": sql}})
        statement: dict[str, Any] = (await self._message())["statement"]
        return statement

    async def run(self, request: dict[str, Any], data: Sequence[bytes] = ()) -> AsyncIterator[bytes]:
        """Yield pieces of the body; `done` is set before the last one. Raises QueryError, also in the
        middle. `data` are the rows of the overlays in the request.
        """
        self.queries += 1
        self.done = None
        await self._send({"run": request}, data)
        while self.done is None:
            kind, payload = await self._frame()
            if kind == frames.DATA:
                yield payload
            else:
                self.done = self._checked(payload)["done"]
        if "profile" not in self.done:
            yield (await self._frame())[1]

    def kill(self) -> None:
        """Kill the process at once."""
        self.is_broken = self.is_killed = True
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()

    async def _send(self, message: dict[str, Any], data: Sequence[bytes] = ()) -> None:
        try:
            await frames.write_message(self.writer, message, data)
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

    def _checked(self, payload: bytes) -> dict[str, Any]:
        message = frames.decode(payload)
        if "error" in message:
            self.is_broken = self.is_broken or message.get("ends", False)
            raise QueryError(message["error"]["type"], message["error"]["message"])
        return message


def environment() -> dict[str, str]:
    """Return an environment without that of the server, which may contain passwords."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL") if name in os.environ}
    return kept | {"PYTHONPATH": str(Path(__file__).resolve().parents[1]), "PYTHONNOUSERSITE": "1"} | ARROW


@dataclass(slots=True, eq=False)
class _Waiter:
    caller: str
    lease: asyncio.Future[Lease]


class Lease:
    """A process that belongs to one query until `release`. `abort` kills the process with the query."""

    def __init__(self, pool: ProcessPool, caller: str, process: QueryProcess) -> None:
        self._pool = pool
        self._caller = caller
        self._is_released = False
        self.process = process

    def abort(self) -> None:
        if not self._is_released:
            self.process.kill()
            self.release()

    def release(self) -> None:
        if not self._is_released:
            self._is_released = True
            self._pool.take_back(self._caller, self.process)


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
        self._all: set[QueryProcess] = set()
        self._count = 0  # started or being started
        self._starting = 0
        self._has_failed = False  # whether the last process that was started failed
        self._running: Counter[str] = Counter()
        self._waiting: list[_Waiter] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self._generation = 0  # changes with the settings

    def renew(self) -> None:
        """Start no more queries in processes with earlier settings."""
        self._generation += 1
        for process in self._idle:
            process.kill()
            self._count -= 1
        self._idle.clear()

    async def acquire(self, caller: str, timeout_s: float) -> Lease:
        """Return a process for one query. Raises PoolBusy."""
        if self._is_closed:
            raise PoolBusy("the server is stopping")
        if len(self._waiting) >= self._waiting_max:
            raise PoolBusy("too many queries wait already: try again in a moment")
        waiter = _Waiter(caller, asyncio.get_running_loop().create_future())
        self._waiting.append(waiter)
        self._dispatch()
        try:
            async with asyncio.timeout(timeout_s):
                return await asyncio.shield(waiter.lease)
        except TimeoutError:
            self._give_up(waiter)
            raise PoolBusy(
                f"no query process became free within {timeout_s:.3g} s: try again later"
            ) from None
        except asyncio.CancelledError:
            self._give_up(waiter)
            raise

    def take_back(self, caller: str, process: QueryProcess) -> None:
        """Take a process back from a lease."""
        self._running[caller] -= 1
        if not self._running[caller]:
            del self._running[caller]
        is_old = process.queries >= QUERIES_PER_PROCESS_MAX
        is_old = is_old or process.generation != self._generation
        if process.is_broken or is_old or self._is_closed:
            process.kill()
            self._count -= 1
        else:
            self._idle.append(process)
        self._dispatch()

    async def close(self) -> None:
        """Kill every process, also those that run a query."""
        self._is_closed = True
        for waiter in self._waiting:
            waiter.lease.set_exception(PoolBusy("the server is stopping"))
        self._waiting.clear()
        for process in self._all:
            process.kill()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _give_up(self, waiter: _Waiter) -> None:
        if waiter in self._waiting:
            self._waiting.remove(waiter)
            waiter.lease.cancel()
        elif waiter.lease.done() and waiter.lease.exception() is None:
            waiter.lease.result().release()

    def _dispatch(self) -> None:
        """Assign idle processes to waiting callers, and start more if that is allowed."""
        ready = 0
        for waiter in list(self._waiting):
            if self._running[waiter.caller] >= self._per_caller_max:
                continue
            if not self._idle:
                ready += 1
                continue
            self._running[waiter.caller] += 1
            self._waiting.remove(waiter)
            waiter.lease.set_result(Lease(self, waiter.caller, self._idle.pop()))
        # One free process is kept ready for the next query, unless processes fail to start.
        wanted = max(ready, 0 if self._idle or self._has_failed else 1)
        while self._starting < wanted and self._count < self._size and not self._is_closed:
            self._start_one()

    def _start_one(self) -> None:
        self._count += 1
        self._starting += 1
        task = asyncio.get_running_loop().create_task(self._live())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _live(self) -> None:
        """Start a process and watch it until it ends."""
        generation, process = self._generation, None
        try:
            process = await QueryProcess.spawn(await asyncio.to_thread(self._settings))
            self._all.add(process)
            if self._is_closed:
                process.kill()
            await process.prepare_to_serve()
        except (OSError, TimeoutError, QueryError, CatalogError) as error:
            self._count -= 1
            if process is not None:
                process.process.kill()
                await process.watch()
                self._all.discard(process)
            if not self._is_closed:
                self._has_failed = True
                log.exception("a query process did not start")
                self._fail_one(error)
            return
        finally:
            self._starting -= 1
        process.generation = generation
        self._has_failed = False
        if generation == self._generation:
            self._idle.append(process)
        else:  # the settings changed while it started
            process.kill()
            self._count -= 1
        self._dispatch()
        await process.watch()
        self._all.discard(process)
        process.is_broken = True
        if process in self._idle:  # it ended while it was idle
            self._idle.remove(process)
            self._count -= 1
            self._dispatch()

    def _fail_one(self, error: Exception) -> None:
        """Fail one waiting caller only: the next process may start."""
        if self._waiting:
            waiter = self._waiting.pop(0)
            waiter.lease.set_exception(PoolBusy(f"a query process did not start: {error}"))
        self._dispatch()
