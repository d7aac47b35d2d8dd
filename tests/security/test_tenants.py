"""A warehouse of somebody else looks as if it did not exist: status, body and headers, on every operation."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import httpx
import pytest

from catalog.models import Role
from tests.harness.rest import uuid7
from tests.security.answers import assert_error
from tests.security.guarded import ABSENT, TENANTS, Guarded
from tests.security.requests_of_operations import OF_A_WAREHOUSE, OF_JOBS, SERVER_WIDE, Maker, Request

# What differs from answer to answer whatever was asked.
ITS_OWN = {"x-request-id", "date"}
BY_ID = {served.id: served for served in OF_A_WAREHOUSE}


def _seen(answer: httpx.Response, warehouse: str) -> tuple[int, str, list[tuple[str, str]]]:
    """All that a caller sees, with the name it asked for taken out."""
    headers = sorted((name, value) for name, value in answer.headers.items() if name not in ITS_OWN)
    return answer.status_code, answer.text.replace(warehouse, "W"), headers


def _variants(request: Request) -> Iterator[Request]:
    """The request itself, and with what a caller may put around the name of a warehouse or into headers."""
    yield request
    for behind in ("@now", "@1", "@2020-01-01T00:00:00Z", "@99999999", "~none"):
        if request.path.startswith("/v1/") and request.path.count("/") > 2:
            _, v1, prefix, rest = request.path.split("/", 3)
            yield Request(request.method, f"/{v1}/{prefix}{behind}/{rest}", request.body, request.query)
        elif request.query.startswith("warehouse="):
            yield Request(request.method, request.path, None, request.query + behind)


@pytest.mark.parametrize(
    ("guarded", "own"),
    [
        ("embedded", "acme"),
        ("postgres-s3", "blue"),
        pytest.param("embedded", "blue", marks=pytest.mark.proof),
        pytest.param("embedded", "core", marks=pytest.mark.proof),
        pytest.param("postgres-s3", "acme", marks=pytest.mark.proof),
        pytest.param("postgres-s3", "core", marks=pytest.mark.proof),
    ],
    indirect=["guarded"],
)
def test_what_belongs_to_others_looks_absent(guarded: Guarded, own: str) -> None:
    others = [name for name in TENANTS if name != own]
    made = {other: [guarded.makers[other].request(served) for served in BY_ID.values()] for other in others}
    before, wrong, cases = guarded.heads(), [], 0
    with guarded.client(guarded.admins[own]) as http:
        for other in others:
            for request in (variant for sample in made[other] for variant in _variants(sample)):
                there = _seen(request.send(http), other)
                absent = _seen(request.of(other, ABSENT).send(http), ABSENT)
                cases += 1
                if there != absent or there[0] not in (404, 403, 400):
                    wrong.append((request, there, absent))
    assert not wrong
    assert cases >= 2 * len(BY_ID)
    assert guarded.heads() == before


def test_a_job_of_another_tenant_looks_absent(guarded: Guarded) -> None:
    """A job has no warehouse in its address: the id alone must not be enough."""
    made = {served: guarded.makers["blue"].request(served) for served in OF_JOBS if "{job}" in served.path}
    assert len(made) == 5
    unknown = uuid.uuid4().hex
    with guarded.client(guarded.admins["acme"]) as http:
        for served, request in made.items():
            known = request.path.split("/")[4]
            absent = Request(request.method, request.path.replace(known, unknown), request.body)
            there = _seen(request.send(http), known)
            assert there == _seen(absent.send(http), unknown), served.id
            assert there[0] == 404
    for served, request in made.items():
        assert request.send(guarded.makers["blue"].rest.http).is_success, served.id


def test_what_is_ones_own_is_there(guarded: Guarded) -> None:
    own, wrong = "core", []
    with guarded.client(guarded.admins[own]) as http:
        for served in BY_ID.values():
            if served.id in SERVER_WIDE:
                continue
            answer = guarded.makers[own].request(served).send(http)
            if not answer.is_success:
                wrong.append((served.id, answer.status_code, answer.text[:200]))
    assert not wrong


def test_a_caller_without_any_role_sees_nothing_at_all(guarded: Guarded) -> None:
    made = [guarded.makers["acme"].request(served) for served in BY_ID.values()]
    wrong = []
    with guarded.client(guarded.nobody) as http:
        for request in made:
            there = _seen(request.send(http), "acme")
            if there != _seen(request.of("acme", ABSENT).send(http), ABSENT):
                wrong.append((request, there))
        assert http.get("/v1/config").status_code == 404  # `main` is no exception
        assert http.get("/v1/namespaces").status_code == 404
    assert not wrong


def test_the_root_of_another_tenant_does_not_tell_its_name(guarded: Guarded) -> None:
    """`warehouse=` may be a storage root. Whether somebody has that root is nobody else's business."""
    root = guarded.rest(guarded.root).lake("GET", "warehouses/blue").json()["root"]
    absent = root.replace("blue", "dune")
    with guarded.client(guarded.admins["acme"]) as http:
        there, nowhere = (http.get("/v1/config", params={"warehouse": text}) for text in (root, absent))
    assert (there.status_code, there.text.replace("blue", "W")) == (
        nowhere.status_code,
        nowhere.text.replace("dune", "W"),
    )


def test_lists_hold_what_is_ones_own_only(guarded: Guarded) -> None:
    for own in TENANTS:
        rest = guarded.rest(guarded.admins[own], own)
        listed = rest.lake("GET", "warehouses").json()["warehouses"]
        assert [warehouse["name"] for warehouse in listed] == [own]
        for path in ("events", "dropped", "transactions", "jobs", "dead-letters"):
            text = rest.lake("GET", f"{own}/{path}").text
            assert not [other for other in TENANTS if other != own and f"/warehouse-{other}" in text], path


# -- what one tenant was given, in the hands of another


def _pair(guarded: Guarded) -> tuple[Maker, httpx.Client]:
    """What is blue's, and a client of acme."""
    return guarded.makers["blue"], guarded.client(guarded.admins["acme"])


def test_a_page_token_opens_no_list_of_others(guarded: Guarded) -> None:
    blue, http = _pair(guarded)
    for _ in range(3):
        blue.table()
    path = blue.rest.namespace_path(blue.namespace, "tables")
    token = blue.rest.ok("GET", path, params={"pageToken": "", "pageSize": "1"})["next-page-token"]
    with http:
        answer = http.get(path, params={"pageToken": token, "pageSize": "1"})
        assert_error(answer, 404)
        acme = guarded.makers["acme"]
        own = acme.rest.namespace_path(acme.namespace, "tables")
        assert_error(http.get(own, params={"pageToken": token}), 400)
        # And a namespace of the same name: the token still belongs to the other warehouse.
        acme.rest.ok("POST", acme.rest.path("namespaces"), json={"namespace": [blue.namespace]})
        assert_error(
            http.get(acme.rest.namespace_path(blue.namespace, "tables"), params={"pageToken": token}), 400
        )


def test_an_etag_tells_nothing_of_others(guarded: Guarded) -> None:
    blue, http = _pair(guarded)
    path = blue.rest.table_path(blue.namespace, "t")
    tag = blue.rest.call("GET", path).headers["etag"]
    assert blue.rest.call("GET", path, headers={"If-None-Match": tag}).status_code == 304
    with http:
        for given in (tag, "*", f"W/{tag}"):
            known = _seen(http.get(path, headers={"If-None-Match": given}), "blue")
            absent = http.get(path.replace("/blue/", f"/{ABSENT}/"), headers={"If-None-Match": given})
            assert known == _seen(absent, ABSENT)


@pytest.mark.parametrize(
    "operation", ["createNamespace", "createTable", "updateTable", "dropTable", "createView"]
)
def test_an_idempotency_key_answers_nothing_to_others(guarded: Guarded, operation: str) -> None:
    blue, http = _pair(guarded)
    request, key = blue.request(BY_ID[operation]), {"Idempotency-Key": uuid7()}
    assert request.send(blue.rest.http, headers=key).is_success
    with http:
        there = _seen(request.send(http, headers=key), "blue")
        absent = _seen(request.of("blue", ABSENT).send(http, headers=key), ABSENT)
    assert there == absent
    assert there[0] == 404


def test_a_replay_asks_again_who_may(guarded: Guarded) -> None:
    """A writer whose role was taken away does not get the answer of its own former request."""
    name = f"p{uuid7()[:13]}"
    secret = guarded.principals.create(name, {"acme": Role.WRITER})
    request, key = guarded.makers["acme"].request(BY_ID["createTable"]), {"Idempotency-Key": uuid7()}
    header = {"Authorization": f"Bearer {guarded.token(name, secret)}", **key}
    with guarded.client() as http:
        assert request.send(http, headers=header).status_code == 200
        guarded.principals.grant(name, "acme", Role.READER)
        assert request.send(http, headers=header).status_code == 403
        guarded.principals.revoke(name, "acme")
        assert request.send(http, headers=header).status_code == 404


def test_keys_are_those_of_a_principal(guarded: Guarded) -> None:
    """The same key in another hand is another key: what was done for one is not answered to the other."""
    acme, key = guarded.makers["acme"], {"Idempotency-Key": uuid7()}
    request = acme.request(BY_ID["dropTable"])
    with guarded.client(guarded.writer) as writer, guarded.client(guarded.admins["acme"]) as admin:
        assert request.send(writer, headers=key).status_code == 204
        assert request.send(writer, headers=key).status_code == 204
        assert request.send(admin, headers=key).status_code == 404


def test_a_metadata_file_of_another_tenant_cannot_be_registered(guarded: Guarded) -> None:
    blue, acme = guarded.makers["blue"], guarded.makers["acme"]
    location = blue.metadata_file()
    body = {"name": acme.name(), "metadata-location": location}
    assert_error(acme.rest.call("POST", acme.rest.namespace_path(acme.namespace, "register"), json=body), 400)
    update = {"action": "set-location", "location": location.rsplit("/metadata/", 1)[0]}
    assert_error(acme.rest.commit(acme.namespace, "t", {"requirements": [], "updates": [update]}), 400)


def test_a_dropped_table_or_a_transaction_of_another_tenant_is_not_found(guarded: Guarded) -> None:
    blue, http = _pair(guarded)
    dropped, transaction = blue.dropped(), blue.transaction()
    with http:
        assert_error(http.post(f"/lake/v1/acme/dropped/{dropped}/undrop", json={}), 404)
        assert_error(http.get(f"/lake/v1/acme/transactions/{transaction}"), 404)
        assert_error(http.post(f"/lake/v1/acme/transactions/{transaction}/commit"), 404)
        assert_error(http.get(f"/v1/acme~{transaction}/namespaces"), 404)


def test_the_identifier_in_a_body_is_not_another_one_than_in_the_path(guarded: Guarded) -> None:
    acme = guarded.makers["acme"]
    other = acme.table()
    body = {
        "identifier": {"namespace": [acme.namespace], "name": other},
        "requirements": [],
        "updates": [{"action": "set-properties", "updates": {"a": "b"}}],
    }
    assert_error(acme.rest.commit(acme.namespace, "t", body), 400)
    for name in ("t", other):
        assert "a" not in acme.rest.load(acme.namespace, name)["metadata"]["properties"]
