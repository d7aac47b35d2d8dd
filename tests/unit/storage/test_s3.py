"""The S3 client: what it takes from the environment, from other kinds of stores, and across a fork."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from catalog.errors import Unavailable
from catalog.storage.files import StorageFiles
from catalog.storage.s3 import S3Settings, _endpoint
from tests.harness.s3 import S3Server
from tests.harness.storage_roots import s3_settings


class PlainStore(ThreadingHTTPServer):
    """A store without conditional create: 501 to If-None-Match, as some answer; knows whole objects only."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _PlainRequest)
        self.objects: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.lose_next_put = False

    @property
    def settings(self) -> S3Settings:
        return S3Settings(
            endpoint=f"http://127.0.0.1:{self.server_port}", access_key_id="key", secret_access_key="secret"
        )


class _PlainRequest(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: PlainStore

    def do_PUT(self) -> None:
        data = self.rfile.read(int(self.headers["content-length"]))
        if self.headers["if-none-match"]:
            self._answer(501)
            return
        self.server.objects[self.path] = data
        if self.server.lose_next_put:
            self.server.lose_next_put = False
            self.close_connection = True
            return
        self._answer(200)

    def do_GET(self) -> None:
        data = self.server.objects.get(self.path)
        self._answer(404 if data is None else 200, data or b"")

    def do_HEAD(self) -> None:
        self.do_GET()

    def _answer(self, status: int, data: bytes = b"") -> None:
        self.server.asked.append(f"{self.command} {status}")
        self.send_response(status)
        self.send_header("content-length", str(len(data)))
        self.send_header("etag", '"1"')
        self.send_header("last-modified", "Mon, 16 Nov 2026 00:00:00 GMT")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Quiet."""


@pytest.fixture
def plain() -> Iterator[PlainStore]:
    with PlainStore() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_a_store_without_conditional_create_is_looked_at_first(plain: PlainStore) -> None:
    files = StorageFiles(plain.settings)
    files.create("s3://lake/1", b"first")
    assert plain.asked == ["PUT 501", "HEAD 404", "PUT 200"]
    plain.asked.clear()
    files.create("s3://lake/2", b"second")
    assert plain.asked == ["HEAD 404", "PUT 200"]  # remembered
    with pytest.raises(FileExistsError):
        files.create("s3://lake/1", b"first")
    assert plain.objects == {"/lake/1": b"first", "/lake/2": b"second"}


def test_a_lost_answer_is_no_conflict_there_either(plain: PlainStore) -> None:
    files = StorageFiles(plain.settings)
    plain.lose_next_put = True
    files.create("s3://lake/1", b"first")
    assert plain.objects == {"/lake/1": b"first"}


def test_given_keys_win_over_the_environment(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "AWS_ACCESS_KEY_ID": "other",
        "AWS_SECRET_ACCESS_KEY": "other",
        "AWS_SESSION_TOKEN": "stale",
        "AWS_SKIP_SIGNATURE": "true",
        "AWS_ENDPOINT": "http://127.0.0.1:9",
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
        "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:9",
        "AWS_REGION": "mars-1",
    }.items():
        monkeypatch.setenv(name, value)
    files = StorageFiles(s3_settings(s3.access))
    files.probe(f"s3://{s3.bucket()}/warehouse")


def test_without_keys_the_environment_is_used(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3.access.access_key_id)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3.access.secret_access_key)
    StorageFiles(S3Settings(endpoint=s3.access.endpoint)).probe(f"s3://{s3.bucket()}/warehouse")


def test_no_keys_anywhere(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:9")  # nobody listens on that port
    files = StorageFiles(S3Settings(endpoint=s3.access.endpoint))
    with pytest.raises(Unavailable, match="no S3 credentials were found"):
        files.read(f"s3://{s3.bucket()}/1")


def test_a_forked_process_does_not_hang(s3: S3Server) -> None:
    files = StorageFiles(s3_settings(s3.access))
    location = f"s3://{s3.bucket()}/1"
    files.create(location, b"")
    child = os.fork()
    if child == 0:
        try:
            files.read(location)
        except RuntimeError as error:
            os._exit(7 if "forked" in str(error) else 1)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_where_a_bucket_is() -> None:
    assert _endpoint("http://127.0.0.1:9000/", "lake", path_style=True) == "http://127.0.0.1:9000"
    assert _endpoint("https://s3.example.org", "lake", path_style=False) == "https://lake.s3.example.org"
