"""What each role may do, on every operation; and that a protected table stays, whoever tries."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from tests.harness.rest import SCHEMA, Rest
from tests.harness.stacks import Stack
from tests.security.answers import assert_error, is_error
from tests.security.entry_points import Lake
from tests.security.guarded import Guarded
from tests.security.requests_of_operations import ALL, OF_A_QUERY, OF_JOBS, SERVER_WIDE, Maker

# A reader may tell how a scan went. To ask for a batch is no error, and gives a reader none.
FOR_READERS = {"checkSchema", "query", "reportMetrics", "leaseJob"}
FOR_ADMINS = {
    "setSource",
    "deleteSource",
    "setMaintenance",
    "setNamespaceMaintenance",
    "setTableMaintenance",
    "removeOrphans",
    "setProtection",
    "listQueries",
    "createWebhook",
    "listWebhooks",
    "loadWebhook",
    "deleteWebhook",
    "testWebhook",
    "resumeWebhook",
}
# A transaction of another principal looks as if it did not exist.
OF_THE_OWNER = {"loadTransaction", *OF_A_QUERY}


def test_a_reader_reads_everything_and_changes_nothing(guarded: Guarded) -> None:
    wrong = []
    asked = [
        (served, guarded.makers["acme"].request(served)) for served in ALL if served.id not in SERVER_WIDE
    ]
    before = guarded.heads()
    with guarded.client(guarded.reader) as http:
        for served, request in asked:
            answer = request.send(http)
            if served.id in OF_THE_OWNER:
                sound = answer.status_code == 404 and is_error(answer)
            elif served.id in FOR_READERS or not (served.writes or served.id in FOR_ADMINS):
                sound = answer.is_success
            else:
                refusal = 404 if served in OF_JOBS else 403  # the job of a worker looks absent to others
                sound = answer.status_code == refusal and is_error(answer)
            if not sound:
                wrong.append((served.id, answer.status_code, answer.text[:200]))
    assert not wrong
    assert guarded.heads() == before


def test_a_reader_gets_no_batch(guarded: Guarded) -> None:
    """Asking is no error: a worker may have no warehouse yet."""
    acme = guarded.makers["acme"]
    acme.post(acme.changes())
    for principal in (guarded.reader, guarded.nobody):
        with guarded.client(principal) as http:
            answer = http.post("/lake/v1/jobs/lease", json={"worker": principal.name, "wait-s": 1})
        assert (answer.status_code, answer.content) == (204, b"")
    _, job = acme.leased()
    assert job["warehouse"] == "acme"


def test_a_writer_does_everything_but_administer(guarded: Guarded) -> None:
    wrong, maker = [], Maker(guarded.rest(guarded.writer, "acme"))
    with guarded.client(guarded.writer) as http:
        for served in ALL:
            if served.id in SERVER_WIDE | OF_A_QUERY:
                continue
            answer = maker.request(served).send(http)
            sound = answer.status_code == 403 if served.id in FOR_ADMINS else answer.is_success
            if not sound:
                wrong.append((served.id, answer.status_code, answer.text[:200]))
    assert not wrong


def test_warehouses_are_made_and_dropped_by_the_administrator_of_all_only(guarded: Guarded) -> None:
    name = f"w{uuid.uuid4().hex[:8]}"
    for principal in (guarded.nobody, guarded.reader, guarded.writer, guarded.admins["acme"]):
        with guarded.client(principal) as http:
            assert_error(http.post("/lake/v1/warehouses", json={"name": name}), 403)
            # One that is there and one that is not: no difference.
            answers = [http.delete(f"/lake/v1/warehouses/{where}") for where in ("acme", "blue", "dune")]
            assert {(answer.status_code, answer.text) for answer in answers} == {(403, answers[0].text)}
    with guarded.client(guarded.nobody) as http:
        assert http.get("/lake/v1/warehouses").json()["warehouses"] == []


def test_a_past_moment_cannot_be_written_to(guarded: Guarded) -> None:
    past = guarded.rest(guarded.writer, "acme@1")
    assert_error(past.call("POST", past.path("namespaces"), json={"namespace": ["x"]}), 403)


# -- protection


def _protected(rest: Rest) -> tuple[str, dict[str, Any]]:
    namespace = rest.fresh_namespace()
    made = rest.create(namespace, "t")
    path = f"main/namespaces/{namespace}/tables/t/protection"
    assert rest.lake("PUT", path, json={"protected": True}).status_code == 200
    return namespace, made


@pytest.mark.parametrize("inside", [False, True], ids=["directly", "in a transaction"])
@pytest.mark.parametrize("way", ["drop", "purge", "unregister", "overwrite", "drop and create"])
def test_a_protected_table_stays(stack: Stack, way: str, inside: bool) -> None:
    rest = Rest(stack.url)
    namespace, made = _protected(rest)
    other = rest.create(namespace, "other")
    rest.ok("DELETE", rest.table_path(namespace, "other"))
    name = f"tx{uuid.uuid4().hex}"
    writer = rest.open_transaction(name) if inside else rest
    path = writer.table_path(namespace, "t")
    answers = [
        {
            "drop": lambda: writer.call("DELETE", path),
            "purge": lambda: writer.call("DELETE", path, params={"purgeRequested": "true"}),
            "unregister": lambda: writer.call("POST", f"{path}/unregister"),
            "overwrite": lambda: writer.call(
                "POST",
                writer.namespace_path(namespace, "register"),
                json={"name": "t", "metadata-location": other["metadata-location"], "overwrite": True},
            ),
            "drop and create": lambda: writer.call("DELETE", path),
        }[way]()
    ]
    if way == "drop and create":
        create = {"name": "t", "schema": SCHEMA}
        answers.append(writer.call("POST", writer.namespace_path(namespace, "tables"), json=create))
    if inside:
        assert rest.publish(name).status_code == 200  # nothing was done in it
    if way == "drop and create":
        assert_error(answers[1], 409)
    assert_error(answers[0], 409)
    assert "protected" in answers[0].text
    assert rest.load(namespace, "t")["metadata"]["table-uuid"] == made["metadata"]["table-uuid"]
    assert rest.lake("GET", f"main/namespaces/{namespace}/tables/t/protection").json() == {"protected": True}


def test_a_protected_table_is_renamed_or_refused_with_the_reason(recorded: Lake) -> None:
    """Either is sound; to say that too many others write to it is not."""
    rest = recorded.rest
    namespace, _ = _protected(rest)
    names = {
        "source": {"namespace": [namespace], "name": "t"},
        "destination": {"namespace": [namespace], "name": "u"},
    }
    answer = rest.call("POST", rest.path("tables/rename"), json=names)
    if answer.is_success:
        path = f"main/namespaces/{namespace}/tables/u/protection"
        assert rest.lake("GET", path).json() == {"protected": True}
    else:
        assert_error(answer, 409)
        assert "protected" in answer.text, answer.text
