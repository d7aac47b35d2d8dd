"""The server as a person runs it: what it prints and answers, how it starts, and how it ends."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.clients.duckdb_client import connected
from tests.harness import components
from tests.harness.process import Child
from tests.harness.server import CalveServer, environment
from tests.unit.server.child import head, read_answers

OFFER = {
    "Connection": "Upgrade, HTTP2-Settings",
    "Upgrade": "h2c",
    "HTTP2-Settings": "AAEAAEAAAAIAAAAAAAMAAAAAAAQBAAAAAAUAAEAAAAYABgAA",
}


@pytest.fixture(scope="module", params=["1", "2"], ids=["one process", "two workers"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CalveServer]:
    folder = tmp_path_factory.mktemp("serving")
    with CalveServer.started(folder, {"CALVE_WORKERS": request.param}) as started:
        yield started


def serve(
    folder: Path, *flags: str, settings: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """`calve serve` that is expected to end by itself."""
    command = [str(components.calve()), "serve", "--port", "0", *flags]
    return subprocess.run(
        command,
        cwd=folder,
        env=environment(settings or {}),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def wait_for_log(server: CalveServer, text: str) -> str:
    """The log, once it holds this text."""
    deadline = time.monotonic() + 60
    while text not in (log := server.log.read_text()):
        assert time.monotonic() < deadline, log
        time.sleep(0.05)
    return log


def assert_one_sentence(ended: subprocess.CompletedProcess[str], sentence: str, code: int = 1) -> None:
    assert ended.returncode == code
    assert ended.stdout == ""
    assert re.fullmatch(rf"calve: [^\n]*{sentence}[^\n]*\n", ended.stderr), ended.stderr


def test_three_things_to_try_next(server: CalveServer) -> None:
    text = wait_for_log(server, "cache-enabled=false")  # the end of the block
    assert f"listens on {server.url}" in text
    assert f"curl '{server.url}/v1/config?warehouse=main'" in text
    assert f"ENDPOINT '{server.url}'" in text
    assert f"spark.sql.catalog.lake.uri={server.url}" in text
    assert text.count("Three things to try next") == 1


def test_what_is_printed_for_curl_and_duckdb_works(server: CalveServer) -> None:
    text = wait_for_log(server, "cache-enabled=false")
    command = next(line.strip() for line in text.splitlines() if line.startswith("  curl "))
    answer = subprocess.run(["/bin/sh", "-c", f"{command} -sS"], capture_output=True, check=True).stdout
    assert json.loads(answer)["overrides"]["prefix"] == "main"
    attach = next(line.strip() for line in text.splitlines() if line.startswith("  ATTACH "))
    with contextlib.closing(connected()) as duckdb:
        duckdb.execute(attach)
        assert ("lake",) in duckdb.execute("SELECT database_name FROM duckdb_databases()").fetchall()


def test_health_and_ready_respond(server: CalveServer) -> None:
    assert httpx.get(f"{server.url}/health").status_code == 200
    assert httpx.get(f"{server.url}/ready").status_code == 200


def test_promtool_accepts_the_metrics(server: CalveServer) -> None:
    assert httpx.get(f"{server.url}/v1/config").status_code == 200
    answer = httpx.get(f"{server.url}/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    command = [str(components.program("promtool")), "check", "metrics"]
    checked = subprocess.run(command, input=answer.content, capture_output=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, b"")
    assert b'calve_http_request_duration_seconds_count{operation="getConfig",status="2xx"}' in answer.content


def test_logs_are_json_with_the_request_id(server: CalveServer) -> None:
    answer = httpx.get(f"{server.url}/v1/nowhere/namespaces", headers={"X-Request-ID": "find-me"})
    assert answer.headers["x-request-id"] == "find-me"
    text = wait_for_log(server, '"request_id":"find-me"')
    line = next(json.loads(line) for line in text.splitlines() if '"find-me"' in line)
    assert line["path"] == "/v1/nowhere/namespaces"
    assert line["status"] == answer.status_code


@pytest.mark.parametrize("sizes", [[1], [3, 50], [10_000]], ids=str)
def test_a_request_that_offers_h2c_keeps_its_body(server: CalveServer, sizes: list[int]) -> None:
    """A namespace is made with the properties that were sent, however the request was cut."""
    name = "h2c" + hashlib.sha256(f"{server.port}{sizes}".encode()).hexdigest()[:8]
    properties = {f"text{number}": "x" * 10_000 for number in range(20)}
    body = json.dumps({"namespace": [name], "properties": properties}).encode()
    headers = {**OFFER, "Content-Type": "application/json", "Content-Length": str(len(body))}
    whole = head("POST", "/v1/main/namespaces", headers) + body
    pieces, at = list[bytes](), 0
    for size in sizes:
        pieces.append(whole[at : at + size])
        at += size
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for piece in [*pieces, whole[at:]]:
            connection.sendall(piece)
        assert read_answers(connection, 1)[0].status == 200
    found = httpx.get(f"{server.url}/v1/main/namespaces/{name}").json()
    assert properties.items() <= found["properties"].items()


BROKEN: dict[str, tuple[str, dict[str, str], bytes, int]] = {
    "no such route": ("GET", {}, b"", 404),
    "too large": ("POST", {"Content-Length": str(2**40)}, b"", 413),
    "not gzip": ("POST", {"Content-Encoding": "gzip", "Content-Length": "3"}, b"abc", 400),
    "unknown coding": ("POST", {"Content-Encoding": "br", "Content-Length": "3"}, b"abc", 415),
    "malformed": ("POST", {"Content-Length": "-1"}, b"", 400),
}


@pytest.mark.parametrize("name", BROKEN)
def test_every_error_has_the_form_of_iceberg(server: CalveServer, name: str) -> None:
    method, headers, body, status = BROKEN[name]
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(head(method, "/v1/main/nowhere", headers) + body)
        answer = read_answers(connection, 1)[0]
    assert answer.status == status
    assert answer.error["message"]


def test_a_stop_is_graceful_and_a_start_finds_everything_again(tmp_path: Path) -> None:
    server = CalveServer(tmp_path, {"CALVE_WORKERS": "2"})
    server.start()
    made = httpx.post(f"{server.url}/v1/main/namespaces", json={"namespace": ["kept"], "properties": {}})
    assert made.status_code == 200
    assert server.stop() == 0
    server.start()
    assert httpx.get(f"{server.url}/v1/main/namespaces/kept").status_code == 200
    os.kill(server.pid, signal.SIGINT)
    assert server.stop() == 0


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_long_poll_ends_when_the_server_stops(tmp_path: Path, workers: str) -> None:
    """The server waits for requests in flight, and this one would take 30 s."""
    server = CalveServer(tmp_path, {"CALVE_WORKERS": workers})
    server.start()
    head_number = httpx.get(f"{server.url}/lake/v1/main/events").json()["head"]
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        connection.sendall(head("GET", f"/lake/v1/main/events?after={head_number}&wait_s=30"))
        deadline = time.monotonic() + 30
        while "calve_http_requests_in_flight 2.0" not in httpx.get(f"{server.url}/metrics").text:
            assert time.monotonic() < deadline, "the poll did not begin"
        os.kill(server.pid, signal.SIGTERM)
        assert read_answers(connection, 1)[0].status == 200
    assert server.stop() == 0


def test_a_busy_port(server: CalveServer, tmp_path: Path) -> None:
    ended = serve(tmp_path, "--port", str(server.port))
    assert_one_sentence(ended, f"port {server.port} on 127.0.0.1 is in use")


def test_an_unwritable_home(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for workers in ("1", "2"):
        ended = serve(tmp_path, "--home", "file/lake", "--workers", workers)
        assert_one_sentence(ended, "cannot be written to")


def test_a_wrong_setting(tmp_path: Path) -> None:
    assert_one_sentence(serve(tmp_path, "--workers", "0"), "workers must be between 1 and 256, not 0", 2)
    assert_one_sentence(serve(tmp_path, settings={"CALVE_PROT": "1"}), "did you mean CALVE_PORT", 2)
    assert_one_sentence(serve(tmp_path, "--host", "0.0.0.0"), "set auth=tokens", 2)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_database_that_is_not_there(tmp_path: Path, workers: str) -> None:
    database = "postgresql://calve:canary@127.0.0.1:1/calve"
    ended = serve(tmp_path, "--workers", workers, settings={"CALVE_DATABASE": database})
    assert_one_sentence(ended, "database")
    assert "canary" not in ended.stderr


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_file_that_is_no_database(tmp_path: Path, workers: str) -> None:
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake" / "catalog.db").write_bytes(b"this is not a database" * 100)
    assert_one_sentence(serve(tmp_path, "--workers", workers), "database")


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_database_that_is_newer_than_the_program(tmp_path: Path, workers: str) -> None:
    server = CalveServer(tmp_path)
    server.start()
    assert server.stop() == 0
    with contextlib.closing(sqlite3.connect(tmp_path / "lake" / "catalog.db")) as database, database:
        database.execute("UPDATE alembic_version SET version_num = '10000'")
    assert_one_sentence(
        serve(tmp_path, "--workers", workers), "schema version 10000, newer than this program"
    )


def test_nothing_heavy_is_imported_to_serve(tmp_path: Path) -> None:
    """A start within two seconds is a matter of what is not imported."""
    heavy = {"pyiceberg", "pyarrow", "pyspark", "pandas", "numpy", "s3fs", "boto3", "duckdb", "alembic"}
    imports = "import sys, calve.app, calve.server.run"
    code = f"{imports}; found = {heavy} & set(sys.modules); assert not found, found"
    child = Child([sys.executable, "-c", code], log=tmp_path / "imports.log", folder=components.ROOT)
    child.start(lambda: True)
    assert child.wait(120) == 0, child.tail()


def process_tree(pid: int) -> Iterator[int]:
    yield pid
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        yield from process_tree(int(child))


def loaded_libraries(server: CalveServer) -> set[str]:
    """Which of these libraries the processes of a server have loaded. PyIceberg loads Arrow."""
    maps = "".join(Path(f"/proc/{pid}/maps").read_text() for pid in process_tree(server.pid))
    return set(re.findall(r"/(libarrow|_duckdb|numpy|pandas)\b[^\n]*\.so", maps))


def test_a_server_imports_arrow_and_duckdb_with_the_first_request_for_rows(tmp_path: Path) -> None:
    with CalveServer.started(tmp_path) as server, httpx.Client(base_url=server.url, timeout=120) as client:
        tables = "/v1/main/namespaces/shop/tables"
        schema = {"type": "struct", "fields": [{"id": 1, "name": "id", "type": "long", "required": False}]}
        change = {"updates": [{"action": "set-properties", "updates": {"owner": "me"}}], "requirements": []}
        for path, body in {
            "/v1/main/namespaces": {"namespace": ["shop"]},
            tables: {"name": "orders", "schema": schema},
            f"{tables}/orders": change,
            "/cdc/shop/customers": {"id": 1},
        }.items():
            client.post(path, json=body).raise_for_status()
        client.get(f"{tables}/orders").raise_for_status()
        client.get("/lake/v1/main/namespaces/shop/tables/orders/history").raise_for_status()
        assert loaded_libraries(server) == set()
        assert list(process_tree(server.pid)) == [server.pid]

        client.get("/lake/v1/main/namespaces/shop/tables/orders/snapshots").raise_for_status()
        assert "libarrow" in loaded_libraries(server)
        assert "_duckdb" not in loaded_libraries(server)
        client.post("/query", json={"sql": "SELECT count(*) FROM shop.orders"}).raise_for_status()
        assert "_duckdb" in loaded_libraries(server)
