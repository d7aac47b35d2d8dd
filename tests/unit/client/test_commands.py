"""Commands that use the client, against a made-up server: what they print, and their exit codes.

tests/contract/test_cli_query.py runs them against a real one, as far as it has the routes.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from calve import cli
from calve.cli import connection, tail
from calve.cli.output import bytes_text, duration_text
from calve.cli.query import footer, parameters, without_summary
from calve.client import Change
from calve.errors import QueryFailed
from tests.unit.client.server import FakeServer, failed

HERE = "/lake/v1/main/namespaces/shop/tables/orders"
Served = Callable[..., FakeServer]


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Served:
    """Commands connect to a server with these answers."""

    def serve(answers: dict[str, Any]) -> FakeServer:
        server = FakeServer(answers)
        monkeypatch.setattr(
            connection, "connect", lambda _uri, token, **more: server.connect(token=token, **more)
        )
        return server

    return serve


def ran(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    code = cli.main(words)
    out, err = capsys.readouterr()
    assert (code, err) == (0, "")
    return out


# -- the server to talk to


def test_the_address_of_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CALVE_CONFIG", raising=False)
    assert connection.default_uri() == "http://127.0.0.1:8181"
    (tmp_path / "calve.toml").write_text('port = 9000\nhost = "::"\n')
    assert connection.default_uri() == "http://[::1]:9000"
    monkeypatch.setenv("CALVE_HOST", "0.0.0.0")
    monkeypatch.setenv("CALVE_PORT", "9001")
    assert connection.default_uri() == "http://127.0.0.1:9001"
    monkeypatch.setenv("CALVE_BASE_URL", "https://lake.example")
    assert connection.default_uri() == "https://lake.example"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("port = ", "calve: calve.toml is not valid TOML: "),
        ('port = "x"', "calve: Invalid value for --uri: http://127.0.0.1:x is not an http address."),
        ('base_url = "http://"', "calve: Invalid value for --uri: http:// is not an http address."),
    ],
)
def test_a_wrong_address_in_the_settings(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    text: str,
    sentence: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("CALVE_CONFIG", "CALVE_URI"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "calve.toml").write_text(text)
    assert cli.main(["tables"]) == 2
    assert capsys.readouterr().err.startswith(sentence)
    monkeypatch.setenv("CALVE_CONFIG", "no.toml")
    assert cli.main(["tables"]) == 2
    assert capsys.readouterr().err == "calve: the configuration file no.toml does not exist.\n"


def test_no_server(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["tables", "--uri", "http://127.0.0.1:1"]) == 1
    assert capsys.readouterr().err.startswith("calve: No server answers at http://127.0.0.1:1.")
    assert cli.main(["tables", "--uri", "lake.example"]) == 2


def test_the_token_comes_from_the_environment(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    server = served({"GET /status": {}})
    monkeypatch.setenv("CALVE_TOKEN", "secret")
    assert cli.main(["status"]) == 0
    assert server.last.headers["authorization"] == "Bearer secret"


def test_sources_alone_lists_them(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    source = {
        "name": "shop",
        "state": "paused",
        "pending-events": 3,
        "last-position": "0001",
        "last-landed-ms": None,
        "reason": "a move",
    }
    server = served({"GET /lake/v1/main/sources": {"sources": [source]}})
    listed = ran(capsys, "sources")
    assert listed == "shop\tpaused\t3\t0001\t-\ta move\n"
    assert ran(capsys, "sources", "list") == listed
    assert server.last.url.path == "/lake/v1/main/sources"


def test_settings_of_a_table_that_are_not_named_stay(
    served: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    present = {"key": ["id"], "deletes": "hard", "state": {}}
    server = served({f"GET {HERE}/ingest": present, f"PUT {HERE}/ingest": {"deletes": "soft"}})
    assert json.loads(ran(capsys, "table", "settings", "shop.orders")) == present
    changed = ["deletes=soft", 'partition=["days(at)"]', "mirror-changed=accept"]
    assert json.loads(ran(capsys, "table", "settings", "shop.orders", *changed)) == {"deletes": "soft"}
    named = {"deletes": "soft", "partition": ["days(at)"], "mirror-changed": "accept"}
    assert server.sent == present | named
    assert cli.main(["table", "settings", "shop.orders", "deletes"]) == 2
    assert "NAME=VALUE" in capsys.readouterr().err


# -- query

ANSWER = {
    "columns": [{"name": "state", "type": "VARCHAR"}, {"name": "n", "type": "BIGINT"}],
    "rows": [["paid", 2], [None, 1]],
    "rowCount": 2,
    "as_of": {"number": 42, "time": "2026-11-18T01:00:03Z", "commit_time": "2026-11-18T01:00:01Z"},
    "snapshots": {},
    "freshness_ms": 0,
    "elapsed_ms": 35.4,
    "query_id": "q",
}


def test_a_table_for_people(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    server = served({"POST /query": ANSWER})
    words = ["query", "SELECT 1", "--format", "table", "--as-of", "42", "--param", "a=1", "--param", "b=x"]
    out = ran(capsys, *words)
    assert server.sent["params"] == {"a": 1, "b": "x"}
    assert (server.sent["as_of"], server.sent["format"]) == ("42", "compact")
    lines = [line.split() for line in out.splitlines()]
    assert lines[:3] == [["state", "n"], ["paid", "2"], ["null", "1"]]
    assert " ".join(lines[-1]) == (
        "2 rows, as of 2026-11-18 01:00:03 UTC (commit 42, 2.0 s old), nothing is pending, 35 ms"
    )
    assert "changes of the last 1.5 s are not in it" in footer(ANSWER | {"freshness_ms": 1500})


def test_csv_in_a_pipe(served: Served, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    server = served({"POST /query": httpx.Response(200, content=b"n\r\n1\r\n")})
    assert cli.main(["query", "SELECT 1"]) == 0
    sys.stdout.flush()
    assert server.sent["format"] == "csv"
    assert capfdbinary.readouterr().out == b"n\r\n1\r\n"


def test_sql_from_stdin(
    served: Served, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    server = served({"POST /query": ANSWER})
    monkeypatch.setattr("sys.stdin", io.StringIO("SELECT 2"))
    assert json.loads(ran(capsys, "query", "-", "--format", "json")) == ANSWER
    assert server.sent["sql"] == "SELECT 2"


def test_ndjson_has_rows_alone() -> None:
    pieces = [b'{"n":1}\n{"n"', b':2}\n{"summary":', b'{"rowCount":2}}\n']
    assert b"".join(without_summary(pieces)) == b'{"n":1}\n{"n":2}\n'
    with pytest.raises(QueryFailed, match="too long"):
        list(without_summary([b'{"n":1}\n{"error":{"message":"too long"}}\n']))


def test_parameters() -> None:
    assert parameters([]) is None
    assert parameters(["1", "x y", "null", "[1]"]) == [1, "x y", None, [1]]
    assert parameters(["a=1", "b=c=d"]) == {"a": 1, "b": "c=d"}


def test_wrong_usage_of_a_query(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    served({"POST /query": failed(400, "no such column: x")})
    assert cli.main(["query", "SELECT x"]) == 1
    assert capsys.readouterr().err == "calve: no such column: x\n"
    assert cli.main(["query", "SELECT 1", "--param", "a=1", "--param", "2"]) == 2
    assert cli.main(["query", "SELECT 1", "--as-of", "3 moons ago"]) == 2
    assert "moons is no unit of time" in capsys.readouterr().err


# -- time


VERSIONS = [
    {
        "operation": "insert",
        "before": None,
        "after": {"id": 17, "state": "new"},
        "commit_timestamp": "2026-11-18T01:00:00Z",
        "source": "shop",
        "transaction": "t1",
    },
    {
        "operation": "update",
        "before": {"id": 17, "state": "new"},
        "after": {"id": 17, "state": "paid"},
        "commit_timestamp": "2026-11-18T01:00:01Z",
        "source": "shop",
        "transaction": None,
    },
]


def test_the_history_of_a_row(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    server = served({f"GET {HERE}/history": {"versions": VERSIONS}})
    assert ran(capsys, "history", "shop.orders", "17").splitlines() == [
        "2026-11-18 01:00:00 UTC\tinsert\tshop\tt1\tid=17, state=new",
        "2026-11-18 01:00:01 UTC\tupdate\tshop\t-\tstate: new → paid",
    ]
    assert server.last.url.params["key"] == "17"
    assert json.loads(ran(capsys, "history", "shop.orders", "17", "--format", "json")) == VERSIONS
    served({f"GET {HERE}/history": {"versions": []}})
    assert cli.main(["history", "shop.orders", "18"]) == 1
    assert "never had a row with the key 18" in capsys.readouterr().err


DIFFERENCE = {
    "from": {"number": 40, "time": "2026-11-18T01:00:00Z", "snapshot_id": 1},
    "to": {"number": 42, "time": "2026-11-18T01:01:00Z", "snapshot_id": 2},
    "rows": {
        "key": ["id"],
        "added_count": 1200,
        "removed_count": 1,
        "changed_count": 2,
        "added": [{"id": 3, "state": "new", "_commit_timestamp": "2026-11-18T01:00:30Z"}],
        "removed": [{"id": 1, "state": None}],
        "changed": [
            {"key": {"id": 2}, "old": {"state": "new", "n": 1}, "new": {"state": "paid", "n": 2}},
            {"key": {"id": 4}, "old": {"_commit_timestamp": "a"}, "new": {"_commit_timestamp": "b"}},
        ],
        "truncated": True,
    },
    "schema": [{"column": "note", "change": "added", "old": None, "new": "string"}],
    "files": {},
}


def test_a_difference(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    server = served({f"GET {HERE}/diff": DIFFERENCE})
    out = ran(capsys, "diff", "shop.orders", "--from", "40", "--format", "table")
    assert out.splitlines() == [
        "from 2026-11-18 01:00:00 UTC (commit 40) to 2026-11-18 01:01:00 UTC (commit 42)",
        "column note added: string",
        "+ id=3, state=new",
        "~ id=2",
        "    state  new  →  paid",
        "    n      1    →  2",
        "~ id=4  written again with the same values",
        "- id=1, state=null",
        "1,200 added, 2 changed, 1 removed; not all are shown: --limit shows more",
    ]
    assert dict(server.last.url.params) == {"from": "40", "limit": "20"}
    assert json.loads(ran(capsys, "diff", "shop.orders", "--from", "40")) == DIFFERENCE
    assert cli.main(["diff", "shop.orders"]) == 2


UNDONE = {
    "snapshot_id": 7,
    "time": "2026-11-18T01:00:00Z",
    "operation": "append",
    "summary": {"added-records": "5"},
}
PLANNED = {
    "snapshot_id": 6,
    "previous_snapshot_id": 7,
    "undone": [UNDONE],
    "number": None,
    "notice": "A mirror.",
}


def _one_table(summary: dict[str, str], landed: dict[str, Any]) -> dict[str, Any]:
    """What a server answers that has shop.orders alone."""
    metadata = {
        "current-snapshot-id": 1,
        "last-updated-ms": 0,
        "snapshots": [{"snapshot-id": 1, "summary": {"total-files-size": "5", **summary}}],
    }
    empty: dict[str, Any] = {"namespaces": []}
    return {
        "GET /v1/main/namespaces": [{"namespaces": [["shop"]]}, empty],
        "GET /v1/main/namespaces/shop/tables": {"identifiers": [{"namespace": ["shop"], "name": "orders"}]},
        "GET /v1/main/namespaces/shop/tables/orders": {"metadata": metadata},
        "GET /status": {"landing": {"tables": {"shop.orders": landed}}},
    }


def test_rows_are_never_records_minus_deletes(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    """After a compaction, deletes of files that are gone are still counted: that gave negative numbers."""
    kept = {"verification": {"kept-checksums": {"state": "kept", "rows": 10}}}
    many = {"total-records": "29", "total-position-deletes": "78"}
    served(_one_table({"total-records": "3"}, {}))
    assert ran(capsys, "tables").split("\t")[:3] == ["shop.orders", "3", "5"]
    served(_one_table(many, kept))
    assert ran(capsys, "tables").split("\t")[:3] == ["shop.orders", "10", "5"]
    counted = ANSWER | {"columns": [{"name": "n", "type": "BIGINT"}], "rows": [{"n": 11}]}
    served(_one_table(many, {}) | {"POST /query": counted})
    assert ran(capsys, "tables").split("\t")[:3] == ["shop.orders", "11", "5"]


def test_no_tables_yet(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    status: dict[str, Any] = {"GET /status": {"landing": {"tables": {}}}}
    served({"GET /v1/main/namespaces": {"namespaces": []}} | status)
    assert "calve demo" in ran(capsys, "tables", "--format", "table")
    assert ran(capsys, "tables") == "", "a pipe gets the list alone"


def test_a_rollback_asks_first(
    served: Served, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    server = served({f"POST {HERE}/rollback": [PLANNED, PLANNED | {"number": 43}]})
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    assert cli.main(["rollback", "shop.orders", "--to", "40"]) == 1
    assert server.sent == {"dry_run": True, "as_of": "40"}
    out = capsys.readouterr().out
    assert "7  2026-11-18 01:00:00 UTC  append, 5 records added\nA mirror.\n" in out
    assert out.endswith("Nothing was changed.\n")
    many = PLANNED | {"undone": [UNDONE] * 30, "notice": None}
    served({f"POST {HERE}/rollback": many})
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert cli.main(["rollback", "shop.orders", "--to", "40"]) == 1, "a script has to say --yes"
    out = capsys.readouterr().out
    assert out.count("append, 5 records added") == 10
    assert "  and 20 older ones, back to 2026-11-18 01:00:00 UTC\n" in out
    assert out.endswith("Nothing was changed.\n")


def test_a_rollback_does_what_it_has_shown(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    server = served({f"POST {HERE}/rollback": [PLANNED, PLANNED | {"number": 43}]})
    out = ran(capsys, "rollback", "shop.orders", "--to", "40", "--yes")
    assert server.sent == {"dry_run": False, "snapshot_id": 6}
    assert out.endswith("shop.orders is at snapshot 6 again, by commit 43.\n")
    served({f"POST {HERE}/rollback": PLANNED | {"snapshot_id": 7, "undone": []}})
    assert "nothing to do" in ran(capsys, "rollback", "shop.orders", "--to", "42")
    assert cli.main(["rollback", "shop.orders"]) == 2


def test_a_change_on_one_line() -> None:
    times = {"commit_timestamp": "2026-11-18T01:00:01Z"}
    change = Change("shop.orders", "update", {"state": "new"}, {"state": "paid"}, 7, "token", **times)
    text = tail.line(change)
    assert "2026-11-18 01:00:01 UTC" in text
    assert text.endswith("state: new → paid")


# -- words


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0 ms"),
        (35.4, "35 ms"),
        (1500, "1.5 s"),
        (180_000, "3 min"),
        (7_200_000, "2 h"),
        (2 * 86_400_000, "2 days"),
    ],
)
def test_durations(ms: float, text: str) -> None:
    assert duration_text(ms) == text


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (999, "999 B"), (12_345, "12.3 kB"), (5 * 10**9, "5.0 GB")]
)
def test_sizes(count: int, text: str) -> None:
    assert bytes_text(count) == text
