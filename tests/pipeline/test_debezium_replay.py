"""A recorded run of Debezium Server, sent again just as it was: the short form of test_debezium.py."""

from __future__ import annotations

import http.client
import json
from collections.abc import Sequence
from urllib.parse import urlsplit

import httpx

from tests.pipeline import recordings
from tests.pipeline.conftest import Pipeline
from tests.pipeline.producer import flush
from tests.pipeline.recorded_run import FILE, SCHEMA
from tests.pipeline.recorder import Taken
from tests.pipeline.recordings import RecordedRun, plain
from tests.pipeline.shop import KEYS, compared, lake_query


def test_mirrors_of_a_recorded_run_are_its_tables(pipeline: Pipeline) -> None:
    run = recordings.load(FILE)
    for table, key in KEYS.items():
        path = f"/lake/v1/main/namespaces/{SCHEMA}/tables/{table}/ingest"
        httpx.put(f"{pipeline.url}{path}", json={"key": key}).raise_for_status()
    send(pipeline.url, run.requests)
    flush(pipeline.url, timeout_s=240)
    for table, columns in run.columns.items():
        found = compared(pipeline.rows(lake_query(SCHEMA, table, columns)))
        assert plain(found) == run.rows[table], f"the mirror of {table} is not the table"
    for table in run.columns:
        history = f"lake.{SCHEMA}.{table}__changes"
        counted = pipeline.rows(f"SELECT count(*), count(DISTINCT _event_id) FROM {history}")
        assert counted == [(len(events(run, table)), len(events(run, table)))]


def send(url: str, requests: Sequence[Taken]) -> None:
    """With the headers of Java's HTTP client, which offers another protocol with each request."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
    for request in requests:
        connection.request("POST", "/cdc", body=request.body, headers=request.headers)
        answer = connection.getresponse()
        assert answer.status == 202, answer.read()
        answer.read()
    connection.close()


def events(run: RecordedRun, table: str) -> set[str]:
    """What happened to a table, each event once; some were sent again after a crash."""
    found = set()
    for request in run.requests:
        payload = json.loads(request.body)["payload"]
        if payload.get("source", {}).get("table") == table:
            named = (payload["source"]["lsn"], payload["transaction"], payload["op"], payload["after"])
            found.add(json.dumps(named))
    return found
