"""A server that a test makes up: what it answers, and what it was sent. For routes and failures."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import httpx

from calve.client import AsyncLake, Lake, connect, connect_async

URL = "http://lake.test"
CONFIG = {"overrides": {"prefix": "main", "namespace-separator": "%1F"}, "defaults": {}}
Answer = Mapping[str, Any] | httpx.Response | BaseException


class FakeServer:
    """Answers `METHOD /path` from a table; a list is answered one element after the other."""

    def __init__(self, answers: Mapping[str, Answer | list[Answer]]) -> None:
        self._answers = {"GET /v1/config": CONFIG, **answers}
        self.requests: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = self._answers[f"{request.method} {request.url.raw_path.decode().partition('?')[0]}"]
        if isinstance(answer, list):
            answer = answer.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        if isinstance(answer, httpx.Response):
            return answer
        return httpx.Response(200, json=answer)

    def connect(self, **more: Any) -> Lake:
        return connect(URL, transport=httpx.MockTransport(self), **more)

    async def connect_async(self, **more: Any) -> AsyncLake:
        return await connect_async(URL, transport=httpx.MockTransport(self), **more)

    @property
    def last(self) -> httpx.Request:
        return self.requests[-1]

    @property
    def sent(self) -> Any:
        """The body of the last request, as JSON."""
        return json.loads(self.last.content)


def failed(status: int, message: str, type_: str = "SomeException", **headers: str) -> httpx.Response:
    error = {"message": message, "type": type_, "code": status}
    return httpx.Response(status, json={"error": error}, headers=headers)
