"""An open transaction belongs to the principal that opened it, and to administrators. To others it does not
exist: neither as a prefix, nor in /v1/config, nor under /lake/v1.
"""

from __future__ import annotations

import uuid

import httpx
import pytest

from catalog.models import Role
from tests.security.answers import assert_error
from tests.security.guarded import Guarded, Principal


@pytest.fixture
def other(guarded: Guarded) -> Principal:
    """Another writer of the same warehouse."""
    return guarded.principal(f"other-{uuid.uuid4().hex[:8]}", {"acme": Role.WRITER})


@pytest.fixture
def name(guarded: Guarded) -> str:
    """A transaction of the writer, with a namespace in it."""
    name = f"w-{uuid.uuid4().hex[:8]}"
    owner = guarded.rest(guarded.writer, f"acme~{name}")
    opened = owner.lake("POST", "acme/transactions", json={"name": name})
    assert opened.status_code == 200, opened.text
    owner.ok("POST", owner.path("namespaces"), json={"namespace": [f"in_{name[2:]}"]})
    return name


def requests_about(name: str) -> list[tuple[str, str, object]]:
    """All ways to a transaction; the last one ends it."""
    return [
        ("GET", f"/v1/config?warehouse=acme~{name}", None),
        ("GET", f"/v1/acme~{name}/namespaces", None),
        ("POST", f"/v1/acme~{name}/namespaces", {"namespace": [f"more_{uuid.uuid4().hex[:8]}"]}),
        ("GET", f"/lake/v1/acme/transactions/{name}", None),
        ("POST", f"/lake/v1/acme/transactions/{name}/extend", {"ttl-s": 60}),
        ("POST", f"/lake/v1/acme/transactions/{name}/commit", None),
    ]


def send(http: httpx.Client, method: str, address: str, body: object) -> httpx.Response:
    return http.request(method, address, json=body) if body is not None else http.request(method, address)


def listed(http: httpx.Client) -> set[str]:
    names, token = set(), ""
    while True:
        answer = http.get("/lake/v1/acme/transactions", params={"pageToken": token, "pageSize": 100}).json()
        names |= {found["name"] for found in answer["transactions"]}
        token = answer["next-page-token"]
        if token is None:
            return names


def test_to_another_principal_it_does_not_exist(guarded: Guarded, other: Principal, name: str) -> None:
    absent = f"w-{uuid.uuid4().hex[:8]}"
    with guarded.client(other) as http:
        theirs = [send(http, *request) for request in requests_about(name)]
        theirs.append(http.delete(f"/lake/v1/acme/transactions/{name}"))
        missing = [send(http, *request) for request in requests_about(absent)]
        missing.append(http.delete(f"/lake/v1/acme/transactions/{absent}"))
        assert name not in listed(http)
    for found, not_there in zip(theirs, missing, strict=True):
        assert_error(found, 404)
        assert found.text.replace(name, absent) == not_there.text
    reader = guarded.rest(guarded.reader, f"acme~{name}")
    assert_error(reader.call("GET", reader.path("namespaces")), 404)
    # The role is checked first, whether there is such a transaction or not.
    nowhere = guarded.rest(guarded.reader, f"acme~{absent}")
    for one in (reader, nowhere):
        assert_error(one.call("POST", one.path("namespaces"), json={"namespace": ["x"]}), 403)


def test_a_closed_transaction_of_another_does_not_exist_either(
    guarded: Guarded, other: Principal, name: str
) -> None:
    owner = guarded.rest(guarded.writer, f"acme~{name}")
    assert owner.lake("DELETE", f"acme/transactions/{name}").status_code == 204
    body = {"namespace": ["late"]}
    assert_error(owner.call("POST", owner.path("namespaces"), json=body), 409)
    stranger = guarded.rest(other, f"acme~{name}")
    assert_error(stranger.call("POST", stranger.path("namespaces"), json=body), 404)
    assert_error(stranger.call("GET", stranger.path("namespaces")), 404)


@pytest.mark.parametrize("who", ["owner", "admin of the warehouse", "admin of all"])
def test_its_owner_and_administrators_do_everything_with_it(guarded: Guarded, name: str, who: str) -> None:
    principal = {
        "owner": guarded.writer,
        "admin of the warehouse": guarded.admins["acme"],
        "admin of all": guarded.root,
    }[who]
    with guarded.client(principal) as http:
        assert name in listed(http)
        for method, address, body in requests_about(name):
            answer = send(http, method, address, body)
            assert answer.is_success, (method, address, answer.text)


def test_a_worker_publishes_only_its_own_transactions(guarded: Guarded, other: Principal, name: str) -> None:
    """The way of the jobs API: the job is the other worker's, the transaction is not."""
    namespace = f"jobs_{uuid.uuid4().hex[:8]}"
    with guarded.client(other) as http:
        sent = http.post(f"/cdc/{namespace}/t", params={"warehouse": "acme", "key": "id"}, json=[{"id": 1}])
        assert sent.status_code == 202, sent.text
        http.post("/flush", params={"warehouse": "acme"}, json={"wait": False})
        job = http.post("/lake/v1/jobs/lease", json={"worker": "w", "wait-s": 20}).json()
        body = {"epoch": job["epoch"], "transaction": name}
        assert_error(http.post(f"/lake/v1/jobs/{job['id']}/publish", json=body), 404)
    with guarded.client(guarded.writer) as http:
        assert http.get(f"/lake/v1/acme/transactions/{name}").json()["state"] == "open"
