"""HTTP/1.1 as it really arrives: offers to upgrade, heads in pieces, several requests at once, broken bytes.

Against a real server over real sockets; test_segments.py cuts the bytes at every place.
"""

from __future__ import annotations

import hashlib
import json
import socket
import subprocess
import time
from pathlib import Path

import pytest
from websockets.sync.client import connect

from tests.harness.components import program
from tests.unit.server.child import Answer, SmallServer, chunked, head, read_answers

OFFER = {
    "Connection": "Upgrade, HTTP2-Settings",
    "Upgrade": "h2c",
    "HTTP2-Settings": "AAEAAEAAAAIAAAAAAAMAAAAAAAQBAAAAAAUAAEAAAAYABgAA",
}
SIZES = (0, 7, 64 * 1024, 200_000)


def message(body: bytes, *, framing: str, offer: bool, path: str = "/echo") -> bytes:
    headers = dict(OFFER) if offer else {}
    if framing == "chunked":
        return head("POST", path, {**headers, "Transfer-Encoding": "chunked"}) + chunked(body)
    return head("POST", path, {**headers, "Content-Length": str(len(body))}) + body


def pattern(size: int) -> bytes:
    return bytes(at * 7 % 251 for at in range(size))


def assert_arrived(answer: Answer, body: bytes) -> None:
    assert answer.status == 200
    assert answer.json["length"] == len(body)
    assert answer.json["sha256"] == hashlib.sha256(body).hexdigest()


@pytest.mark.parametrize("offer", [True, False], ids=["h2c", "plain"])
@pytest.mark.parametrize("framing", ["content-length", "chunked"])
@pytest.mark.parametrize("size", SIZES)
def test_the_body_arrives(server: SmallServer, size: int, framing: str, offer: bool) -> None:
    body = pattern(size)
    assert_arrived(server.ask(message(body, framing=framing, offer=offer)), body)


@pytest.mark.parametrize("framing", ["content-length", "chunked"])
def test_the_body_arrives_byte_by_byte(server: SmallServer, framing: str) -> None:
    body = b'{"a":1}'
    whole = message(body, framing=framing, offer=True)
    assert_arrived(server.ask(*(whole[at : at + 1] for at in range(len(whole)))), body)


@pytest.mark.parametrize("framing", ["content-length", "chunked"])
def test_head_and_body_arrive_apart(server: SmallServer, framing: str) -> None:
    """As Java sends them: the head in one segment, the body in the next, a moment later."""
    body = pattern(200_000)
    whole = message(body, framing=framing, offer=True)
    end = whole.index(b"\r\n\r\n") + 4
    with server.connect() as connection:
        connection.sendall(whole[:end])
        time.sleep(0.05)
        connection.sendall(whole[end:])
        assert_arrived(read_answers(connection, 1)[0], body)


def test_curl_with_the_offer_of_java(server: SmallServer) -> None:
    headers = [word for name, value in OFFER.items() for word in ("-H", f"{name}: {value}")]
    url = f"http://127.0.0.1:{server.port}/echo"
    command = [str(program("curl")), "-sS", "-X", "POST", *headers, "-d", '{"a":1}', url]
    seen = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    assert seen["length"] == 7


def test_the_connection_stays_alive_after_an_offer(server: SmallServer) -> None:
    with server.connect() as connection:
        for size in (3, 70_000, 0, 11):
            body = pattern(size)
            connection.sendall(message(body, framing="content-length", offer=size != 0))
            answer = read_answers(connection, 1)[0]
            assert_arrived(answer, body)
            assert "connection" not in answer.headers


def test_several_requests_in_one_segment(server: SmallServer) -> None:
    sizes = (5, 0, 300, 7, 1, 2000, 4)
    bodies = [pattern(size) for size in sizes]
    kinds = [("content-length", True), ("content-length", False), ("chunked", True), ("chunked", False)] * 2
    whole = b"".join(
        message(body, framing=framing, offer=offer)
        for body, (framing, offer) in zip(bodies, kinds, strict=False)
    )
    with server.connect() as connection:
        connection.sendall(whole)
        for answer, body in zip(read_answers(connection, len(sizes)), bodies, strict=True):
            assert_arrived(answer, body)


def test_other_connection_tokens_survive_the_offer(server: SmallServer) -> None:
    headers = {**OFFER, "Connection": "close, Upgrade, HTTP2-Settings", "Content-Length": "2"}
    answer = server.ask(head("POST", "/echo", headers) + b"{}")
    assert_arrived(answer, b"{}")


def test_websockets_still_work(server: SmallServer) -> None:
    with connect(f"ws://127.0.0.1:{server.port}/ws") as socket_:
        socket_.send("calve")
        assert socket_.recv() == "CALVE"


def test_a_trailer_does_not_become_a_header(server: SmallServer) -> None:
    body = b"3\r\nabc\r\n0\r\nAuthorization: Bearer forged\r\n\r\n"
    answer = server.ask(head("POST", "/echo", {"Transfer-Encoding": "chunked"}) + body)
    assert_arrived(answer, b"abc")
    assert "authorization" not in answer.json["headers"]


MALFORMED = {
    "not HTTP": b"hello\r\n\r\n",
    "two lengths": head("POST", "/echo", {"Content-Length": "1"})[:-2] + b"Content-Length: 2\r\n\r\nab",
    "length and chunks": head("POST", "/echo", {"Content-Length": "3", "Transfer-Encoding": "chunked"}),
    "negative length": head("POST", "/echo", {"Content-Length": "-1"}),
    "length overflows": head("POST", "/echo", {"Content-Length": "99999999999999999999999"}),
    "bad chunk size": head("POST", "/echo", {"Transfer-Encoding": "chunked"}) + b"zz\r\n",
    "no colon": b"GET / HTTP/1.1\r\nHost\r\n\r\n",
    "raw bytes in the path": b"GET /\xff\xfe HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "folded header": b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: 1\r\n 2\r\n\r\n",
    "space before the colon": b"GET / HTTP/1.1\r\nHost : a\r\n\r\n",
    "HTTP/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
}
# h11 unfolds a header, as RFC 9112 allows, and leaves the version of HTTP to the application.
H11_ACCEPTS = {"folded header": 200, "HTTP/2 preface": 505}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_requests_are_refused_in_the_usual_form(server: SmallServer, name: str) -> None:
    answer = server.ask(MALFORMED[name])
    if server.parser == "h11" and name in H11_ACCEPTS:
        assert answer.status == H11_ACCEPTS[name]
        return
    assert answer.status == 400
    assert answer.error["type"] == "BadRequestException"
    assert answer.headers["connection"] == "close"


def test_a_path_that_is_not_ascii_does_not_fail_behind_a_sound_request(server: SmallServer) -> None:
    with server.connect() as connection:
        connection.sendall(head("GET", "/echo") + MALFORMED["raw bytes in the path"])
        assert [answer.status for answer in read_answers(connection, 2)] == [200, 400]
        assert connection.recv(1) == b""
    assert "Traceback" not in server.log


def test_connect_to_another_host_is_refused(server: SmallServer) -> None:
    answer = server.ask(b"CONNECT example.com:443 HTTP/1.1\r\nHost: example.com\r\n\r\n")
    assert answer.error["code"] == 403


@pytest.mark.parametrize(
    "start",
    [b"GET /" + b"a" * 100, b"GET / HTTP/1.1\r\nX: ", b"GET / HTTP/1.1\r\n"],
    ids=["path", "value", "many"],
)
def test_an_endless_head_is_refused(server: SmallServer, start: bytes) -> None:
    filler = b"X-A: b\r\n" * 200 if start.endswith(b"\r\n") else b"a" * 1600
    with server.connect() as connection:
        connection.sendall(start)
        answer = _send_until_answered(connection, filler)
    assert answer.status == 400
    assert answer.error["type"] == "BadRequestException"


def test_endless_trailers_are_refused(server: SmallServer) -> None:
    with server.connect() as connection:
        connection.sendall(head("POST", "/echo", {"Transfer-Encoding": "chunked"}) + b"1\r\na\r\n0\r\n")
        answer = _send_until_answered(connection, b"X-A: b\r\n" * 200)
    assert answer.status == 400


def _send_until_answered(connection: socket.socket, filler: bytes) -> Answer:
    sent = 0
    connection.settimeout(0.02)
    while sent < 2_000_000:
        connection.sendall(filler)
        sent += len(filler)
        try:
            if connection.recv(1, socket.MSG_PEEK):
                connection.settimeout(30)
                return read_answers(connection, 1)[0]
        except TimeoutError:
            continue
    raise AssertionError(f"nothing came back after {sent} bytes")


def test_garbage_behind_a_sound_request_does_not_answer_for_it(server: SmallServer) -> None:
    """A commit that lands must never look like a 400 because of the bytes after it."""
    with server.connect() as connection:
        connection.sendall(message(b"abc", framing="content-length", offer=False) + b"\x00garbage\r\n\r\n")
        first, second = read_answers(connection, 2)
        assert_arrived(first, b"abc")
        assert second.error["type"] == "BadRequestException"
        assert connection.recv(1) == b""


@pytest.mark.parametrize("parser", ["zttp", "h11"])
def test_a_connection_that_sends_nothing_or_trickles_is_closed(tmp_path: Path, parser: str) -> None:
    settings = {"CALVE_KEEP_ALIVE_TIMEOUT_S": "1", "CALVE_HTTP_PARSER": parser}
    with SmallServer.started(tmp_path, settings) as own:
        with own.connect(timeout_s=30) as quiet:
            assert quiet.recv(1) == b""
        with own.connect(timeout_s=0.2) as slow:
            slow.sendall(head("GET", "/echo"))
            assert read_answers(slow, 1)[0].status == 200
            received = None
            for byte in head("GET", "/echo", {"X": "a" * 300}):
                slow.sendall(bytes([byte]))
                try:
                    received = slow.recv(1)
                    break
                except TimeoutError:
                    continue
            assert received == b""
