"""HTTP requests as values, and how they are sent.

An operation of the client is a generator: it yields a `Call`, gets the successful response, and returns its
result. So each is written once; `Connection` runs it, `AsyncConnection` runs it without blocking.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import httpx

from calve.errors import CalveError, Timeout, Unavailable, class_of

Result = TypeVar("Result")
Steps = Generator["Call", httpx.Response, Result]

DEFAULT_URL = "http://127.0.0.1:8181"
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
TRANSIENT = frozenset({429, 500, 502, 503, 504})
FIRST_DELAY_S = 0.1
DELAY_S_MAX = 5.0


@dataclass(frozen=True, slots=True)
class Call:
    """One request. `is_repeatable`: the server recognises a repeat, so any transient failure is retried."""

    method: str
    path: str
    params: Mapping[str, Any] = field(default_factory=dict)
    json: Any = None
    content: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float | None = None
    is_repeatable: bool = False

    def arguments(self) -> dict[str, Any]:
        """For `httpx.Client.request`. Parameters that are None are left out."""
        given: dict[str, Any] = {
            "method": self.method,
            "url": self.path,
            "params": {name: value for name, value in self.params.items() if value is not None},
            "headers": dict(self.headers),
        }
        if self.json is not None:
            given["json"] = self.json
        if self.content is not None:
            given["content"] = self.content
        if self.timeout_s is not None:
            given["timeout"] = self.timeout_s
        return given


class Attempts:
    """Decides whether a call is sent again, and when."""

    def __init__(self, call: Call, retry_s: float, now_s: Callable[[], float] = time.monotonic) -> None:
        self._call = call
        self._now_s = now_s
        self._until_s = now_s() + retry_s
        self._delay_s = FIRST_DELAY_S

    def delay_s(self, outcome: httpx.Response | httpx.TransportError) -> float | None:
        """Seconds to wait before the next attempt; None if this outcome is the last."""
        if not self._call.is_repeatable:
            return None
        if isinstance(outcome, httpx.Response) and outcome.status_code not in TRANSIENT:
            return None
        delay_s = self._delay_s * random.uniform(0.5, 1.0)  # noqa: S311 - spreads clients in time
        self._delay_s = min(self._delay_s * 2, DELAY_S_MAX)
        if isinstance(outcome, httpx.Response):
            delay_s = max(delay_s, _retry_after_s(outcome))
        return delay_s if self._now_s() + delay_s < self._until_s else None


def _retry_after_s(response: httpx.Response) -> float:
    text = response.headers.get("retry-after", "")
    return float(text) if text.isdecimal() else 0.0


class Connection:
    """Runs operations one after the other."""

    def __init__(self, client: httpx.Client, retry_s: float) -> None:
        self.client = client
        self._retry_s = retry_s

    def run(self, steps: Steps[Result]) -> Result:
        try:
            call = next(steps)
            while True:
                call = steps.send(self._send(call))
        except StopIteration as ended:
            result: Result = ended.value
            return result

    def _send(self, call: Call) -> httpx.Response:
        attempts = Attempts(call, self._retry_s)
        while True:
            outcome = self._outcome(call)
            delay_s = attempts.delay_s(outcome)
            if delay_s is None:
                return require_success(outcome, self.client.base_url)
            time.sleep(delay_s)

    def _outcome(self, call: Call) -> httpx.Response | httpx.TransportError:
        try:
            return self.client.request(**call.arguments())
        except httpx.TransportError as error:
            return error

    def stream(self, call: Call) -> Iterator[bytes]:
        """The body of the response in pieces, as they arrive."""
        try:
            with self.client.stream(**call.arguments()) as response:
                if not response.is_success:
                    response.read()
                yield from require_success(response, self.client.base_url).iter_bytes()
        except httpx.TransportError as error:
            raise _unreachable(error, self.client.base_url) from error


class AsyncConnection:
    """Runs operations on an event loop."""

    def __init__(self, client: httpx.AsyncClient, retry_s: float) -> None:
        self.client = client
        self._retry_s = retry_s

    async def run(self, steps: Steps[Result]) -> Result:
        try:
            call = next(steps)
            while True:
                call = steps.send(await self._send(call))
        except StopIteration as ended:
            result: Result = ended.value
            return result

    async def _send(self, call: Call) -> httpx.Response:
        attempts = Attempts(call, self._retry_s)
        while True:
            outcome = await self._outcome(call)
            delay_s = attempts.delay_s(outcome)
            if delay_s is None:
                return require_success(outcome, self.client.base_url)
            await asyncio.sleep(delay_s)

    async def _outcome(self, call: Call) -> httpx.Response | httpx.TransportError:
        try:
            return await self.client.request(**call.arguments())
        except httpx.TransportError as error:
            return error

    async def stream(self, call: Call) -> AsyncIterator[bytes]:
        """The body of the response in pieces, as they arrive."""
        try:
            async with self.client.stream(**call.arguments()) as response:
                if not response.is_success:
                    await response.aread()
                async for piece in require_success(response, self.client.base_url).aiter_bytes():
                    yield piece
        except httpx.TransportError as error:
            raise _unreachable(error, self.client.base_url) from error


def address_and_token(url: str | None, token: str | None) -> tuple[str, str | None]:
    """Where to connect to. Without a URL, CALVE_URI and CALVE_TOKEN say so, as for the commands."""
    if url is None:
        url = os.environ.get("CALVE_URI") or DEFAULT_URL
        token = token or os.environ.get("CALVE_TOKEN")
    return url.rstrip("/"), token


def client_arguments(url: str, token: str | None, timeout_s: float) -> dict[str, Any]:
    """For httpx.Client and httpx.AsyncClient."""
    # A proxy named in the environment does not know this machine's own addresses.
    is_here = httpx.URL(url).host in LOOPBACK
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return {"base_url": url, "headers": headers, "timeout": timeout_s, "trust_env": not is_here}


def require_success(outcome: httpx.Response | httpx.TransportError, url: httpx.URL) -> httpx.Response:
    """The response, or the error that it means."""
    if isinstance(outcome, httpx.TransportError):
        raise _unreachable(outcome, url) from None  # its message has what the cause says
    if not outcome.is_success:
        raise error_of(outcome)
    return outcome


def error_of(response: httpx.Response) -> CalveError:
    status = response.status_code
    message, type_ = f"The server answered {status}: {response.text[:500]}", ""
    if response.headers.get("content-type", "").startswith("application/json"):
        body = response.json()
        error = body.get("error") if isinstance(body, dict) else None
        if isinstance(error, dict) and isinstance(error.get("message"), str):
            message, type_ = error["message"], str(error.get("type", ""))
    return class_of(status)(message, status=status, type=type_)


def _unreachable(error: httpx.TransportError, url: httpx.URL) -> CalveError:
    shown = str(url).rstrip("/")
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
        return Unavailable(f"No server answers at {shown}. Start one with `calve serve`.")
    if isinstance(error, httpx.TimeoutException):
        return Timeout(f"{shown} did not answer in time.")
    return Unavailable(f"The connection to {shown} broke: {str(error) or type(error).__name__}.")
