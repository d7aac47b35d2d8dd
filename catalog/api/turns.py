"""Who may try next, where many commit to one table at once.

A commit that was overtaken is answered with 409; its client loads the table and tries again. Without an
order, whoever has just landed is the quickest to try again, the others lose again and again, and most
requests are in vain. So a client that lost has its turn: for a moment the commits of others to that table
wait, and those who lost after it hear of it when their own turn comes, one after the other.

A turn ends when its client has landed, or when it has not come back in time: nobody waits for one that pauses
or gives up. It is a courtesy among the connections of one process, and no guarantee hangs on it. A table that
nobody fights for costs a look into an empty dict.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field

COME_BACK_S = 0.01  # enough for a client nearby to load the table and to send its commit again
CARRY_OUT_S = 1.0  # a commit that takes longer does not keep the others
LINE_MAX = 64  # who finds more than so many waiting does not wait

Client = object  # whatever tells connections apart
Key = tuple[str, ...]


@dataclass(slots=True)
class _Waiting:
    client: Client
    turn: asyncio.Future[None]
    answered: bool  # it waits to hear that it lost, and must come back then; else it waits to be carried out


@dataclass(slots=True)
class _Line:
    holder: Client
    waiting: deque[_Waiting] = field(default_factory=deque)
    timer: asyncio.TimerHandle | None = None


class Turns:
    """All lines. Belongs to one event loop."""

    def __init__(self) -> None:
        self._lines: dict[Key, _Line] = {}

    async def before(self, key: Key, client: Client) -> None:
        """Wait until this client may commit."""
        line = self._lines.get(key)
        if line is None:
            return
        if line.holder == client:
            self._expect(key, line, CARRY_OUT_S)
        else:
            await self._wait(line, client, answered=False)

    async def after(self, key: Key, client: Client, *, lost: bool) -> None:
        """To be awaited before the client is answered."""
        line = self._lines.get(key)
        if line is None:
            if lost:
                line = self._lines[key] = _Line(client)
                self._expect(key, line, COME_BACK_S)
        elif line.holder != client:
            if lost:
                await self._wait(line, client, answered=True)
        elif lost:
            self._expect(key, line, COME_BACK_S)
        else:
            self._next(key, line)

    async def _wait(self, line: _Line, client: Client, *, answered: bool) -> None:
        if len(line.waiting) < LINE_MAX:
            waiting = _Waiting(client, asyncio.get_running_loop().create_future(), answered)
            line.waiting.append(waiting)
            await waiting.turn

    def _next(self, key: Key, line: _Line) -> None:
        while line.waiting:
            following = line.waiting.popleft()
            if not following.turn.done():  # cancelled, at a stop
                line.holder = following.client
                following.turn.set_result(None)
                self._expect(key, line, COME_BACK_S if following.answered else CARRY_OUT_S)
                return
        if line.timer is not None:
            line.timer.cancel()
        del self._lines[key]

    def _expect(self, key: Key, line: _Line, within_s: float) -> None:
        """The next step of the holder; if it takes longer, the turn is over."""
        if line.timer is not None:
            line.timer.cancel()
        line.timer = asyncio.get_running_loop().call_later(within_s, self._next, key, line)
