"""The client of the jobs API when answers fail, get lost, or say no."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spark_jobs.messages import BadJob, Job, job_from
from spark_jobs.server_client import Credentials, LostLease, Server, ServerError, TableChanged
from tests.unit.spark_jobs.stub_server import StubServer, refused, stub_server
from tests.unit.spark_jobs.test_messages import JOB

PUBLISH, BEAT, FAIL = (f"/lake/v1/jobs/j/{what}" for what in ("publish", "heartbeat", "fail"))
OPEN = "/lake/v1/main/transactions"
CHANGE = {"identifier": {"namespace": ["a"], "name": "t"}, "requirements": [], "updates": []}


@pytest.fixture
def stub() -> Iterator[StubServer]:
    with stub_server() as running:
        yield running


@pytest.fixture
def server(stub: StubServer) -> Iterator[Server]:
    made = Server(stub.url, retry_s_max=2.0, sleep=lambda _: None)
    yield made
    made.close()


@pytest.fixture
def job() -> Job:
    return job_from(JOB)


def test_a_lease(stub: StubServer, server: Server) -> None:
    stub.on("POST", "/lake/v1/jobs/lease", (204, None), (200, JOB), (503, refused("later")))
    assert server.lease("w-1", 0, 1.0, {"slots": 2}) is None
    assert server.lease("w-1", 0, 1.0, {}) == JOB
    with pytest.raises(ServerError, match="503 later"):
        server.lease("w-1", 0, 1.0, {})
    assert stub.asked[0].body == {"worker": "w-1", "slot": 0, "wait-s": 1.0, "about": {"slots": 2}}


def test_failures_of_the_server_are_tried_again(stub: StubServer, server: Server, job: Job) -> None:
    stub.on("POST", PUBLISH, None, (500, refused("oh")), (503, refused("oh")), (200, {"number": 7}))
    assert server.publish(job, [CHANGE], {"a": 1}) == 7
    assert stub.asked[-1].body == {"epoch": 2, "table-changes": [CHANGE], "metrics": {"a": 1}}
    assert server.publish(job, [], {"a": 1}, transaction="w-1-0") == 7
    assert stub.asked[-1].body == {"epoch": 2, "transaction": "w-1-0", "metrics": {"a": 1}}


def test_but_not_for_ever(stub: StubServer, job: Job) -> None:
    server = Server(stub.url, retry_s_max=0.0, sleep=lambda _: None)
    stub.on("POST", PUBLISH, (500, refused("always")))
    with pytest.raises(ServerError, match="500 always"):
        server.publish(job, [CHANGE], {})
    assert len(stub.asked) == 1
    server.close()


def test_a_server_that_is_gone(job: Job) -> None:
    server = Server("http://127.0.0.1:9", retry_s_max=0.0)
    with pytest.raises(ServerError, match="ConnectError"):
        server.publish(job, [CHANGE], {})
    server.close()


def test_a_table_that_moved(stub: StubServer, server: Server, job: Job) -> None:
    stub.on("POST", PUBLISH, (409, refused("a.t changed")))
    with pytest.raises(TableChanged, match=r"a\.t changed") as raised:
        server.publish(job, [CHANGE], {})
    assert raised.value.is_certain
    assert len(stub.asked) == 1


def test_after_a_lost_answer_a_conflict_does_not_say_that_nothing_is_published(
    stub: StubServer, server: Server, job: Job
) -> None:
    stub.on("POST", PUBLISH, None, (409, refused("a.t changed")))
    with pytest.raises(TableChanged) as raised:
        server.publish(job, [CHANGE], {})
    assert not raised.value.is_certain


def test_a_lease_that_is_lost(stub: StubServer, server: Server, job: Job) -> None:
    lost = refused("not yours", "LostLeaseException")
    stub.on("POST", PUBLISH, (409, lost))
    stub.on("POST", BEAT, (409, lost))
    stub.on("POST", FAIL, (404, refused("no such job")))
    for call in (
        lambda: server.publish(job, [CHANGE], {}),
        lambda: server.heartbeat(job, {}),
        lambda: server.renewed(job),
        lambda: server.fail(job.id, job.epoch, "oh", retry=True),
    ):
        with pytest.raises(LostLease):
            call()


def test_a_job_can_be_asked_for_again(stub: StubServer, server: Server, job: Job) -> None:
    moved = {**JOB["tables"][0], "events": 4}
    stub.on("POST", BEAT, (200, {"lease-s": 30, "tables": [moved]}), (409, refused("dropped")))
    again = server.renewed(job)
    assert (again.id, again.epoch, again.tables[0].events) == (job.id, job.epoch, 4)
    with pytest.raises(BadJob, match="dropped"):
        server.renewed(job)


def test_a_leftover_transaction_is_aborted_first(stub: StubServer, server: Server) -> None:
    stub.on("POST", OPEN, (409, refused("is open", "AlreadyExistsException")), (200, {}))
    stub.on("DELETE", f"{OPEN}/w-1-0", (204, None))
    assert server.open_transaction("main", "w-1-0") == "main~w-1-0"
    assert stub.paths() == [f"POST {OPEN}", f"DELETE {OPEN}/w-1-0", f"POST {OPEN}"]


def test_to_abort_nothing_is_fine(stub: StubServer, server: Server) -> None:
    stub.on("DELETE", f"{OPEN}/w-1-0", (404, refused("none")))
    assert server.abort_transaction("main", "w-1-0") is False
    stub.on("DELETE", f"{OPEN}/w-1-0", (409, refused("is committed")))
    assert server.abort_transaction("main", "w-1-0") is False
    stub.on("DELETE", f"{OPEN}/w-1-0", (204, None))
    assert server.abort_transaction("main", "w-1-0") is True
    stub.on("DELETE", f"{OPEN}/w-1-0", (403, refused("may not")))
    with pytest.raises(ServerError, match="403 may not"):
        server.abort_transaction("main", "w-1-0")


def test_commits_inside_a_transaction(stub: StubServer, server: Server) -> None:
    stub.on("POST", "/v1/main~w-1-0/transactions/commit", (204, None), (409, refused("changed")))
    server.commit("main~w-1-0", [CHANGE])
    assert stub.asked[0].body == {"table-changes": [CHANGE]}
    with pytest.raises(TableChanged):
        server.commit("main~w-1-0", [CHANGE])


def test_a_token_is_sent(stub: StubServer, job: Job) -> None:
    stub.on("POST", BEAT, (200, {"lease-s": 12}))
    server = Server(stub.url, Credentials(token="secret"))
    server.heartbeat(job, {})
    assert stub.asked[0].headers["authorization"] == "Bearer secret"
    server.close()


def test_a_credential_becomes_a_token_that_is_fetched_anew_when_refused(stub: StubServer, job: Job) -> None:
    token = "/v1/oauth/tokens"
    stub.on("POST", token, *((200, {"access_token": name, "expires_in": 3600}) for name in ("one", "two")))
    stub.on("POST", PUBLISH, (200, {"number": 1}), (401, refused("ended")), (200, {"number": 2}))
    server = Server(stub.url, Credentials(credential="worker:se:cret"), sleep=lambda _: None)
    assert [server.publish(job, [], {}) for _ in range(2)] == [1, 2]
    sent = [asked.headers.get("authorization") for asked in stub.asked if asked.path == PUBLISH]
    assert sent == ["Bearer one", "Bearer one", "Bearer two"]
    assert "client_secret=se%3Acret" in stub.asked[0].body
    server.close()


def test_a_credential_that_is_refused(stub: StubServer, job: Job) -> None:
    stub.on("POST", "/v1/oauth/tokens", (401, {"error": "invalid_client"}))
    server = Server(stub.url, Credentials(credential="worker:x"), retry_s_max=0.0)
    with pytest.raises(ServerError, match="no token for worker"):
        server.publish(job, [], {})
    server.close()
