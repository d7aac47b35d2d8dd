"""Idle subscribers of one server process: what they cost, and acknowledgements beside them.

    python -m bench.feed --count 5000

It starts a server of its own (SQLite and files, one process, no worker), and opens the connections first as
server-sent events, then as WebSockets with one subscription each. Each phase prints

- the resident memory of the server, and for each connection,
- its processor time over some seconds in which nothing happens,
- how long a commit takes until all subscribers have its `progress`, and the processor time of that,
- the latency of `POST /cdc` with 10 rows, one after the other, before and beside them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from bench.connections import _allow_files, _frame, _resident_kib
from tests.harness.server import CalveServer

AT_ONCE = 100
SPARE_FILES = 500
IDLE_S = 10.0
COMMITS = 5
WRITES = 200
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PING, PONG = 0x89, 0x8A
SUBSCRIBE = json.dumps({"type": "subscribe", "id": "b"}).encode()


@dataclass
class Client:
    """One connection. It counts the `progress` messages that it receives."""

    writer: asyncio.StreamWriter
    reading: asyncio.Task[None] | None = None
    heard: int = 0


@dataclass
class Clients:
    port: int
    protocol: str
    all: list[Client] = field(default_factory=list)

    async def open(self, count: int) -> None:
        for first in range(0, count, AT_ONCE):
            numbers = range(first, min(first + AT_ONCE, count))
            self.all += await asyncio.gather(*(self._one() for _ in numbers))

    async def _one(self) -> Client:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=2**16)
        if self.protocol == "sse":
            head = f"GET /subscribe HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\n\r\n"
        else:
            head = (
                f"GET /ws HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\nUpgrade: websocket\r\n"
                "Connection: Upgrade\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
                "Sec-WebSocket-Version: 13\r\n\r\n"
            )
        writer.write(head.encode())
        answer = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        if answer.split(" ")[1] not in ("200", "101"):
            raise SystemExit(f"refused: {answer.splitlines()[0]}")
        if self.protocol == "ws":
            writer.write(_frame(SUBSCRIBE))
        client = Client(writer)
        read = _read_events if self.protocol == "sse" else _read_frames
        client.reading = asyncio.create_task(read(reader, client))
        while client.heard == 0:  # noqa: ASYNC110 - the first progress: it is subscribed
            await asyncio.sleep(0.005)
        return client

    def close(self) -> None:
        for client in self.all:
            if client.reading is not None:
                client.reading.cancel()
            client.writer.transport.abort()


async def _read_events(reader: asyncio.StreamReader, client: Client) -> None:
    while data := await reader.read(2**16):
        client.heard += data.count(b"event: progress")


async def _read_frames(reader: asyncio.StreamReader, client: Client) -> None:
    """Frames of the server, which ends connections that do not answer its pings."""
    while True:
        kind, size = await reader.readexactly(2)
        if size == 126:
            size = int.from_bytes(await reader.readexactly(2), "big")
        data = await reader.readexactly(size)
        if kind == PING:
            client.writer.write(bytes((PONG, 0x80 | size)) + bytes(4) + data)
        client.heard += data.count(b'"type":"progress"')


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


async def _latencies_ms(url: str, table: str) -> list[float]:
    found = []
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        for number in range(WRITES):
            rows = [{"id": number * 10 + offset, "text": "x"} for offset in range(10)]
            began_s = time.perf_counter()
            (await client.post(f"/cdc/bench/{table}?key=id", json=rows)).raise_for_status()
            found.append((time.perf_counter() - began_s) * 1000)
    return found


async def _commits(url: str, clients: Clients, pid: int) -> tuple[float, float]:
    """Seconds from a commit to the last subscriber, and processor time of the server for one commit."""
    took_s = []
    before_s = _cpu_s(pid)
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        for number in range(COMMITS):
            heard = [one.heard for one in clients.all]
            body = {"namespace": [f"{clients.protocol}{number}"]}
            (await client.post("/v1/main/namespaces", json=body)).raise_for_status()
            began_s = time.perf_counter()
            while any(one.heard == n for one, n in zip(clients.all, heard, strict=True)):  # noqa: ASYNC110
                await asyncio.sleep(0.005)
            took_s.append(time.perf_counter() - began_s)
    return statistics.median(took_s), (_cpu_s(pid) - before_s) / COMMITS


async def _phase(server: CalveServer, protocol: str, count: int) -> None:
    pid = server.pid
    alone = await _latencies_ms(server.url, f"{protocol}_alone")
    clients = Clients(server.port, protocol)
    before_kib = _resident_kib(pid)
    began_s = time.monotonic()
    try:
        await clients.open(count)
        opened_s = time.monotonic() - began_s
        await asyncio.sleep(2)
        open_kib = _resident_kib(pid)
        cpu_s = _cpu_s(pid)
        await asyncio.sleep(IDLE_S)
        idle = (_cpu_s(pid) - cpu_s) / IDLE_S
        commit_s, commit_cpu_s = await _commits(server.url, clients, pid)
        beside = await _latencies_ms(server.url, f"{protocol}_beside")
    finally:
        clients.close()
    each = (open_kib - before_kib) / count
    print(f"{protocol}: {count:,} connections, opened in {opened_s:.1f} s")
    print(f"  memory     {before_kib / 1024:.0f} MiB, then {open_kib / 1024:.0f} MiB: {each:.1f} KiB each")
    print(f"  idle       {100 * idle:.1f} % of one core")
    print(f"  a commit   {commit_s:.2f} s until the last has its progress, {commit_cpu_s:.2f} s of processor")
    print(f"  POST /cdc  p50 {_p(alone, 50):.1f} ms, p99 {_p(alone, 99):.1f} ms alone")
    print(f"             p50 {_p(beside, 50):.1f} ms, p99 {_p(beside, 99):.1f} ms beside", flush=True)
    await asyncio.sleep(3)


def _p(values: list[float], percent: int) -> float:
    return sorted(values)[min(len(values) - 1, len(values) * percent // 100)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--protocols", nargs="+", default=["sse", "ws"], choices=["sse", "ws"])
    arguments = parser.parse_args()
    _allow_files(arguments.count + SPARE_FILES)
    many = str(10 * arguments.count)
    settings = {
        "CALVE_CONNECTIONS_MAX": many,
        "CALVE_CONNECTIONS_PER_S": many,
        "CALVE_CONNECTIONS_PER_ADDRESS_MAX": many,
        "CALVE_LOG_LEVEL": "warning",
    }
    with (
        tempfile.TemporaryDirectory() as folder,
        CalveServer.started(Path(folder), settings) as server,
    ):
        for protocol in arguments.protocols:
            asyncio.run(_phase(server, protocol, arguments.count))
    return 0


if __name__ == "__main__":
    sys.exit(main())
