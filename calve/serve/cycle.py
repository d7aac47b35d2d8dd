"""One request and its answer on a connection: uvicorn's cycle, which can also write a whole answer at once.

The two messages of ASGI become two writes, and each wakes the client. Almost every answer is whole when it
is sent, so the application finds `calve.reply` in the scope: `await reply(answer)` writes head and body
together.
"""

from __future__ import annotations

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from calve.serve.answers import Whole, wire_answer

CLOSE = (b"connection", b"close")


class Cycle(RequestResponseCycle):
    async def reply(self, answer: Whole) -> None:
        """The answer, from its first byte to its last."""
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            return
        if self.response_started:
            raise RuntimeError("the request has been answered already")
        headers = self.default_headers if self.keep_alive else [*self.default_headers, CLOSE]
        self.response_started = self.response_complete = True
        self.waiting_for_100_continue = False
        self.transport.writelines(wire_answer(answer, headers))
        self.message_event.set()  # who waits for more of the body hears of the end
        if not self.keep_alive:
            self.transport.close()
        self.on_response()
