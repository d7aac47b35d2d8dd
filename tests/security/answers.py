"""What every answer must look like."""

from __future__ import annotations

import re

import httpx

# Texts that only a leak of the server's inside would show.
INSIDES = re.compile(r'Traceback|sqlalchemy|sqlite3|psycopg|SELECT .* FROM |INSERT INTO|File "')


def is_error(answer: httpx.Response) -> bool:
    """Whether an answer is an error in Iceberg's form, and tells nothing of the inside of the server."""
    if answer.headers.get("content-type") != "application/json":
        return False
    body = answer.json()
    error = body.get("error")
    return (
        set(body) == {"error"}
        and isinstance(error, dict)
        and set(error) == {"message", "type", "code"}
        and error["code"] == answer.status_code
        and bool(error["message"])
        and INSIDES.search(answer.text) is None
    )


def assert_error(answer: httpx.Response, *statuses: int) -> None:
    assert answer.status_code in statuses, f"{answer.request.method} {answer.request.url}: {answer.text}"
    assert is_error(answer), answer.text
