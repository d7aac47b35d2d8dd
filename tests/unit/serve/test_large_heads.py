"""The limit on the head of a request holds however the bytes arrive."""

from __future__ import annotations

import pytest

from calve.serve.protocol import HEAD_BYTES_MAX
from tests.unit.serve.child import SmallServer, head, read_answers

LARGE = HEAD_BYTES_MAX + 16 * 1024
OFFER = {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "HTTP2-Settings": "AAE"}


@pytest.mark.parametrize("offer", [{}, OFFER], ids=["plain", "h2c"])
@pytest.mark.parametrize("where", ["value", "many", "path"])
def test_a_large_head_in_one_piece_is_refused(server: SmallServer, where: str, offer: dict[str, str]) -> None:
    filling = {
        "value": {"X-A": "a" * LARGE},
        "many": {f"X-{number}": "a" * 90 for number in range(LARGE // 90)},
        "path": {},
    }[where]
    path = "/" + "a" * LARGE if where == "path" else "/echo"
    answer = server.ask(head("GET", path, {**offer, **filling}))
    assert answer.status == 431
    assert answer.error["type"] == "RequestHeaderFieldsTooLargeException"
    assert answer.headers["connection"] == "close"


def test_a_large_head_behind_a_sound_request_is_refused_after_its_answer(server: SmallServer) -> None:
    with server.connect() as connection:
        connection.sendall(head("GET", "/echo") + head("GET", "/echo", {"X-A": "a" * LARGE}))
        answer = read_answers(connection, 1)[0]
        assert answer.status == 200
        assert answer.headers["connection"] == "close"
        assert connection.recv(1) == b""


def test_a_head_within_the_limit_and_a_large_body_pass_in_one_piece(server: SmallServer) -> None:
    body = b"b" * LARGE
    headers = {"X-A": "a" * (HEAD_BYTES_MAX - 1024), "Content-Length": str(len(body))}
    answer = server.ask(head("POST", "/echo", headers) + body)
    assert (answer.status, answer.json["length"]) == (200, len(body))
