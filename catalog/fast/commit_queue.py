"""A fair order for clients that commit to the same contended table.

A commit that fails the version comparison is refused with 409; its client loads the table and tries again.
Without an order, the client that has just committed is usually the first to try again, the others fail again,
and most requests are wasted. With the queue, a client that failed gets the table for a short time: commits of
other clients wait, and clients that fail later get their response when their own turn comes.

A turn ends when its client has committed, or when the client does not return in time. A queue covers the
connections of one process, and correctness does not depend on it. A table without contention is not
in `contended`: its commits call nothing here.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field

RETURN_S = 0.01  # enough for a nearby client to load the table and to commit again
COMMIT_S = 1.0  # after this time a commit no longer delays the others
QUEUE_MAX = 64  # a client does not wait behind a longer queue

Client = object  # identifies a connection
Key = tuple[str, ...]


@dataclass(slots=True)
class _Waiting:
    client: Client
    turn: asyncio.Future[None]
    lost: bool  # it waits for its 409 response and must commit again after it; otherwise it waits to commit


@dataclass(slots=True)
class _Queue:
    holder: Client
    waiting: deque[_Waiting] = field(default_factory=deque)
    timer: asyncio.TimerHandle | None = None


class CommitQueue:
    """The queues of all contended tables. Used by one event loop."""

    def __init__(self) -> None:
        self.contended: dict[Key, _Queue] = {}

    async def enter(self, key: Key, client: Client) -> None:
        """Wait until this client may commit."""
        queue = self.contended.get(key)
        if queue is None:
            return
        if queue.holder == client:
            self._expect(key, queue, COMMIT_S)
        else:
            await self._wait(queue, client, lost=False)

    async def leave(self, key: Key, client: Client, *, lost: bool) -> None:
        """Awaited before the response is sent."""
        queue = self.contended.get(key)
        if queue is None:
            if lost:
                queue = self.contended[key] = _Queue(client)
                self._expect(key, queue, RETURN_S)
        elif queue.holder != client:
            if lost:
                await self._wait(queue, client, lost=True)
        elif lost:
            self._expect(key, queue, RETURN_S)
        else:
            self._next(key, queue)

    async def _wait(self, queue: _Queue, client: Client, *, lost: bool) -> None:
        if len(queue.waiting) < QUEUE_MAX:
            waiting = _Waiting(client, asyncio.get_running_loop().create_future(), lost)
            queue.waiting.append(waiting)
            await waiting.turn

    def _next(self, key: Key, queue: _Queue) -> None:
        while queue.waiting:
            following = queue.waiting.popleft()
            if not following.turn.done():  # cancelled at shutdown
                queue.holder = following.client
                following.turn.set_result(None)
                self._expect(key, queue, RETURN_S if following.lost else COMMIT_S)
                return
        if queue.timer is not None:
            queue.timer.cancel()
        del self.contended[key]

    def _expect(self, key: Key, queue: _Queue, within_s: float) -> None:
        """End the turn if the holder's next step takes longer."""
        if queue.timer is not None:
            queue.timer.cancel()
        queue.timer = asyncio.get_running_loop().call_later(within_s, self._next, key, queue)
