"""Hostile HTTP on one connection or many: framing, sizes, encodings, odd paths and methods.

The server keeps its promises (a status in 4xx, Iceberg's form of errors, bounded memory) and goes on serving.
"""

from __future__ import annotations

import gzip
import re
import socket
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import zstandard

from tests.harness.rest import Rest
from tests.harness.server import CalveServer
from tests.security.raw_http import Answer, ask, connect, head, read

LIMIT = 1 << 20
RSS_GROWTH_BYTES_MAX = 64 << 20
H2C = {
    "Connection": "Upgrade, HTTP2-Settings",
    "Upgrade": "h2c",
    "HTTP2-Settings": "AAEAAEAAAAIAAAAAAAMAAAAAAAQBAAAAAAUAAEAAAAYABgAA",
}


@pytest.fixture(scope="module", params=["zttp", "h11"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CalveServer]:
    settings = {
        "CALVE_BODY_BYTES_MAX": str(LIMIT),
        "CALVE_REQUEST_TIMEOUT_S": "3",
        "CALVE_KEEP_ALIVE_TIMEOUT_S": "3",  # also the time for a head that never ends
        "CALVE_HTTP_PARSER": request.param,
    }
    with CalveServer.started(tmp_path_factory.mktemp("hostile"), settings) as started:
        yield started
        assert started.running, "the server did not survive"
        log = Path(started.log).read_text()
        assert "Traceback" not in log, log[-4000:]


def _rss_bytes(server: CalveServer) -> int:
    text = Path(f"/proc/{server.pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", text)
    assert found is not None
    return int(found[1]) * 1024


def _post(path: str, body: bytes, **headers: str) -> bytes:
    given = {
        "Content-Length": str(len(body)),
        **{name.replace("_", "-"): text for name, text in headers.items()},
    }
    return head("POST", path, given) + body


def _assert_refused(answer: Answer, *statuses: int) -> None:
    assert answer.status in statuses, (answer.status, answer.body)
    assert answer.is_error, answer.body


def _alive(server: CalveServer) -> None:
    assert ask(server.port, head("GET", "/v1/config")).status == 200


# -- framing

BODY = b'{"namespace": ["x"]}'
NAMESPACES = "/v1/main/namespaces"
BROKEN_FRAMES = {
    "negative length": {"Content-Length": "-1"},
    "length with a sign": {"Content-Length": "+20"},
    "length in hex": {"Content-Length": "0x14"},
    "two lengths in one header": {"Content-Length": "20, 3"},
    "length that is no number": {"Content-Length": "many"},
    "length beyond 64 bits": {"Content-Length": "9" * 30},
    "length and chunks": {"Content-Length": "20", "Transfer-Encoding": "chunked"},
    "chunks that are not last": {"Transfer-Encoding": "chunked, gzip"},
    "unknown transfer encoding": {"Transfer-Encoding": "xchunked"},
    "space in a header name": {"Content Length": "20"},
    "line break in a header": {"X-A": "a\nContent-Length: 3"},
}


@pytest.mark.parametrize("frame", BROKEN_FRAMES)
def test_a_broken_frame_is_refused(server: CalveServer, frame: str) -> None:
    before = _names(server)
    answer = ask(server.port, head("POST", NAMESPACES, BROKEN_FRAMES[frame]) + BODY)
    _assert_refused(answer, 400, 413, 501)
    assert _names(server) == before
    _alive(server)


def test_two_lengths_are_refused(server: CalveServer) -> None:
    lines = (
        f"POST {NAMESPACES} HTTP/1.1\r\nHost: a\r\nContent-Length: 20\r\nContent-Length: 3\r\n\r\n".encode()
    )
    _assert_refused(ask(server.port, lines + BODY), 400)


def test_nothing_is_smuggled_behind_a_short_length(server: CalveServer) -> None:
    """What follows the body is the next request or nothing; it is never part of the one before."""
    with connect(server.port) as connection:
        connection.sendall(_post(NAMESPACES, BODY[:5]) + BODY[5:])
        assert read(connection).status == 400
        # The rest is no request: refused, or the connection is gone.
        assert connection.recv(100_000)[:12] in (b"", b"HTTP/1.1 400")
    assert "x" not in _names(server)


def test_a_body_that_never_comes_does_not_run_the_request(server: CalveServer) -> None:
    with connect(server.port) as connection:
        connection.sendall(head("POST", NAMESPACES, {"Content-Length": "20"}) + BODY[:10])
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(100_000)[:12] in (b"", b"HTTP/1.1 400", b"HTTP/1.1 408")
    with connect(server.port) as connection:
        connection.sendall(head("POST", NAMESPACES, {"Content-Length": "20"}) + BODY[:10])
        _assert_refused(read(connection), 408)
    assert "x" not in _names(server)


@pytest.mark.parametrize("line", [b"zz\r\n", b"-1\r\n", b"5\r\nabc\r\n", b"ffffffffffffffffff\r\n"])
def test_broken_chunks_are_refused(server: CalveServer, line: bytes) -> None:
    answer = ask(
        server.port, head("POST", NAMESPACES, {"Transfer-Encoding": "chunked"}) + line + b"0\r\n\r\n"
    )
    _assert_refused(answer, 400, 408, 413)  # 408: h11 waits for a chunk of any size, within the deadline
    assert "x" not in _names(server)


@pytest.mark.parametrize(
    "bytes_",
    [
        b"\x00\x01\x02\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
)
def test_what_is_not_http_is_refused(server: CalveServer, bytes_: bytes) -> None:
    with connect(server.port) as connection:
        connection.sendall(bytes_)
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(100_000)[:12] in (b"", b"HTTP/1.1 400", b"HTTP/1.1 404", b"HTTP/1.1 505")
    _alive(server)


@pytest.mark.parametrize("way", ["one header", "many headers", "long path", "endless"])
def test_a_head_that_is_too_large_is_refused(server: CalveServer, way: str) -> None:
    # More than one read of a socket brings in.
    request = {
        "one header": head("GET", "/v1/config", {"X-A": "a" * 600_000}),
        "many headers": head("GET", "/v1/config", {f"X-{number}": "a" * 100 for number in range(6000)}),
        "long path": head("GET", "/v1/main/namespaces/" + "a" * 600_000),
        "endless": b"GET /v1/config HTTP/1.1\r\nX-A: " + b"a" * 600_000,
    }[way]
    with connect(server.port) as connection:
        try:
            connection.sendall(request)
            answer = read(connection)
        except (ConnectionResetError, BrokenPipeError):
            answer = None  # it may be refused while the client still sends
    if answer is not None:
        _assert_refused(answer, 400)
    _alive(server)


# -- sizes


def test_a_declared_length_beyond_the_limit_is_refused_unread(server: CalveServer) -> None:
    with connect(server.port) as connection:
        connection.sendall(head("POST", NAMESPACES, {"Content-Length": str(2**30)}))
        _assert_refused(read(connection), 413)


@pytest.mark.parametrize(
    "path", [NAMESPACES, "/v1/oauth/tokens", "/lake/v1/warehouses", "/v1/no/such/route", "/health"]
)
def test_chunks_beyond_the_limit_are_refused_before_the_rest_comes(server: CalveServer, path: str) -> None:
    """Nothing more than the limit and 64 KiB is sent, and the answer comes all the same."""
    piece = b"%x\r\n%b\r\n" % (1 << 16, b" " * (1 << 16))
    with connect(server.port) as connection:
        connection.sendall(head("POST", path, {"Transfer-Encoding": "chunked"}))
        for _ in range(LIMIT // (1 << 16) + 1):
            connection.sendall(piece)
        _assert_refused(read(connection), 413)


def test_a_body_of_exactly_the_limit_is_read(server: CalveServer) -> None:
    body = BODY[:-1] + b" " * (LIMIT - len(BODY)) + b"}"
    assert ask(server.port, _post("/v1/main/namespaces/none/properties", body)).status in (400, 404)
    assert ask(server.port, _post("/v1/main/namespaces/none/properties", body + b" ")).status == 413


def _bomb(coding: str, bytes_: int) -> bytes:
    piece, count = b" " * (1 << 20), bytes_ >> 20
    if coding == "gzip":
        packer = zlib.compressobj(9, zlib.DEFLATED, 31)
        return b"".join(packer.compress(piece) for _ in range(count)) + packer.flush()
    stream = zstandard.ZstdCompressor().compressobj()
    return b"".join(stream.compress(piece) for _ in range(count)) + stream.flush()


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_a_bomb_takes_no_memory(server: CalveServer, coding: str) -> None:
    bomb = _bomb(coding, 512 << 20)
    assert len(bomb) < LIMIT
    _alive(server)
    before = _rss_bytes(server)
    for _ in range(4):
        _assert_refused(ask(server.port, _post(NAMESPACES, bomb, Content_Encoding=coding)), 413)
    growth = _rss_bytes(server) - before
    print(f"rss growth after 4 {coding} bombs of 512 MiB: {growth >> 10} KiB")
    assert growth < RSS_GROWTH_BYTES_MAX


@pytest.mark.parametrize(
    ("coding", "body", "statuses"),
    [
        ("gzip", b"not gzip", (400,)),
        ("gzip", gzip.compress(BODY)[:-4], (400,)),
        ("gzip", gzip.compress(BODY) + b"rest", (400,)),
        ("gzip", gzip.compress(gzip.compress(BODY)), (400,)),
        ("zstd", b"\x28\xb5\x2f\xfd", (400,)),
        ("zstd", zstandard.compress(BODY)[:-2], (400,)),
        ("br", BODY, (415,)),
        ("gzip, gzip", gzip.compress(gzip.compress(BODY)), (415,)),
        ("deflate", zlib.compress(BODY), (415,)),
        ("x" * 1000, BODY, (415,)),
    ],
    ids=[
        "not-gzip",
        "torn-gzip",
        "gzip-and-rest",
        "gzip-twice",
        "zstd-head-only",
        "torn-zstd",
        "brotli",
        "gzip-gzip",
        "deflate",
        "long-coding",
    ],
)
def test_a_broken_coding_is_refused(
    server: CalveServer, coding: str, body: bytes, statuses: tuple[int, ...]
) -> None:
    _assert_refused(ask(server.port, _post(NAMESPACES, body, Content_Encoding=coding)), *statuses)
    assert "x" not in _names(server)


def test_a_flood_of_large_bodies_takes_bounded_memory(server: CalveServer) -> None:
    body = b'{"namespace": ["' + b"a" * (LIMIT - 100) + b'"]}'
    ask(server.port, _post(NAMESPACES, body))
    before = _rss_bytes(server)
    for _ in range(60):
        _assert_refused(ask(server.port, _post(NAMESPACES, body)), 400)
    growth = _rss_bytes(server) - before
    print(f"rss growth after 60 bodies of 1 MiB: {growth >> 10} KiB")
    assert growth < RSS_GROWTH_BYTES_MAX


# -- an offer of HTTP/2


@pytest.mark.parametrize("pieces", [1, 2, 7])
def test_an_offer_of_http2_keeps_the_body(server: CalveServer, pieces: int) -> None:
    """Java's client makes it with every request; a parser that takes it for the end of HTTP loses it."""
    name = f"h2c{pieces}"
    body = f'{{"namespace": ["{name}"], "properties": {{"a": "b"}}}}'.encode()
    request = head("POST", NAMESPACES, {**H2C, "Content-Length": str(len(body))}) + body
    size = len(request) // pieces + 1
    answer = ask(server.port, *(request[at : at + size] for at in range(0, len(request), size)))
    assert answer.status == 200, answer.body
    assert name in _names(server)


def test_an_offer_of_http2_in_chunks_keeps_the_body(server: CalveServer) -> None:
    body = b'{"namespace": ["h2c-chunks"]}'
    frame = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    request = head("POST", NAMESPACES, {**H2C, "Transfer-Encoding": "chunked"}) + frame
    assert ask(server.port, request).status == 200
    assert "h2c-chunks" in _names(server)


# -- routes and methods

NO_ROUTES = [
    "/v1",
    "/v1/",
    "/v2/config",
    "/v1/config/",
    "/v1//config",
    "//v1/config",
    "/V1/config",
    "/v1/main/namespaces/",
    "/v1/main/namespaces/a/tables/",
    "/v1/main/namespaces/a/tables/t/credentials",
    "/v1/main/namespaces/a/tables/t/plan",
    "/v1/main/namespaces/a/functions",
    "/v1/main/../main/namespaces",
    "/v1/main/namespaces/../../config",
    "/v1/main/%2e%2e/config",
    "/v1%2fconfig",
    "/%76%31/config",
    "/lake/v1",
    "/lake/v1/../../v1/config",
    "/lake/v1/warehouses/",
    "/lake/v2/warehouses",
    "/../../etc/passwd",
    "/..%2f..%2fetc/passwd",
    "/%2e%2e/%2e%2e/etc/passwd",
    "/\\..\\etc",
    "/%ff",
    "/v1/%ff",
    "/.git/config",
    "/redoc",
    "/docs/",
    "/docs/static/",
    "/docs/static/../__init__.py",
    "/docs/static/..%2f__init__.py",
    "/docs/static/%2e%2e/core.py",
    "/openapi.yaml",
    "/favicon.ico",
]


@pytest.mark.parametrize("path", NO_ROUTES)
def test_an_unknown_route_is_not_found_in_icebergs_form(server: CalveServer, path: str) -> None:
    _assert_refused(ask(server.port, head("GET", path)), 404, 400)


@pytest.mark.parametrize(
    "path", ["/v1/main/namespaces/%ff", "/v1/main/namespaces/a%ff/tables", "/v1/%ff/namespaces"]
)
def test_a_path_that_is_not_utf8_is_refused(server: CalveServer, path: str) -> None:
    """It must not become some other name."""
    _assert_refused(ask(server.port, head("GET", path)), 400, 404)
    raw = path.replace("%ff", "\xff")
    _assert_refused(ask(server.port, head("GET", raw)), 400, 404)


METHODS = ["PUT", "PATCH", "OPTIONS", "TRACE", "PROPFIND", "MKCOL", "LOCK", "REPORT", "SEARCH", "BREW"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "path", ["/v1/config", NAMESPACES, "/v1/main/namespaces/a/tables/t", "/lake/v1/warehouses", "/health"]
)
def test_an_unknown_method_is_refused_in_icebergs_form(server: CalveServer, method: str, path: str) -> None:
    answer = ask(server.port, head(method, path))
    _assert_refused(answer, 405, 400)
    if answer.status == 405:
        assert answer.headers.get("allow")


@pytest.mark.parametrize(
    "path",
    [
        "/v1/config",
        NAMESPACES,
        "/v1/main/namespaces/a",
        "/v1/main/namespaces/a/tables/t",
        "/v1/main/namespaces/a/views/v",
        "/v1/nowhere",
        "/lake/v1/warehouses",
        "/health",
    ],
)
def test_an_answer_to_head_has_no_body(server: CalveServer, path: str) -> None:
    with connect(server.port) as connection:
        connection.sendall(head("HEAD", path))
        assert read(connection, "HEAD").body == b""
        # A body would be read as the next answer.
        connection.sendall(head("GET", "/health"))
        assert read(connection).status == 200


def test_a_request_id_is_taken_over_only_if_it_is_sane(server: CalveServer) -> None:
    for given, kept in (
        ("abc-1", True),
        ("a b", False),
        ("x" * 65, False),
        ("a\tb", False),
        ("<script>", False),
        ("é", False),
    ):
        answer = ask(server.port, head("GET", "/v1/nowhere", {"X-Request-Id": given}))
        assert (answer.headers["x-request-id"] == given) is kept, given
        assert answer.headers["x-request-id"]
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_many_connections_that_say_nothing_do_not_stop_the_others(server: CalveServer) -> None:
    silent = [connect(server.port) for _ in range(200)]
    try:
        for connection in silent[:100]:
            connection.sendall(b"GET /v1/config HTTP/1.1\r\nX-A: ")
        _alive(server)
    finally:
        for connection in silent:
            connection.close()
    _alive(server)


def _names(server: CalveServer) -> set[str]:
    rest = Rest(server.url)
    return {levels[0] for levels in rest.ok("GET", rest.path("namespaces"))["namespaces"]}
