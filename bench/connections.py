"""What an idle WebSocket connection costs the server: opens many to a running one and looks at its memory.

    python -m bench.connections --port 8181 --count 10000

The server must allow that many from one address (`connections_per_address_max`, `connections_per_s`), and
both processes need as many open files (`ulimit -n`). Prints the resident memory of the server before, with
all connections open, and after they have ended.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import os
import resource
import sys
import time
from pathlib import Path

HELLO = b'{"type":"connect","timestamp":1,"sourceDoId":"bench-%d","lastAckSequence":0,"protocolVersion":1}'
AT_ONCE = 100
SPARE_FILES = 200
SETTLE_S = 2.0


def main() -> int:
    arguments = _arguments()
    _allow_files(arguments.count + SPARE_FILES)
    pid = arguments.pid or _listener(arguments.port)
    return asyncio.run(_measure(arguments.port, pid, arguments.count, hello=arguments.hello))


async def _measure(port: int, pid: int, count: int, *, hello: bool) -> int:
    before_kib = _resident_kib(pid)
    began_s = time.monotonic()
    writers: list[asyncio.StreamWriter] = []
    try:
        for first in range(0, count, AT_ONCE):
            numbers = range(first, min(first + AT_ONCE, count))
            writers += await asyncio.gather(*(_open(port, number, hello=hello) for number in numbers))
        took_s = time.monotonic() - began_s
        await asyncio.sleep(SETTLE_S)
        open_kib = _resident_kib(pid)
    finally:
        for writer in writers:
            writer.transport.abort()
    await asyncio.sleep(SETTLE_S)
    after_kib = _resident_kib(pid)
    each = (open_kib - before_kib) / max(1, len(writers))
    print(f"connections     {len(writers):>10,} opened in {took_s:.1f} s")
    print(f"memory before   {before_kib:>10,} KiB")
    print(f"memory open     {open_kib:>10,} KiB, {each:.1f} KiB for each connection")
    print(f"memory after    {after_kib:>10,} KiB")
    return 0


async def _open(port: int, number: int, *, hello: bool) -> asyncio.StreamWriter:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=4096)
    key = base64.b64encode(os.urandom(16)).decode()
    writer.write(
        f"GET /ws HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
    )
    head = await reader.readuntil(b"\r\n\r\n")
    if b" 101 " not in head.split(b"\r\n", 1)[0]:
        raise SystemExit(f"connection {number} was refused: {head.decode('latin-1').splitlines()[0]}")
    if hello:
        writer.write(_frame(HELLO % number))
        await reader.readexactly(2)  # the beginning of the status: it was understood
    return writer


def _frame(text: bytes) -> bytes:
    """A text frame of a client: masked, here with zeros."""
    size = len(text)
    head = bytes((0x81, 0x80 | size)) if size < 126 else bytes((0x81, 0xFE)) + size.to_bytes(2, "big")
    return head + bytes(4) + text


def _resident_kib(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise SystemExit(f"process {pid} shows no memory")


def _listener(port: int) -> int:
    """The process that listens on this port of this machine."""
    inodes = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text(encoding="ascii").splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
                inodes.add(f"socket:[{fields[9]}]")
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if any(str(file.readlink()) in inodes for file in (process / "fd").iterdir()):
                return int(process.name)
        except OSError:
            continue  # it has ended, or is not ours to look at
    raise SystemExit(f"nobody listens on port {port}, or not under this account: give --pid")


def _allow_files(needed: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < needed:
        if hard != resource.RLIM_INFINITY and hard < needed:
            raise SystemExit(
                f"{needed} open files are needed, and the system allows {hard}: raise `ulimit -n`"
            )
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="The memory of idle WebSocket connections.")
    parser.add_argument("--port", type=int, default=8181)
    parser.add_argument("--pid", type=int, help="the server's process; found by its port if left out")
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--hello", action="store_true", help="each says `connect` first")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
