"""Balance among workers that share a socket."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import Counter
from pathlib import Path

from calve.serve.accept import Acceptor, Loads
from calve.serve.ground import listen
from tests.unit.serve.child import SmallServer, head, read_answers


def test_it_is_the_turn_of_who_has_fewest() -> None:
    loads = Loads(3)
    assert loads.report(0, 5)  # alone
    assert loads.report(1, 4)
    assert not loads.report(0, 5)
    assert loads.report(2, 4)
    loads.leave(1)
    loads.leave(2)
    assert loads.report(0, 6)


def test_a_connection_that_nobody_else_takes_is_taken() -> None:
    """A worker that hangs has few connections, and must not keep the others from accepting."""

    async def accepted() -> list[asyncio.Protocol]:
        loads, made = Loads(2), list[asyncio.Protocol]()

        def connect() -> asyncio.Protocol:
            made.append(asyncio.Protocol())
            return made[-1]

        loads.report(1, 0)  # never accepts anything
        with contextlib.closing(listen("127.0.0.1", 0)) as listener:
            acceptor = Acceptor(listener, connect, lambda: 10 + len(made), loads, 0)
            clients = [socket.create_connection(listener.getsockname()) for _ in range(5)]
            for _ in range(500):
                if len(made) == len(clients):
                    break
                await asyncio.sleep(0.01)
            acceptor.close()
            for client in clients:
                client.close()
            await asyncio.sleep(0)
        return made

    assert len(asyncio.run(accepted())) == 5


def test_connections_that_arrive_together_are_spread(tmp_path: Path) -> None:
    with SmallServer.started(tmp_path, {"CALVE_WORKERS": "2"}) as server, contextlib.ExitStack() as open_:
        connections = [open_.enter_context(server.connect()) for _ in range(32)]
        for connection in connections:
            connection.sendall(head("GET", "/echo"))
        shares = Counter(read_answers(connection, 1)[0].json["pid"] for connection in connections)
    assert len(shares) == 2
    assert min(shares.values()) >= 8
