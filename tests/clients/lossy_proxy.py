"""An HTTP proxy on loopback that lets the server do the work and then loses the answer.

    with LossyProxy(stack.url) as proxy:
        proxy.lose("POST", "/transactions/commit", Loss.DROPPED)
        ...  # the commit lands; its client sees a dropped connection, once

Other requests pass untouched, and so does the repeat of the one that lost its answer.
"""

from __future__ import annotations

import contextlib
import enum
import http.client
import http.server
import socket
import threading
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

_HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length"}


class Loss(enum.Enum):
    """What the client gets instead of the answer."""

    DROPPED = 0  # the end of the connection
    ERROR_500 = 500
    ERROR_502 = 502
    ERROR_503 = 503
    ERROR_504 = 504


class LossyProxy:
    """Forwards everything to `target`."""

    def __init__(self, target: str) -> None:
        address = urlsplit(target)
        assert address.hostname is not None
        self._target = (address.hostname, address.port)
        self._lock = threading.Lock()
        self._waiting: list[tuple[str, str, Loss]] = []
        self.lost: list[tuple[str, str, int]] = []
        """Method, path and real status of each answer that was lost."""
        proxy = self

        class Handler(_Handler):
            owner = proxy

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def lose(self, method: str, path_end: str, loss: Loss) -> None:
        """The next answer to such a request is lost."""
        with self._lock:
            self._waiting.append((method, path_end, loss))

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def ask(
        self, method: str, path: str, headers: dict[str, str], body: bytes
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        """The server's real answer."""
        connection = http.client.HTTPConnection(*self._target, timeout=60)
        with contextlib.closing(connection):
            connection.request(method, path, body or None, headers)
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()

    def loss_of(self, method: str, path: str, status: int) -> Loss | None:
        """Whether this answer is to be lost, and how."""
        with self._lock:
            for wish in self._waiting:
                if method == wish[0] and urlsplit(path).path.endswith(wish[1]):
                    self._waiting.remove(wish)
                    self.lost.append((method, path, status))
                    return wish[2]
        return None


class _Handler(http.server.BaseHTTPRequestHandler):
    owner: LossyProxy
    protocol_version = "HTTP/1.1"

    def _pass(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        kept = {name: value for name, value in self.headers.items() if name.lower() not in _HOP_BY_HOP}
        status, headers, content = self.owner.ask(self.command, self.path, kept, body)
        loss = self.owner.loss_of(self.command, self.path, status)
        if loss is Loss.DROPPED:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        if loss is not None:
            status, headers, content = loss.value, [], b""
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() not in _HOP_BY_HOP:
                self.send_header(name, value)
        if status not in (204, 304):
            self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_HEAD = do_POST = do_DELETE = do_PUT = _pass  # noqa: N815  (the base class's names)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (the name is the base class's)
        """Not a word: pytest shows what failed."""
