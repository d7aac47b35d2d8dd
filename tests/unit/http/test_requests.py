"""What holds for every request, against a real server: ids, limits, codings, deadlines, failures, the log."""

from __future__ import annotations

import gzip
import http.client
import time
from pathlib import Path
from typing import Any

import pytest
import zstandard

from tests.unit.http.conftest import BODY_BYTES_MAX
from tests.unit.server.app import DETAIL
from tests.unit.server.child import SmallServer, chunked, head, read_answers


def post(body: bytes, headers: dict[str, str] | None = None, path: str = "/echo") -> bytes:
    return head("POST", path, {"Content-Length": str(len(body)), **(headers or {})}) + body


def test_every_answer_has_a_request_id(server: SmallServer) -> None:
    first, second = server.get("/echo"), server.get("/echo")
    assert first.headers["x-request-id"] != second.headers["x-request-id"]
    assert first.headers["x-content-type-options"] == "nosniff"
    assert "server" not in first.headers


def test_a_sane_request_id_is_kept(server: SmallServer) -> None:
    for name in ("abc", "0af7651916cd43dd8448eb211c80319c", "a.b_c:d-e"):
        assert server.get("/echo", {"X-Request-ID": name}).headers["x-request-id"] == name
    for name in ("", "a" * 65, "a b", "a;b", 'a"b'):
        assert server.get("/echo", {"X-Request-ID": name}).headers["x-request-id"] != name


def test_a_body_over_the_limit_is_refused_before_it_is_sent(server: SmallServer) -> None:
    headers = {"Content-Length": str(BODY_BYTES_MAX + 1), "Expect": "100-continue"}
    answer = server.ask(head("POST", "/echo", headers))
    assert answer.status == 413
    assert answer.error["type"] == "PayloadTooLargeException"
    assert answer.headers["connection"] == "close"


def test_a_body_at_the_limit_is_fine(server: SmallServer) -> None:
    body = b"a" * BODY_BYTES_MAX
    assert server.ask(post(body)).json["length"] == BODY_BYTES_MAX
    whole = head("POST", "/echo", {"Transfer-Encoding": "chunked"}) + chunked(body, 50_000)
    assert server.ask(whole).json["length"] == BODY_BYTES_MAX


@pytest.mark.parametrize("size", [BODY_BYTES_MAX + 1, 20 * BODY_BYTES_MAX])
def test_a_client_that_sends_all_first_still_reads_the_refusal(server: SmallServer, size: int) -> None:
    """http.client, and so requests and PyIceberg, reads nothing before it has sent everything."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request("POST", "/echo", body=b"a" * size)
    response = connection.getresponse()
    assert response.status == 413
    assert b"PayloadTooLargeException" in response.read()
    connection.close()


def test_chunks_without_end_are_cut_at_the_limit(server: SmallServer) -> None:
    piece = b"10000\r\n" + b"a" * 65536 + b"\r\n"
    sent = 0
    with server.connect() as connection:
        connection.sendall(head("POST", "/echo", {"Transfer-Encoding": "chunked"}))
        try:
            while sent < 2**30:
                connection.sendall(piece)
                sent += len(piece)
        except OSError:
            pass
    assert sent < 2**30
    assert server.get("/echo").status == 200


@pytest.mark.parametrize(("coding", "pack"), [("gzip", gzip.compress), ("zstd", zstandard.compress)])
def test_packed_bodies_are_unpacked(server: SmallServer, coding: str, pack: Any) -> None:
    for size in (10, BODY_BYTES_MAX):
        packed = pack(bytes(at % 256 for at in range(size)))
        answer = server.ask(post(packed, {"Content-Encoding": coding}))
        assert answer.json["length"] == size
        assert answer.json["headers"]["content-length"] == str(size)
        assert "content-encoding" not in answer.json["headers"]
        whole = head("POST", "/echo", {"Content-Encoding": coding, "Transfer-Encoding": "chunked"})
        assert server.ask(whole + chunked(packed)).json["length"] == size
    bomb = pack(b"\0" * (BODY_BYTES_MAX + 1))
    assert server.ask(post(bomb, {"Content-Encoding": coding})).error["code"] == 413
    assert server.ask(post(b"not packed", {"Content-Encoding": coding})).error["code"] == 400


@pytest.mark.parametrize("coding", ["br", "gzip, gzip", "deflate", "x"])
def test_unknown_codings_are_refused(server: SmallServer, coding: str) -> None:
    answer = server.ask(post(b"abc", {"Content-Encoding": coding}))
    assert answer.error["type"] == "UnsupportedMediaTypeException"
    assert answer.status == 415


def test_a_failure_says_nothing_but_the_request_id(server: SmallServer) -> None:
    answer = server.get("/boom")
    assert answer.status == 500
    assert answer.error["type"] == "InternalServerError"
    assert answer.headers["x-request-id"] in answer.error["message"]
    assert DETAIL not in answer.body.decode()
    logged = [line for line in server.lines("request failed") if line["path"] == "/boom"]
    assert logged[-1]["request_id"] == answer.headers["x-request-id"]
    assert DETAIL in logged[-1]["traceback"]


def test_an_application_without_an_answer_is_a_failure(server: SmallServer) -> None:
    assert server.get("/silent").error["code"] == 500


def test_half_an_answer_is_cut(server: SmallServer) -> None:
    with pytest.raises(http.client.IncompleteRead):
        server.get("/half")
    assert server.get("/echo").status == 200


def test_a_client_that_leaves_in_the_middle_of_its_body(server: SmallServer) -> None:
    with server.connect() as connection:
        connection.sendall(head("POST", "/gone", {"Content-Length": "100"}) + b"abc")
    line = _logged(server, "/gone")
    assert line["status"] == 499


def test_requests_are_logged(server: SmallServer) -> None:
    sent = {"X-Request-ID": "logged-1"}
    assert server.get("/echo/some%20name?token=secret", sent, method="DELETE").status == 200
    line = _logged(server, "/echo/some%20name")
    assert line["request_id"] == "logged-1"
    assert (line["method"], line["status"], line["level"], line["operation"]) == (
        "DELETE",
        200,
        "info",
        "echo",
    )
    assert line["duration_ms"] >= 0
    assert "token=secret" not in server.log


def test_successful_reads_are_counted_and_not_logged(server: SmallServer) -> None:
    assert server.get("/echo/quiet").status == 200
    assert server.get("/echo/loud", method="DELETE").status == 200
    _logged(server, "/echo/loud")
    assert not [line for line in server.lines("request") if line["path"] == "/echo/quiet"]


def _logged(server: SmallServer, path: str) -> dict[str, Any]:
    """The log line of this path, which is written within a moment."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        lines = [line for line in server.lines("request") if line["path"] == path]
        if lines:
            return lines[-1]
        time.sleep(0.05)
    raise AssertionError(f"{path} was not logged")


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Any:
    settings = {"CALVE_REQUEST_TIMEOUT_S": "0.4", "CALVE_LOG_LEVEL": "warning"}
    with SmallServer.started(tmp_path_factory.mktemp("hasty"), settings) as started:
        yield started


def test_a_read_past_its_deadline(hasty: SmallServer) -> None:
    answer = hasty.get("/sleep?s=5")
    assert answer.status == 504
    assert answer.error["type"] == "GatewayTimeoutException"


def test_a_change_past_its_deadline_goes_on(hasty: SmallServer, tmp_path: Path) -> None:
    mark = tmp_path / "committed"
    answer = hasty.get(f"/sleep?s=1.5&file={mark}", method="POST")
    assert answer.status == 504
    assert answer.error["type"] == "CommitStateUnknownException"
    assert not mark.exists()
    deadline = time.monotonic() + 30
    while not mark.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert mark.exists()


def test_a_body_past_its_deadline(hasty: SmallServer) -> None:
    answer = hasty.ask(head("POST", "/echo", {"Content-Length": "10"}) + b"abc")
    assert answer.status == 408
    assert answer.error["type"] == "RequestTimeoutException"


def test_quick_requests_are_not_disturbed_by_slow_ones(hasty: SmallServer) -> None:
    with hasty.connect() as connection:
        for _ in range(3):
            connection.sendall(head("GET", "/sleep?s=0.1"))
            assert read_answers(connection, 1)[0].status == 200


def test_at_warning_only_failures_are_logged(hasty: SmallServer) -> None:
    assert hasty.get("/sleep?s=0").status == 200
    assert hasty.get("/boom?at=warning").status == 500
    assert _logged(hasty, "/boom")["level"] == "error"
    assert all(line["status"] >= 500 for line in hasty.lines("request"))
