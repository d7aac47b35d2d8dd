"""POST /cdc: what is taken, and what a producer is told."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
import zstandard

from calve.telemetry.metrics import render
from ingest.api import ApiSettings
from tests.contract.ingest.api.api_server import ApiServer, Producer, event, events_in, served

STATUSES = ("accepted", "duplicate", "dead_lettered")
DEBEZIUM = {
    "before": None,
    "after": {"id": 1, "name": "x"},
    "source": {
        "connector": "postgresql",
        "name": "pg",
        "db": "d",
        "schema": "inventory",
        "table": "customers",
        "lsn": 100,
        "txId": 7,
        "ts_ms": 1_790_000_000_000,
    },
    "op": "c",
    "ts_ms": 1_790_000_000_000,
}


def test_native_events_as_lake_do_sends_them(server: ApiServer, client: httpx.Client, warehouse: str) -> None:
    answer = client.post("/cdc", json={"events": [event(1), event(2)]})
    assert answer.status_code == 202
    assert answer.json() == {
        "success": True,
        "eventsReceived": 2,
        "eventsAccepted": 2,
        "isDuplicate": False,
        "duplicates": 0,
        "deadLettered": 0,
        "token": f"{warehouse}:1",
        "format": "native",
        "events": [],
    }
    assert [change.after for change in events_in(server.journal, warehouse)] == [
        event(1)["after"],
        event(2)["after"],
    ]


def test_a_repeat_is_success_and_changes_nothing(
    server: ApiServer, client: httpx.Client, warehouse: str
) -> None:
    body = {"events": [event(1), event(2)]}
    client.post("/cdc", json=body)
    again = client.post("/cdc", json=body).json()
    assert (again["isDuplicate"], again["duplicates"], again["eventsAccepted"]) == (True, 2, 0)
    assert again["token"] == f"{warehouse}:1"
    mixed = client.post("/cdc", json={"events": [event(2), event(3)]}).json()
    assert (mixed["isDuplicate"], mixed["duplicates"], mixed["eventsAccepted"]) == (False, 1, 1)
    assert len(events_in(server.journal, warehouse)) == 3


def test_a_source_that_counts(server: ApiServer, client: httpx.Client, warehouse: str) -> None:
    headers = {"X-Source-Id": "till-7"}
    client.post("/cdc", json=[event(1)], headers=headers)
    other = event(1, after={"id": 1, "name": "another content, but the number says that it is the same"})
    assert client.post("/cdc", json=[other], headers=headers).json()["isDuplicate"] is True
    assert client.post("/cdc", json=[other], headers={"X-Source-Id": "till-8"}).json()["eventsAccepted"] == 1
    assert [change.number for change in events_in(server.journal, warehouse)] == [1, 1]


def test_the_path_names_the_table(server: ApiServer, client: httpx.Client, warehouse: str) -> None:
    client.post("/cdc/a.b/t%2Fx", json={"id": 1})
    client.post("/cdc/a%1Fb.c/t", content=b'{"id": 1}\n{"id": 2}\n')
    client.post("/cdc/n/t?key=id", json=event(9))
    found = {change.table: change for change in events_in(server.journal, warehouse)}
    assert set(found) == {("a", "b", "t/x"), ("a", "b.c", "t"), ("n", "t")}
    assert found["n", "t"].key == ("id",)


def test_plain_rows_with_an_idempotency_key(server: ApiServer, client: httpx.Client, warehouse: str) -> None:
    rows = [{"id": 1}, {"id": 1}]
    keyed = [client.post("/cdc/n/t", json=rows, headers={"Idempotency-Key": "k1"}).json() for _ in range(2)]
    assert [answer["isDuplicate"] for answer in keyed] == [False, True]
    assert client.post("/cdc/n/t", json=rows).json()["eventsAccepted"] == 2
    assert len(events_in(server.journal, warehouse)) == 4


def test_an_idempotency_key_belongs_to_its_address_and_body(
    server: ApiServer, client: httpx.Client, warehouse: str
) -> None:
    def post(path: str, row: dict[str, int]) -> httpx.Response:
        return client.post(path, json=[row], headers={"Idempotency-Key": "1"})

    first, elsewhere, again = (post(path, {"id": 1}) for path in ("/cdc/n/a", "/cdc/n/b", "/cdc/n/a"))
    assert [answer.json()["isDuplicate"] for answer in (first, elsewhere, again)] == [False, False, True]
    other = post("/cdc/n/a", {"id": 2})
    assert (other.status_code, "Idempotency-Key" in other.json()["error"]["message"]) == (409, True)
    assert [change.after for change in events_in(server.journal, warehouse)] == [{"id": 1}, {"id": 1}]


@pytest.mark.parametrize("header", ["webhook-id", "Idempotency-Key"])
def test_a_webhook_that_is_sent_again(client: httpx.Client, header: str) -> None:
    answers = [client.post("/cdc/n/t", json={"id": 1}, headers={header: "msg_1"}).json() for _ in range(2)]
    assert [answer["isDuplicate"] for answer in answers] == [False, True]


def test_the_batches_of_a_source(client: httpx.Client) -> None:
    def post(number: int) -> Any:
        headers = {"X-Source-Id": "s", "X-Batch-Seq": str(number)}
        return client.post("/cdc/n/t", json=[{"id": 1}], headers=headers).json()

    assert [post(number)["isDuplicate"] for number in (1, 2, 1)] == [False, False, True]


def test_one_bad_event_does_not_refuse_the_others(
    server: ApiServer, client: httpx.Client, warehouse: str
) -> None:
    answer = client.post("/cdc", json={"events": [event(1), {"nonsense": True}, event(2)]})
    assert answer.status_code == 202
    told = answer.json()
    assert (told["success"], told["eventsAccepted"], told["deadLettered"]) == (False, 2, 1)
    assert [(item["index"], item["status"]) for item in told["events"]] == [(1, "dead_lettered")]
    assert told["events"][0]["reason"]
    assert sum(row.events for row in server.journal.pending(warehouse)) == 3


def test_a_path_cannot_name_a_table_that_calve_adds(client: httpx.Client) -> None:
    for name in ("t__changes", "t__rejects"):
        answer = client.post(f"/cdc/n/{name}?on-unusable=dead-letter", json=[{"id": 1}])
        assert (answer.status_code, "reserved" in answer.json()["error"]["message"]) == (400, True)


UNUSABLE = [
    (
        "/cdc",
        b'[{"op":"c","after":{"id":1},"source":{"schema":"n","table":"t__rejects"}}]',
        "Event 0: the table t__rejects is reserved",
    ),
    ("/cdc/n/t", b"not json at all", "Event 0: the body is not JSON"),
    ("/cdc", b'[{"id": 1}]', "Event 0: the event does not say to which table it belongs"),
    ("/cdc", b"[1, 2]", "Event 0: the event is not a JSON object"),
    ("/cdc", b'[{"operation": "INSRT", "table": "a.b", "sequence": 1, "timestamp": 1}]', "`operation`"),
    ("/cdc", b'{"op": "x", "source": {"table": "t"}}', "Event 0: `op`"),
    ("/topics/t", b'{"records": [{"value": 1, "partition": 0}]}', "Event 0: the record's value"),
]


@pytest.mark.parametrize(("path", "body", "reason"), UNUSABLE)
def test_a_request_without_a_usable_event_is_refused(
    server: ApiServer, client: httpx.Client, warehouse: str, path: str, body: bytes, reason: str
) -> None:
    answer = client.post(path, content=body)
    assert answer.status_code == 400
    message = answer.json()["error"]["message"]
    assert reason in message
    assert server.journal.head(warehouse) == 0
    assert server.journal.dead_letters.counts(warehouse) == {}
    # The example in the message is right: it can be sent as it is.
    example = message[message.index("Example: ") + len("Example: ") :]
    assert client.post(path, content=example).json().get("success", True) is True
    assert server.journal.head(warehouse) > 0


@pytest.mark.parametrize(("path", "body", "reason"), UNUSABLE)
def test_unusable_events_are_kept_on_request(
    server: ApiServer, client: httpx.Client, warehouse: str, path: str, body: bytes, reason: str
) -> None:
    answer = client.post(f"{path}?on-unusable=dead-letter", content=body)
    assert answer.is_success
    assert server.journal.head(warehouse) > 0
    if path != "/topics/t":
        assert answer.json()["success"] is False
        assert answer.json()["deadLettered"] == answer.json()["eventsReceived"]


def test_it_is_kept_for_the_sources_of_a_setting(tmp_path: Path) -> None:
    settings = ApiSettings(dead_letter_sources=frozenset({"till-7", "pg"}))
    with served(tmp_path, settings=settings) as server, Producer(server.url, "main") as client:
        bad = [{"nonsense": True}]
        assert client.post("/cdc", json=bad).status_code == 400
        assert client.post("/cdc", json=bad, headers={"X-Source-Id": "till-8"}).status_code == 400
        assert client.post("/cdc", json=bad, headers={"X-Source-Id": "till-7"}).status_code == 202
        assert client.post("/cdc", json={**DEBEZIUM, "op": "x"}).status_code == 202
        kept = client.post("/cdc?on-unusable=reject", json=bad, headers={"X-Source-Id": "till-7"})
        assert kept.status_code == 400
    with (
        served(tmp_path, settings=ApiSettings(dead_letter_sources=frozenset({"*"}))) as server,
        Producer(server.url, "main") as client,
    ):
        assert client.post("/cdc", json=bad).status_code == 202


def test_an_ignored_event_is_no_reason_to_refuse(client: httpx.Client) -> None:
    heartbeat = {"ts_ms": 1_790_000_000_000}
    answer = client.post("/cdc", json=[heartbeat, {**DEBEZIUM, "op": "x"}])
    assert answer.status_code == 202
    assert (answer.json()["success"], answer.json()["deadLettered"]) == (False, 1)
    assert client.post("/cdc", json=[heartbeat]).json()["success"] is True


@pytest.mark.parametrize("wrapped", [{}, {"schema": None}])
def test_debezium_in_an_array_of_payloads(client: httpx.Client, wrapped: dict[str, Any]) -> None:
    record = {**wrapped, "payload": DEBEZIUM}
    other = {**DEBEZIUM, "source": {**DEBEZIUM["source"], "lsn": 200}}  # type: ignore[dict-item]
    told = client.post("/cdc", json=[record, {**wrapped, "payload": other}]).json()
    assert (told["format"], told["eventsAccepted"]) == ("debezium", 2)
    assert client.post("/cdc", json=record).json()["isDuplicate"] is True


def test_verbose_responses_list_every_event(client: httpx.Client) -> None:
    answer = client.post("/cdc?verbose=1", json=[event(1), event(2)]).json()
    assert [item["status"] for item in answer["events"]] == ["accepted", "accepted"]


@pytest.mark.parametrize("body", [b"", b"[]", b'{"events": []}', b"   "])
def test_nothing_at_all_is_refused(client: httpx.Client, body: bytes) -> None:
    answer = client.post("/cdc", content=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "BadRequestException"


@pytest.mark.parametrize(
    "query", ["wait=x", "warehouse=..", "format=klingon", "key=", "timeout_s=x", "verbose=x"]
)
def test_a_parameter_that_is_wrong(client: httpx.Client, query: str) -> None:
    answer = client.post(f"/cdc?{query}", json=[event(1)])
    assert answer.status_code == 400
    assert set(answer.json()["error"]) == {"message", "type", "code"}


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_compressed(client: httpx.Client, coding: str) -> None:
    body = orjson.dumps({"events": [event(number) for number in range(2000)]})
    packed = gzip.compress(body) if coding == "gzip" else zstandard.compress(body)
    answer = client.post("/cdc", content=packed, headers={"Content-Encoding": coding})
    assert answer.json()["eventsAccepted"] == 2000


def test_debezium_one_by_one_and_in_arrays(server: ApiServer, client: httpx.Client, warehouse: str) -> None:
    second = {**DEBEZIUM, "after": {"id": 2, "name": "y"}}
    second["source"] = {**DEBEZIUM["source"], "lsn": 200}  # type: ignore[dict-item]
    assert client.post("/cdc", json=DEBEZIUM).json()["format"] == "debezium"
    assert client.post("/cdc", json=[DEBEZIUM, second]).json()["eventsAccepted"] == 1
    tables = {change.table for change in events_in(server.journal, warehouse)}
    assert {table[-1] for table in tables} == {"customers"}


def test_kafka_rest(server: ApiServer, client: httpx.Client, warehouse: str) -> None:
    records = {
        "records": [{"key": {"id": 1}, "value": {"id": 1, "n": "x"}}, {"key": {"id": 1}, "value": None}]
    }
    headers = {"Content-Type": "application/vnd.kafka.json.v2+json"}
    answer = client.post("/topics/orders", content=json.dumps(records), headers=headers)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/vnd.kafka.v2+json"
    told = answer.json()
    assert [set(offset) for offset in told["offsets"]] == [{"partition", "offset", "error_code", "error"}] * 2
    assert [offset["error_code"] for offset in told["offsets"]] == [None, None]
    assert [change.operation for change in events_in(server.journal, warehouse)] == ["insert", "delete"]


def test_a_warehouse_that_is_not_there(client: httpx.Client) -> None:
    assert client.post("/cdc?warehouse=elsewhere", json=[event(1)]).status_code == 404


def test_another_method(client: httpx.Client) -> None:
    assert client.get("/cdc").status_code in (404, 405)


def test_what_is_measured(server: ApiServer, client: httpx.Client) -> None:
    def measured(name: str) -> float:
        for line in render().decode().splitlines():
            if line.startswith(name + " "):
                return float(line.rpartition(" ")[2])
        return 0

    names = [f'calve_ingest_events_total{{format="native",status="{word}"}}' for word in STATUSES]
    names += [
        'calve_ingest_ack_seconds_count{transport="http"}',
        'calve_ingest_batch_events_sum{transport="http"}',
    ]
    before = [measured(name) for name in names]
    client.post("/cdc", json=[event(1), {"bad": 1}])
    client.post("/cdc", json=[event(1)])
    assert [measured(name) - was for name, was in zip(names, before, strict=True)] == [1, 1, 1, 2, 3]
    assert measured('calve_ingest_rejects_total{code="no-operation"}') > 0
