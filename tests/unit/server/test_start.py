"""What is in the way of a start becomes a sentence; and what is printed when nothing is."""

from __future__ import annotations

import contextlib
import http.server
import json
import threading
from pathlib import Path

import pytest

from calve.server.banner import _warn_if_not_ready, address, hints, worker_line
from calve.server.run import listen, prepare_home
from calve.settings import Settings
from calve.startup import StartupError


def test_a_busy_port() -> None:
    with contextlib.closing(listen("127.0.0.1", 0)) as first:
        port = first.getsockname()[1]
        with pytest.raises(StartupError, match=rf"^port {port} on 127.0.0.1 is in use; .*--port\.$"):
            listen("127.0.0.1", port)


def test_a_host_that_is_not_ours() -> None:
    with pytest.raises(StartupError, match=r"192\.0\.2\.1 is not an address of this machine"):
        listen("192.0.2.1", 0)
    with pytest.raises(StartupError, match=r"no\.such\.host\.invalid cannot be resolved"):
        listen("no.such.host.invalid", 0)


def test_a_home_is_made(tmp_path: Path) -> None:
    home = tmp_path / "a" / "lake"
    prepare_home(Settings(home=home))
    assert home.is_dir()
    assert not list(home.iterdir())


def test_a_home_that_cannot_be_written_to(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    for home in (file, file / "lake", Path("/proc/lake")):
        with pytest.raises(StartupError, match=f"the folder {home} cannot be written to .*--home"):
            prepare_home(Settings(home=home))


def test_a_home_that_nobody_needs_is_not_made(tmp_path: Path) -> None:
    home = tmp_path / "lake"
    prepare_home(Settings(home=home, database="postgresql://h/n", warehouse_root="s3://bucket/prefix"))
    assert not home.exists()


def test_addresses() -> None:
    assert address(Settings(), 8181) == "http://127.0.0.1:8181"
    assert address(Settings(host="::1"), 1) == "http://[::1]:1"
    assert address(Settings(host="0.0.0.0", auth="tokens"), 1) == "http://127.0.0.1:1"
    assert address(Settings(base_url="https://lake.example/"), 1) == "https://lake.example"


@pytest.mark.parametrize("settings", [Settings(), Settings(auth="tokens", warehouse_root="s3://bucket/p")])
def test_hints_name_the_address_in_all_three(settings: Settings) -> None:
    text = hints(settings, 4711)
    curl, duckdb, spark = text.index("curl\n"), text.index("DuckDB\n"), text.index("Spark\n")
    for part in (text[curl:duckdb], text[duckdb:spark], text[spark:]):
        assert "http://127.0.0.1:4711" in part
    assert ("AUTHORIZATION_TYPE 'none'" in text) == (settings.auth == "open")
    assert ("credential=ID:SECRET" in text) == (settings.auth == "tokens")
    assert ("iceberg-aws-bundle" in text) == settings.warehouse_root.startswith("s3")


def test_the_demo_of_the_banner_goes_to_this_server() -> None:
    assert "`calve demo` in another shell" in hints(Settings(), 8181)
    assert "`calve demo --uri http://127.0.0.1:4711` in another shell" in hints(Settings(), 4711)


def test_the_banner_says_whether_a_worker_runs() -> None:
    assert "starting" in worker_line(Settings(), None)
    assert "start one with `calve worker`" in worker_line(Settings(worker=False), None)
    text = hints(Settings(), 1, "jars missing, run `make setup`")
    first, second = text.splitlines()[:2]
    assert first.endswith("listens on http://127.0.0.1:1")
    assert second.startswith("Spark worker not running: jars missing, run `make setup`")


def test_a_server_that_is_not_ready_logs_what_is_missing(caplog: pytest.LogCaptureFixture) -> None:
    checks = {"database": "ok", "storage": "Cannot use s3://b/w: there is no such bucket"}

    class NotReady(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(503 if self.path == "/ready" else 404)
            self.end_headers()
            self.wfile.write(json.dumps({"status": "not ready", "checks": checks}).encode())

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), NotReady) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        _warn_if_not_ready(f"http://127.0.0.1:{server.server_port}")
        thread.join()
    assert caplog.messages == ["not ready: storage: Cannot use s3://b/w: there is no such bucket"]
