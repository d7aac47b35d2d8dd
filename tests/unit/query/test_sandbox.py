"""What a query process cannot do, even with unchecked SQL: DuckDB's settings and the kernel refuse it."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from query import sandbox
from tests.harness.components import ROOT

SCRIPT = Path(__file__).parent / "confined.py"


class Listener:
    """A server that only notes who connects."""

    def __init__(self) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.socket.settimeout(0.5)

    @property
    def port(self) -> int:
        return int(self.socket.getsockname()[1])

    def was_reached(self) -> bool:
        try:
            connection, _ = self.socket.accept()
        except TimeoutError:
            return False
        connection.close()
        return True


@pytest.fixture
def listener() -> Iterator[Listener]:
    found = Listener()
    yield found
    found.socket.close()


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    folder = tmp_path / "warehouse"
    folder.mkdir()
    pyarrow.parquet.write_table(pa.table({"a": [1, 2]}), folder / "rows.parquet")
    (tmp_path / "outside.txt").write_text("outside")
    pyarrow.parquet.write_table(pa.table({"a": [3]}), tmp_path / "outside.parquet")
    return folder


def _run(folder: Path, *statements: str, confine: bool = True, ports: list[int] | None = None) -> list[Any]:
    settings = {
        "endpoint": "http://127.0.0.1:1",
        "read_paths": [str(folder)],
        "data_paths": [f"{folder}/"],
        "tcp_ports": ports or [1],
        "memory_bytes_max": 256 * 2**20,
        "threads": 2,
        "s3": {},
        "confine": confine,
    }
    given = json.dumps({"settings": settings, "statements": statements})
    ended = subprocess.run(
        [sys.executable, "-P", str(SCRIPT), given],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
    )
    assert ended.returncode == 0, ended.stderr
    answers: list[Any] = json.loads(ended.stdout)
    return answers


def test_the_kernel_of_this_machine_confines() -> None:
    assert sandbox.supported() == ["files", "network"]


def test_what_is_allowed_works(warehouse: Path) -> None:
    (found,) = _run(warehouse, f"SELECT sum(a) FROM read_parquet('{warehouse}/rows.parquet')")
    assert found == {"rows": [["3"]]}


def test_files_outside_cannot_be_read(warehouse: Path) -> None:
    outside = warehouse.parent / "outside"
    answers = _run(
        warehouse,
        f"SELECT * FROM read_text('{outside}.txt')",
        f"SELECT * FROM read_parquet('{outside}.parquet')",
        "SELECT * FROM read_text('/etc/passwd')",
        f"SELECT * FROM read_text('{warehouse}/../outside.txt')",
        f"open {outside}.txt",
        "open /etc/passwd",
        "open /proc/self/environ",
        f"open {SCRIPT}",
    )
    assert [list(answer) for answer in answers] == [["error"]] * 8, answers
    (listed,) = _run(warehouse, f"SELECT * FROM glob('{warehouse.parent}/*')")
    assert "outside.txt" not in str(listed)


def test_nothing_can_be_written(warehouse: Path) -> None:
    targets = [warehouse / "out.csv", warehouse.parent / "out.csv"]
    answers = _run(
        warehouse,
        *(f"COPY (SELECT 1) TO '{target}'" for target in targets),
        f"EXPORT DATABASE '{warehouse}/export'",
        f"ATTACH '{warehouse}/new.db' AS new",
        f"CALL enable_logging('HTTP', storage_path='{warehouse}/logs')",
    )
    assert all("error" in answer for answer in answers[:4]), answers
    assert sorted(path.name for path in warehouse.rglob("*")) == ["rows.parquet"]


def test_without_landlock_the_file_size_limit_refuses_writes(warehouse: Path) -> None:
    target = warehouse / "out.csv"
    (answer,) = _run(warehouse, f"COPY (SELECT 1) TO '{target}'", confine=False)
    assert "error" in answer
    assert not target.exists() or target.stat().st_size == 0


def test_no_other_server_can_be_reached(warehouse: Path, listener: Listener) -> None:
    url = f"http://127.0.0.1:{listener.port}"
    statements = (
        f"ATTACH '' AS x (TYPE iceberg, ENDPOINT '{url}', AUTHORIZATION_TYPE 'none')",
        f"CREATE SECRET (TYPE iceberg, CLIENT_ID 'a', CLIENT_SECRET 'b', OAUTH2_SERVER_URI '{url}/t')",
        f"SELECT * FROM read_csv('{url}/x.csv')",
    )
    answers = _run(warehouse, *statements)
    assert [list(answer) for answer in answers] == [["error"]] * 3, answers
    assert not listener.was_reached()


def test_without_landlock_the_request_would_leave(warehouse: Path, listener: Listener) -> None:
    """So the test above shows what the kernel does."""
    url = f"http://127.0.0.1:{listener.port}"
    attach = f"ATTACH '' AS x (TYPE iceberg, ENDPOINT '{url}', AUTHORIZATION_TYPE 'none')"
    process_answers: list[Any] = []

    thread = threading.Thread(target=lambda: process_answers.extend(_run(warehouse, attach, confine=False)))
    thread.start()
    listener.socket.settimeout(60)
    assert listener.was_reached()
    listener.socket.close()
    thread.join(120)
    assert "error" in process_answers[0]


def test_settings_and_extensions_are_locked(warehouse: Path) -> None:
    answers = _run(
        warehouse,
        "SET memory_limit='100GB'",
        "SET enable_external_access=true",
        f"SET allowed_directories=['{warehouse.parent}']",
        "SET lock_configuration=false",
        "PRAGMA enable_profiling",
        "INSTALL spatial",
        "LOAD '/tmp/evil.duckdb_extension'",
        "RESET memory_limit",
    )
    refused = [list(answer) == ["error"] for answer in answers]
    assert refused[:4] == [True] * 4, answers
    assert refused[5:] == [True] * 3, answers


def test_a_process_with_threads_is_not_confined() -> None:
    """The kernel would confine one thread and leave the others as they are."""
    code = (
        "import threading, time\n"
        "from query import sandbox\n"
        "threading.Thread(target=time.sleep, args=(1,)).start()\n"
        "try:\n    sandbox.confine([], [])\nexcept sandbox.SandboxError as error:\n    print(error)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert "2 threads" in ended.stdout, ended.stderr


def test_no_program_can_be_started(warehouse: Path) -> None:
    code = (
        "import pathlib, subprocess\n"
        "from query import sandbox\n"
        f"sandbox.confine([pathlib.Path({str(warehouse)!r})], [1])\n"
        "try:\n    subprocess.run(['/bin/true'])\nexcept PermissionError:\n    print('refused')\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert ended.stdout.strip() == "refused", ended.stderr
