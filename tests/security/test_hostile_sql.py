"""SQL that wants more than to read tables: every attempt is refused, and other queries are not affected.

The parsed statement decides. What a query process could still do if a statement slipped through is in
tests/unit/query/test_sandbox.py, where DuckDB's settings and the kernel refuse it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.query.lake import QueryLake
from tests.harness.stacks import STACKS, Stack, Stacks

CANARY = "canary-9d1f"
HTTP = "http://127.0.0.1:9/x"

FILES = [
    "SELECT * FROM read_text('/etc/passwd')",
    "SELECT * FROM read_blob('/proc/self/environ')",
    "SELECT * FROM read_csv('{canary}')",
    "SELECT * FROM read_csv_auto('{canary}')",
    "SELECT * FROM read_json('{canary}')",
    "SELECT * FROM read_ndjson_objects('{canary}')",
    "SELECT * FROM read_parquet('{root}/**/*.parquet')",
    "SELECT * FROM parquet_scan('{root}/**/*.parquet')",
    "SELECT * FROM parquet_metadata('{root}/x.parquet')",
    "SELECT * FROM parquet_file_metadata('{root}/x.parquet')",
    "SELECT * FROM iceberg_scan('{root}')",
    "SELECT * FROM iceberg_metadata('{root}')",
    "SELECT * FROM iceberg_snapshots('{root}')",
    "SELECT * FROM iceberg_load_table_response(main.x.y)",
    "SELECT * FROM glob('/**')",
    "SELECT * FROM sniff_csv('{canary}')",
    "SELECT * FROM '{canary}'",
    'SELECT * FROM "{canary}"',
    "SELECT * FROM '/etc/passwd'",
    "SELECT * FROM 's3://bucket/x.parquet'",
    "FROM '{root}/*.parquet'",
    "SELECT (SELECT content FROM read_text('{canary}'))",
    "WITH a AS (SELECT * FROM read_text('{canary}')) SELECT * FROM a",
    "SELECT * FROM (VALUES (1)) t(x), LATERAL (SELECT * FROM read_text('{canary}'))",
    "SELECT * FROM range(3) r, read_text('{canary}')",
    "EXPLAIN ANALYZE SELECT * FROM read_text('{canary}')",
    "SELECT 1 UNION ALL SELECT length(content) FROM read_text('{canary}')",
    "SELECT * FROM READ_TEXT('{canary}')",
    "SELECT * FROM \"read_text\"('{canary}')",
    "SELECT * FROM /* x */ read_text /* y */ ('{canary}')",
    "SELECT * FROM main.read_text('{canary}')",
    "SELECT * FROM system.main.read_text('{canary}')",
    "SELECT count(*) FILTER (WHERE EXISTS (FROM read_text('{canary}'))) FROM range(1)",
    "PIVOT read_text('{canary}') ON filename IN ('a') USING count(*)",
    "SUMMARIZE SELECT * FROM read_text('{canary}')",
    "DESCRIBE SELECT * FROM read_text('{canary}')",
    "SELECT * FROM query('SELECT * FROM read_text(''{canary}'')')",
    "SELECT * FROM query_table('{canary}')",
    "SELECT json_execute_serialized_sql(json_serialize_sql('SELECT 1'))",
    "FROM json_execute_serialized_sql(json_serialize_sql('FROM read_text(''{canary}'')'))",
    "SELECT get_table_names('SELECT * FROM read_text(''{canary}'')')",
    "SELECT file_exists('{canary}')",
]
WRITES = [
    "COPY (SELECT 1) TO '{root}/out.csv'",
    "COPY (SELECT 1) TO '/tmp/{name}.csv'",
    "COPY (SELECT 1) TO '/dev/stdout'",
    "EXPORT DATABASE '{root}/out'",
    "IMPORT DATABASE '{root}'",
    "CREATE TABLE t AS SELECT 1",
    "CREATE TEMP TABLE t(x INT)",
    "CREATE VIEW v AS SELECT 1",
    "CREATE MACRO m() AS 1",
    "CREATE TYPE t AS ENUM ('a')",
    "CREATE SEQUENCE s",
    "CREATE SCHEMA main.s",
    "INSERT INTO orders VALUES (1)",
    "UPDATE orders SET id = 1",
    "DELETE FROM orders",
    "MERGE INTO orders USING orders AS o ON TRUE WHEN MATCHED THEN DELETE",
    "TRUNCATE orders",
    "DROP TABLE orders",
    "ALTER TABLE orders ADD COLUMN x INT",
    "WITH x AS (INSERT INTO orders VALUES (1) RETURNING *) SELECT * FROM x",
    "EXPLAIN INSERT INTO orders VALUES (1)",
    "EXPLAIN ANALYZE COPY (SELECT 1) TO '{root}/out.csv'",
    "VACUUM",
    "CHECKPOINT",
    "BEGIN",
    "COMMIT",
]
SETTINGS = [
    "SET memory_limit='100GB'",
    "SET enable_external_access=true",
    "RESET ALL",
    "PRAGMA database_list",
    "PRAGMA enable_profiling",
    "CALL enable_logging('HTTP', storage_path='/tmp/x')",
    "CALL pragma_version()",
    "CALL force_checkpoint()",
    "SELECT current_setting('memory_limit')",
    "SELECT * FROM duckdb_settings()",
    "SELECT * FROM duckdb_secrets()",
    "SELECT * FROM duckdb_databases()",
    "SELECT * FROM duckdb_logs",
    "SELECT which_secret('s3://x', 's3')",
    "SELECT * FROM which_secret('s3://x', 's3')",
    "SELECT getenv('PATH')",
    "SELECT getvariable('x')",
    "SELECT * FROM pg_catalog.pg_tables",
    "SELECT * FROM information_schema.tables",
    "SELECT * FROM sqlite_master",
    "SHOW TABLES",
    "SHOW ALL TABLES",
    "SET VARIABLE x = 1",
    "PREPARE p AS SELECT 1",
    "EXECUTE p",
    "SELECT write_log('x')",
]
EXTENSIONS_AND_NETWORK = [
    "INSTALL httpfs",
    "LOAD httpfs",
    "LOAD '/tmp/evil.duckdb_extension'",
    "FORCE INSTALL spatial FROM '" + HTTP + "'",
    "UPDATE EXTENSIONS",
    "ATTACH '/tmp/x.db' AS x",
    "ATTACH '' AS x (TYPE iceberg, ENDPOINT '" + HTTP + "', AUTHORIZATION_TYPE 'none')",
    "DETACH main_",
    "USE memory",
    "CREATE SECRET (TYPE iceberg, CLIENT_ID 'a', CLIENT_SECRET 'b', OAUTH2_SERVER_URI '" + HTTP + "')",
    "CREATE SECRET (TYPE s3, KEY_ID 'a', SECRET 'b')",
    "DROP SECRET lake",
    "SELECT * FROM read_csv('" + HTTP + "')",
    "SELECT * FROM read_parquet('" + HTTP + "')",
    "SELECT * FROM read_text('s3://bucket/key')",
    "SELECT * FROM 'https://127.0.0.1:9/x.parquet'",
    "SELECT * FROM iceberg_scan('" + HTTP + "')",
]
SEVERAL = [
    "SELECT 1; DROP TABLE orders",
    "SELECT 1; COPY (SELECT 1) TO '/tmp/x'",
    "; ; ;",
    "-- nothing",
    "/* SELECT */ ATTACH '/tmp/x'",
    "SELECT 1;;SELECT 2",
    "SELECT 1\u0000; SELECT 2",
]
ATTEMPTS = [*FILES, *WRITES, *SETTINGS, *EXTENSIONS_AND_NETWORK, *SEVERAL]

HEAVY = {
    "deep parentheses": "SELECT " + "(" * 20_000 + "1" + ")" * 20_000,
    "deep functions": "SELECT " + "abs(" * 5_000 + "1" + ")" * 5_000,
    "deep operators": "SELECT " + "1+" * 100_000 + "1",
    "deep subqueries": "SELECT * FROM " + "(SELECT * FROM " * 2_000 + "(SELECT 1)" + ")" * 2_000,
    "deep lists": "SELECT " + "[" * 5_000 + "]" * 5_000,
    "deep case": "SELECT " + "CASE WHEN 1=1 THEN " * 3_000 + "1" + " END" * 3_000,
    "many unions": " UNION ALL ".join(["SELECT 1"] * 20_000),
    "more SQL than allowed": "SELECT '" + "x" * 2_000_000 + "'",
    "a huge value": "SELECT repeat('x', 4000000000)",
    "a huge list": "SELECT list(r) FROM range(1000000000) t(r)",
    "a huge sort": "SELECT * FROM range(2000000000) t(r) ORDER BY hash(r)",
    "a huge join": "SELECT max(a.range + b.range) FROM range(10000000) a, range(10000000) b",
    "a huge hash table": "SELECT count(*) FROM (SELECT DISTINCT hash(r) FROM range(2000000000) t(r))",
    "endless recursion": "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM t) SELECT max(n) FROM t",
    "a slow pattern": "SELECT count(*) FROM range(100000000000) WHERE range || 'a' SIMILAR TO '(a*)*b'",
}


@pytest.fixture(scope="module")
def guarded(stacks: Stacks, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, QueryLake]]:
    """Servers with small limits, made when a stack is first asked for."""
    settings = {
        "CALVE_QUERY_MEMORY_BYTES_MAX": str(256 * 2**20),
        "CALVE_QUERY_TIMEOUT_S": "60",  # heavy queries ask for less; others succeed on a busy machine too
        "CALVE_QUERY_RESULT_BYTES_MAX": str(8 * 2**20),
        "CALVE_QUERY_PROCESSES_MAX": "2",
    }
    lakes: dict[str, QueryLake] = {}
    running = []
    for name in STACKS:
        context = stacks.started(name, tmp_path_factory.mktemp("hostile"), settings)
        lake = QueryLake.on(context.__enter__())
        running.append(context)
        lake.orders()
        lakes[name] = lake
    yield lakes
    for context in running:
        context.__exit__(None, None, None)


@pytest.fixture(params=STACKS)
def lake(request: pytest.FixtureRequest, guarded: dict[str, QueryLake]) -> QueryLake:
    return guarded[request.param]


@pytest.fixture
def canary(lake: QueryLake) -> Path:
    """A file beside the tables, which no query may show."""
    path = lake.stack.server.folder / "canary.txt"
    path.write_text(f"{CANARY}\n")
    return path


def test_there_are_enough_attempts() -> None:
    assert len({*ATTEMPTS, *HEAVY}) >= 80


@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_an_attempt_is_refused(lake: QueryLake, canary: Path, attempt: str) -> None:
    sql = attempt.replace("{canary}", str(canary)).replace("{root}", lake.stack.warehouse_root)
    response = lake.post(sql.replace("{name}", CANARY))
    assert 400 <= response.status_code < 500, response.text
    assert CANARY not in response.text.replace(str(canary), "").replace(f"/tmp/{CANARY}", "")
    assert not Path(f"/tmp/{CANARY}.csv").exists()
    assert lake.rows("SELECT count(*) FROM orders") == [(3,)]


# What bounds a query is the same on both stacks, so each query runs on one in `make test`.
@pytest.mark.parametrize(
    ("lake", "name"),
    [
        pytest.param(stack, name, marks=[pytest.mark.proof] if number % 2 == place else [])
        for number, name in enumerate(HEAVY)
        for place, stack in enumerate(STACKS)
    ],
    indirect=["lake"],
)
def test_a_heavy_query_ends_and_harms_no_other(lake: QueryLake, name: str) -> None:
    """It is refused, runs into a limit, or is harmless after all; the others go on beside it."""
    answers = []
    heavy = threading.Thread(target=lambda: answers.append(lake.post(HEAVY[name], timeout_s=3)))
    heavy.start()
    assert lake.rows("SELECT count(*) FROM orders") == [(3,)]
    heavy.join(60)
    assert answers, "the heavy query did not end"
    assert answers[0].status_code in (200, 400, 413, 500, 504), answers[0].text[:500]
    if name not in HARMLESS:
        assert answers[0].status_code != 200
    assert lake.rows("SELECT count(*) FROM orders") == [(3,)]
    assert lake.stack.server.running


HARMLESS = frozenset({"deep parentheses", "many unions", "deep operators", "deep case"})


def test_the_parameters_of_a_query_are_no_sql(lake: QueryLake, canary: Path) -> None:
    hostile = f"x' UNION SELECT content FROM read_text('{canary}') --"
    assert lake.rows("SELECT $a", params={"a": hostile}) == [(hostile,)]
    response = lake.post("SELECT * FROM $t", params={"t": "orders"})
    assert response.status_code == 400


def test_names_of_tables_are_no_sql(lake: QueryLake) -> None:
    for name in ('"orders"" UNION SELECT 1 --"', '"x"".""y"', '"\'; DROP TABLE orders; --"'):
        assert lake.refused(f"SELECT * FROM {name}")["code"] == 404
    assert lake.refused("SELECT * FROM orders", namespace="x'; ATTACH 'y")["code"] == 404
    assert lake.refused("SELECT * FROM orders", warehouse="main'; ATTACH 'y")["code"] == 400


def test_a_killed_process_costs_its_query_alone(lake: QueryLake) -> None:
    assert lake.rows("SELECT 1") == [(1,)]
    _wait_until_all_are_idle(lake.stack)  # a process that starts computes too, and is not the one to kill
    answers = []
    slow = "SELECT count(*) FROM range(1000000000000)"
    query = threading.Thread(target=lambda: answers.append(lake.post(slow)))
    query.start()
    os.kill(_busiest(lake.stack), signal.SIGKILL)
    query.join(60)
    assert answers[0].status_code == 500
    assert answers[0].json()["error"]["type"] == "QueryProcessEndedException"
    assert lake.rows("SELECT count(*) FROM orders") == [(3,)]


def _wait_until_all_are_idle(stack: Stack) -> None:
    """Both query processes have started, and neither computes."""
    until_s = time.monotonic() + 60
    before = dict[int, int]()
    while len(before) < 2 or _ticks(stack) != before:
        assert time.monotonic() < until_s, "the query processes did not come to rest"
        before = _ticks(stack)
        time.sleep(0.5)


def _busiest(stack: Stack) -> int:
    """The query process of the server that computes now."""
    until_s = time.monotonic() + 30
    before = _ticks(stack)
    while time.monotonic() < until_s:
        time.sleep(0.1)
        now = _ticks(stack)
        used = {pid: ticks - before.get(pid, ticks) for pid, ticks in now.items()}
        if used and max(used.values()) >= 5:
            return max(used, key=lambda pid: used[pid])
        before = now
    raise AssertionError("no query process computes")


def _ticks(stack: Stack) -> dict[int, int]:
    """The processor time of each query process of the server, in hundredths of a second."""
    command = ["ps", "--ppid", str(stack.server.pid), "-o", "pid=,args="]
    listed = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    found = {}
    for line in listed.splitlines():
        pid, words = line.split(None, 1)
        if "query.child" in words:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            found[int(pid)] = int(fields[11]) + int(fields[12])
    return found
