"""The commands for reading and writing a lake, as a person types them, against a running server."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import uuid
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from tests.clients import pyiceberg_client
from tests.harness import components
from tests.harness.s3 import S3Server
from tests.harness.server import environment
from tests.harness.stacks import Stack


@pytest.fixture
def table(stack: Stack) -> str:
    """Orders 1 and 2, then 3."""
    namespace = f"k{uuid.uuid4().hex[:8]}"
    catalog = pyiceberg_client.catalog(stack)
    catalog.create_namespace(namespace)
    created = catalog.create_table(f"{namespace}.orders", orders(1, 2).schema)
    created.append(orders(1, 2))
    created.append(orders(3))
    return f"{namespace}.orders"


def orders(*ids: int) -> pa.Table:
    return pa.table({"id": list(ids), "state": ["paid" if number % 2 else "new" for number in ids]})


def calve(
    stack: Stack, *words: str, stdin: str = "", more: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(components.calve()), *words],
        env=environment({"CALVE_URI": stack.url}) | (more or {}),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def printed(stack: Stack, *words: str, stdin: str = "") -> str:
    ended = calve(stack, *words, stdin=stdin)
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout


def on_a_terminal(stack: Stack, *words: str) -> str:
    """What a person sees."""
    terminal, end = pty.openpty()
    child = subprocess.Popen(
        [str(components.calve()), *words],
        env=environment({"CALVE_URI": stack.url, "COLUMNS": "160", "TERM": "dumb"}),
        stdout=end,
        stderr=end,
        stdin=end,
    )
    os.close(end)
    seen = b""
    while piece := _read(terminal):
        seen += piece
    os.close(terminal)
    assert child.wait(60) == 0, seen
    return seen.decode()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65_536)
    except OSError:  # Linux says EIO when the other side is closed
        return b""


def test_query_on_a_terminal(stack: Stack, table: str) -> None:
    sql = f"SELECT state, count(*) AS n FROM {table} GROUP BY 1 ORDER BY 1"
    lines = on_a_terminal(stack, "query", sql).splitlines()
    assert [line.split() for line in lines[:3]] == [["state", "n"], ["new", "1"], ["paid", "2"]]
    assert lines[-1].startswith("2 rows, as of 20")
    assert "(commit " in lines[-1]
    assert "nothing is pending" in lines[-1]


def test_query_in_a_pipe(stack: Stack, table: str) -> None:
    sql = f"SELECT id FROM {table} WHERE id > $least ORDER BY id"
    assert printed(stack, "query", sql, "--param", "least=1") == "id\n2\n3\n"  # text mode reads \r\n as \n
    assert printed(stack, "query", sql, "--param", "least=2", "--format", "ndjson") == '{"id":3}\n'
    found = json.loads(printed(stack, "query", "-", "--param", "least=0", "--format", "json", stdin=sql))
    assert found["rowCount"] == 3
    first = found["as_of"]["number"] - 1
    past = printed(stack, "query", f"SELECT count(*) AS n FROM {table}", "--as-of", str(first))
    assert past == "n\n2\n"


def test_a_moment_before_the_table(stack: Stack, table: str) -> None:
    ended = calve(stack, "query", f"SELECT 1 FROM {table}", "--as-of", "yesterday")
    assert ended.returncode == 1
    assert "did not exist as of" in ended.stderr
    assert "it exists from" in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_tables_and_describe(stack: Stack, table: str) -> None:
    namespace = table.partition(".")[0]
    name, rows, *_ = printed(stack, "tables", namespace).rstrip("\n").split("\t")
    assert (name, rows) == (table, "3")
    described = json.loads(printed(stack, "describe", table, "--format", "json"))
    assert [column["column"] for column in described["columns"]] == ["id", "state"]
    assert (described["rows"], described["snapshots"]) == (3, 2)
    assert "location" in on_a_terminal(stack, "describe", table)
    assert printed(stack, "describe", table).splitlines()[0].split("\t")[:3] == ["id", "long", "yes"]


def test_snapshots_and_rollback(stack: Stack, table: str) -> None:
    newest, oldest = [line.split("\t") for line in printed(stack, "snapshots", table).splitlines()]
    assert (newest[4], oldest[4]) == ("3", "2")
    refused = calve(stack, "rollback", table, "--to", oldest[2], stdin="n\n")
    assert refused.returncode == 1
    assert "This undoes 1 snapshot of" in refused.stdout
    assert printed(stack, "query", f"SELECT count(*) AS n FROM {table}") == "n\n3\n"
    assert f"is at snapshot {oldest[0]} again" in printed(
        stack, "rollback", table, "--to", oldest[2], "--yes"
    )
    assert printed(stack, "query", f"SELECT count(*) AS n FROM {table}") == "n\n2\n"


def test_export(stack: Stack, table: str, tmp_path: Path) -> None:
    for name in ("a.parquet", "a.csv", "a.ndjson", "a.arrow"):
        assert f"{table} is in {tmp_path / name}" in printed(stack, "export", table, str(tmp_path / name))
    found = pyarrow.parquet.read_table(tmp_path / "a.parquet").sort_by("id")
    assert found["id"].to_pylist() == [1, 2, 3]
    assert len((tmp_path / "a.csv").read_text().splitlines()) == 4
    assert len((tmp_path / "a.ndjson").read_text().splitlines()) == 3
    assert pa.ipc.open_stream((tmp_path / "a.arrow").read_bytes()).read_all().num_rows == 3
    assert calve(stack, "export", table, str(tmp_path / "a.xlsx")).returncode == 2
    assert calve(stack, "export", f"{table}x", str(tmp_path / "b.csv")).returncode == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.arrow", "a.csv", "a.ndjson", "a.parquet"]


def test_load_flush_and_status_without_a_worker(stack: Stack, table: str, tmp_path: Path) -> None:
    """The rows are durable; that they are not visible yet is said, and is the exit code."""
    name = f"{table.partition('.')[0]}.visits"
    (tmp_path / "a.csv").write_text("id,page\n1,/\n2,/about\n")
    (tmp_path / "b.json").write_text('[{"id": 3, "page": "/"}]')
    files = [str(tmp_path / "a.csv"), str(tmp_path / "b.json")]
    words = ["load", *files, "--table", name, "--key", "id", "--idempotency-key", name]
    assert printed(stack, *words, "--no-wait").startswith("3 rows accepted, 0 recognised")
    assert printed(stack, *words, "--no-wait").startswith("0 rows accepted, 3 recognised")
    status = json.loads(printed(stack, "status"))
    assert status["landing"]["tables"][name]["pending-events"] == 3
    assert name in on_a_terminal(stack, "status", "--once")
    waited = calve(stack, *words, "--timeout", "0.2")
    assert waited.returncode == 1
    assert "durable, but not visible" in waited.stderr
    flushed = calve(stack, "flush", name, "--timeout", "0.2")
    assert flushed.returncode == 1
    assert "will land" in flushed.stderr
    assert calve(stack, "load", str(tmp_path / "no.csv"), "--table", name).returncode == 1


def test_load_from_s3(stack: Stack, s3: S3Server, table: str, tmp_path: Path) -> None:
    """With the keys of the environment, as other programs take them."""
    name = f"{table.partition('.')[0]}.objects"
    bucket = s3.bucket()
    folder = s3.path(f"s3://{bucket}/in")
    folder.mkdir()
    (folder / "a.csv").write_text("\ufeffid,page\n1,/\n2,/über\n", encoding="utf-8")
    (folder / "b.ndjson").write_text('{"id": 3}\n{"id": 4}\n')
    (folder / "c.json").write_text('[{"id": 5}]')
    pyarrow.parquet.write_table(pa.table({"id": [6, 7, 8]}), folder / "d.parquet")
    keys = {
        "AWS_ACCESS_KEY_ID": s3.access.access_key_id,
        "AWS_SECRET_ACCESS_KEY": s3.access.secret_access_key,
        "AWS_ENDPOINT_URL": s3.access.endpoint,
        "AWS_REGION": s3.access.region,
    }
    files = [f"s3://{bucket}/in/{file}" for file in ("a.csv", "b.ndjson", "c.json", "d.parquet")]
    loaded = calve(stack, "load", *files, "--table", name, "--no-wait", more=keys)
    assert loaded.stdout.startswith("8 rows accepted"), loaded.stderr
    status = json.loads(printed(stack, "status"))
    assert status["landing"]["tables"][name]["pending-events"] == 8
    missing = calve(stack, "load", f"s3://{bucket}/in/no.csv", "--table", name, more=keys)
    assert (missing.returncode, "is no object" in missing.stderr) == (1, True)
