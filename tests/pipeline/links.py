"""Connections of producers that insist: a delivery is sent until it is acknowledged, over every crash."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Protocol

import httpx
import orjson
from websockets.exceptions import WebSocketException
from websockets.sync.client import ClientConnection, connect

from tests.pipeline.model import Delivery

PATIENCE_S = 600
PAUSE_S = 0.1


class NotTaken(Exception):
    """The server has not acknowledged it."""


class Link(Protocol):
    def send(self, delivery: Delivery) -> None:
        """Return when it is acknowledged; raise whatever kept it from being."""
        ...

    def close(self) -> None: ...


class HttpLink:
    def __init__(self, url: str) -> None:
        self._client = httpx.Client(base_url=url, timeout=30)

    def send(self, delivery: Delivery) -> None:
        body = b'{"events":' + delivery.events + b"}"
        answer = self._client.post(
            "/cdc",
            content=body,
            headers={"X-Source-Id": delivery.source, "Content-Type": "application/json"},
        )
        if answer.status_code >= 400:
            raise NotTaken(answer.text)

    def close(self) -> None:
        self._client.close()


class SocketLink:
    """One WebSocket, opened anew when it is lost."""

    def __init__(self, url: str) -> None:
        self._url = url.replace("http://", "ws://") + "/ws"
        self._open = ExitStack()
        self._socket: ClientConnection | None = None

    def send(self, delivery: Delivery) -> None:
        if self._socket is None:
            self._socket = self._open.enter_context(connect(self._url, max_size=None, open_timeout=10))
        head = {"type": "cdc_batch", "timestamp": 1, "sourceDoId": delivery.source}
        head |= {"sequenceNumber": delivery.number, "correlationId": str(delivery.number)}
        message = orjson.dumps(head)[:-1] + b',"events":' + delivery.events + b"}"
        try:
            self._socket.send(message.decode())
            answer = orjson.loads(self._socket.recv(timeout=30))
        except (OSError, WebSocketException, TimeoutError):
            self.close()
            raise
        if answer["type"] != "ack":
            time.sleep(answer.get("retryDelayMs", 0) / 1000)
            raise NotTaken(str(answer))
        assert answer["correlationId"] == str(delivery.number), answer

    def close(self) -> None:
        self._socket = None
        self._open.close()


class Phases:
    """Deliveries wait for their phase; whoever kills opens the phases one by one."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._open = -1
        self._left: dict[int, int] = {}

    def expect(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            self._left[delivery.phase] = self._left.get(delivery.phase, 0) + 1

    def begin(self, phase: int) -> None:
        with self._condition:
            self._open = phase
            self._condition.notify_all()

    def wait(self, phase: int) -> None:
        with self._condition:
            self._condition.wait_for(lambda: self._open >= phase)

    def done(self, phase: int) -> None:
        with self._condition:
            self._left[phase] -= 1
            self._condition.notify_all()

    def left(self, phase: int) -> int:
        return self._left.get(phase, 0)


def insist(link: Link, delivery: Delivery) -> int:
    """How often it was sent."""
    until_s = time.monotonic() + PATIENCE_S
    times = 0
    while True:
        times += 1
        try:
            link.send(delivery)
            return times
        except (httpx.HTTPError, OSError, WebSocketException, TimeoutError, NotTaken):
            if time.monotonic() > until_s:
                raise
            time.sleep(PAUSE_S)


@contextmanager
def sending(url: str, deliveries: dict[str, list[Delivery]], phases: Phases) -> Iterator[list[Future[int]]]:
    """Each source on two HTTP connections and a WebSocket, which take its deliveries in turn."""
    for found in deliveries.values():
        phases.expect(found)

    def work(waiting: Iterator[Delivery], lock: threading.Lock, link: Link) -> int:
        tries = 0
        try:
            while True:
                with lock:
                    delivery = next(waiting, None)
                if delivery is None:
                    return tries
                phases.wait(delivery.phase)
                tries += insist(link, delivery)
                phases.done(delivery.phase)
        finally:
            link.close()

    with ThreadPoolExecutor(3 * len(deliveries)) as threads:
        futures = []
        for found in deliveries.values():
            waiting, lock = iter(found), threading.Lock()
            links = (HttpLink(url), SocketLink(url), HttpLink(url))
            futures += [threads.submit(work, waiting, lock, link) for link in links]
        try:
            yield futures
        finally:
            phases.begin(10**9)  # nobody waits for ever for a test that failed
