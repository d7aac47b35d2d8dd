"""A TCP proxy on loopback that breaks what passes through it, one exchange at a time.

An exchange is one request and its answer on a connection; keep-alive connections carry many. A test says
which fault the next exchanges meet and how many of them; the rest pass untouched.

    with TcpProxy(("127.0.0.1", port)) as proxy:
        proxy.fail(Fault.LOSE_REPLY, times=1)
        ...  # one request reaches the server, its answer never comes back
"""

from __future__ import annotations

import contextlib
import enum
import select
import socket
import struct
import threading
import time
from types import TracebackType
from typing import Self

_CHUNK_BYTES = 256 * 1024
_POLL_S = 0.05
_UNAVAILABLE = b"HTTP/1.1 503 Slow Down\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class Fault(enum.Enum):
    """What happens to an exchange."""

    HANG = "the request is swallowed and nothing is answered"
    RESET = "the connection is reset before the request reaches the server"
    ERROR_503 = "503 is answered in the server's place"
    TRUNCATE = "the request is served; half of the first piece of the answer arrives, then the end"
    LOSE_REPLY = "the request is served; the connection is reset before the answer"
    DELAY = "the request reaches the server after `delay_s`"


class TcpProxy:
    """Forwards `self.address` to `target`; `fail`, `refuse` and `heal` may be called at any time."""

    def __init__(self, target: tuple[str, int], *, delay_s: float = 30.0) -> None:
        self._target = target
        self._delay_s = delay_s
        self._lock = threading.Lock()
        self._fault: Fault | None = None
        self._times = 0
        self._stopped = threading.Event()
        self._generation = 0
        self._listener = _listen(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listener.getsockname()
        self.exchanges = 0
        """How many requests have been begun, faults included."""
        self._accepting()

    @property
    def endpoint(self) -> str:
        return f"http://{self.address[0]}:{self.address[1]}"

    def fail(self, fault: Fault, *, times: int = 1_000_000) -> None:
        """Let the next `times` exchanges meet `fault`."""
        with self._lock:
            self._fault, self._times = fault, times

    def refuse(self) -> None:
        """Stop listening and cut what is open: the next connect is refused."""
        with self._lock:
            self._generation += 1
            # Only a shutdown wakes the thread that waits in accept().
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()

    def heal(self) -> None:
        """Pass everything again."""
        with self._lock:
            self._fault, self._times = None, 0
            if self._listener.fileno() == -1:
                self._listener = _listen(self.address)
                self._accepting()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped.set()
        self.refuse()

    def _accepting(self) -> None:
        threading.Thread(target=self._accept, args=(self._listener, self._generation), daemon=True).start()

    def _accept(self, listener: socket.socket, generation: int) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client, generation), daemon=True).start()

    def _take(self) -> Fault | None:
        with self._lock:
            self.exchanges += 1
            if self._times == 0:
                return None
            self._times -= 1
            return self._fault

    def _alive(self, generation: int) -> bool:
        return generation == self._generation and not self._stopped.is_set()

    def _serve(self, client: socket.socket, generation: int) -> None:
        with client, contextlib.suppress(OSError), socket.create_connection(self._target) as upstream:
            self._relay(client, upstream, generation)

    def _relay(self, client: socket.socket, upstream: socket.socket, generation: int) -> None:
        poll = select.poll()  # select() ends at descriptor 1,024
        poll.register(client, select.POLLIN)
        poll.register(upstream, select.POLLIN)
        fault: Fault | None = None
        answered = True  # the next piece from the client begins an exchange
        while self._alive(generation):
            ready = {fileno for fileno, _ in poll.poll(_POLL_S * 1000)}
            if upstream.fileno() in ready:
                piece = upstream.recv(_CHUNK_BYTES)
                if not piece or not _answer(client, piece, fault):
                    return
                answered = True
            if client.fileno() in ready:
                piece = client.recv(_CHUNK_BYTES)
                if not piece:
                    return
                if answered:
                    fault, answered = self._take(), False
                if not self._request(client, upstream, piece, fault):
                    return
        _reset_on_close(client)

    def _request(
        self, client: socket.socket, upstream: socket.socket, piece: bytes, fault: Fault | None
    ) -> bool:
        """Pass a piece of a request on; False when the connection is to end."""
        if fault is Fault.HANG:
            return True
        if fault is Fault.RESET:
            _reset_on_close(client)
            return False
        if fault is Fault.ERROR_503:
            client.sendall(_UNAVAILABLE)
            client.shutdown(socket.SHUT_WR)
            # A close with unread bytes would reset the connection and take the answer with it.
            while client.recv(_CHUNK_BYTES):
                pass
            return False
        if fault is Fault.DELAY:
            time.sleep(self._delay_s)
        upstream.sendall(piece)
        return True


def _answer(client: socket.socket, piece: bytes, fault: Fault | None) -> bool:
    """Pass a piece of an answer on; False when the connection is to end."""
    if fault is Fault.LOSE_REPLY:
        _reset_on_close(client)
        return False
    if fault is Fault.TRUNCATE:
        client.sendall(piece[: len(piece) // 2])
        return False
    client.sendall(piece)
    return True


def _listen(address: tuple[str, int]) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(address)
    listener.listen(64)
    return listener


def _reset_on_close(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
