"""Routes see the path as the client wrote it; a path without a prefix means the warehouse main."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import unquote

import pytest

from calve.http.raw_path import RawPathMiddleware


def routed(raw: str) -> str:
    """The path by which the application behind the middleware finds a route."""
    seen: list[str] = []

    async def app(scope: Any, _receive: Any, _send: Any) -> None:
        seen.append(scope["path"])

    scope = {"type": "http", "path": unquote(raw), "raw_path": raw.encode()}
    asyncio.run(RawPathMiddleware(app)(scope, None, None))
    assert scope["raw_path"] == raw.encode()
    return seen[0]


@pytest.mark.parametrize(
    "raw",
    [
        "/v1/main/namespaces/a%1Fb%2Fc/tables/o%2Fr%25",
        "/v1/main@5/namespaces",
        "/v1/config",
        "/v1/namespaces2/namespaces",
        "/v1/oauth/tokens",
        "/lake/v1/main/namespaces/a%2Fb/tables/t",
        "/lake/v1/tables",
        "/cdc/a%2Fb/t",
        "/topics/a%2Fb",
    ],
)
def test_encoded_characters_stay_in_their_segment(raw: str) -> None:
    assert routed(raw) == raw


@pytest.mark.parametrize(
    "rest",
    ["namespaces", "namespaces/a%2Fb", "tables/rename", "views/rename", "transactions/commit"],
)
def test_a_path_without_a_prefix_means_main(rest: str) -> None:
    assert routed(f"/v1/{rest}") == f"/v1/main/{rest}"


def test_other_paths_are_decoded_as_usual() -> None:
    assert routed("/st%61tus") == "/status"
