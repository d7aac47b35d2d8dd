"""The limit on the head of a request holds however the bytes arrive.

zttp refuses a head of more than 16 KB. h11 refuses one of more than 64 KB that is not complete, so a head is
never larger than that and one read of the socket.
"""

from __future__ import annotations

import pytest

from tests.unit.server.child import SmallServer, head, read_answers

LARGE = 600_000
ACCEPTED = 12_000
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
    with server.connect() as connection:
        try:
            connection.sendall(head("GET", path, {**offer, **filling}))
            answer = read_answers(connection, 1)[0]
        except (ConnectionResetError, BrokenPipeError):
            answer = None  # refused while the client still sends
    if answer is not None:
        assert answer.status == 400
        assert answer.error["type"] == "BadRequestException"
        assert answer.headers["connection"] == "close"
    assert server.get("/echo").status == 200


def test_a_large_head_behind_a_sound_request_is_refused_after_its_answer(server: SmallServer) -> None:
    with server.connect() as connection:
        connection.sendall(head("GET", "/echo") + head("GET", "/echo", {"X-A": "a" * 100_000})[:-4])
        try:
            first, second = read_answers(connection, 2)
            rest = connection.recv(1)
        except ConnectionResetError:  # the server closed it with bytes unread: answers may be lost
            assert server.get("/echo").status == 200
            return
        assert (first.status, second.status) == (200, 400)
        assert rest == b""


def test_a_head_within_the_limit_and_a_large_body_pass_in_one_piece(server: SmallServer) -> None:
    body = b"b" * 100_000
    headers = {"X-A": "a" * ACCEPTED, "Content-Length": str(len(body))}
    answer = server.ask(head("POST", "/echo", headers) + body)
    assert (answer.status, answer.json["length"]) == (200, len(body))
