"""A key stands for one request of one caller: it answers that one again, and no other at all."""

from __future__ import annotations

import sqlite3
import time
import zlib
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from catalog.store.entries import KEYS_A_DELETION
from tests.harness.operations import OPERATIONS
from tests.harness.rest import SCHEMA, Rest, append_body, uuid7
from tests.harness.stacks import Stack, Stacks
from tests.security.answers import assert_error
from tests.security.races import at_once
from tests.security.requests_of_operations import SPEC, Maker

KEYED = [served for served in SPEC if served.takes_key]


@pytest.fixture
def rest(crowded: Stack) -> Rest:
    return Rest(crowded.url)


def _key() -> dict[str, str]:
    return {"Idempotency-Key": uuid7()}


def test_every_operation_that_takes_a_key_is_tried_here() -> None:
    assert {served.id for served in KEYED} == {o.id for o in OPERATIONS if o.takes_key}


def test_a_repeat_is_answered_alike_and_done_once(rest: Rest) -> None:
    maker, wrong = Maker(rest), []
    for served in KEYED:
        request, key = maker.request(served), _key()
        first = request.send(rest.http, headers=key)
        head = rest.head()
        again = [request.send(rest.http, headers=key) for _ in range(2)]
        same = all((a.status_code, a.content) == (first.status_code, first.content) for a in again)
        if not first.is_success or not same or rest.head() != head:
            wrong.append((served.id, first.status_code, [a.text[:200] for a in again]))
    assert not wrong


def test_a_repeat_inside_a_transaction_is_answered_alike(rest: Rest) -> None:
    """The same promise under the prefix of an open transaction."""
    maker, wrong = Maker(rest), []
    for served in KEYED:
        request = maker.request(served)
        name = maker.transaction()
        inside, key = request.of("main", f"main~{name}"), _key()
        first = inside.send(rest.http, headers=key)
        again = inside.send(rest.http, headers=key)
        if not first.is_success or (again.status_code, again.content) != (first.status_code, first.content):
            wrong.append((served.id, first.status_code, again.status_code, again.text[:150]))
    assert not wrong


def test_a_key_with_another_body_is_refused(rest: Rest) -> None:
    namespace, key = rest.fresh_namespace(), _key()
    path = rest.namespace_path(namespace, "tables")
    assert rest.call("POST", path, json={"name": "a", "schema": SCHEMA}, headers=key).status_code == 200
    assert_error(rest.call("POST", path, json={"name": "b", "schema": SCHEMA}, headers=key), 400, 409, 422)
    assert rest.tables(namespace) == ["a"]
    # The query belongs to the request too: a purge is not the drop that was asked for before.
    drop = rest.table_path(namespace, "a")
    assert rest.call("DELETE", drop, headers=key).status_code == 204
    assert_error(rest.call("DELETE", drop, params={"purgeRequested": "true"}, headers=key), 400, 409, 422)


def test_a_drop_is_not_answered_from_a_create(rest: Rest) -> None:
    """In another catalog a drop with the key of a create answered 204 and dropped nothing."""
    namespace, key = rest.fresh_namespace(), _key()
    made = rest.call(
        "POST", rest.namespace_path(namespace, "tables"), json={"name": "t", "schema": SCHEMA}, headers=key
    )
    assert made.status_code == 200
    assert rest.call("DELETE", rest.table_path(namespace, "t"), headers=key).status_code == 204
    assert rest.tables(namespace) == []
    assert rest.call("DELETE", rest.namespace_path(namespace), headers=key).status_code == 204
    assert rest.call("HEAD", rest.namespace_path(namespace)).status_code == 404


def test_a_key_belongs_to_one_target(rest: Rest) -> None:
    key, namespace, other = _key(), rest.fresh_namespace(), rest.fresh_namespace()
    for where in (namespace, other):
        rest.create(where, "t")
        rest.create(where, "u")
    for where in (namespace, other):
        for name in ("t", "u"):
            assert rest.call("DELETE", rest.table_path(where, name), headers=key).status_code == 204
    assert rest.tables(namespace) == rest.tables(other) == []


def test_a_refusal_is_answered_again_only_while_it_would_be_the_same(rest: Rest) -> None:
    """A refusal may be remembered; what was refused must not be done by asking again."""
    namespace, key = rest.fresh_namespace(), _key()
    metadata = rest.create(namespace, "t")["metadata"]
    stale = append_body(metadata)
    rest.append(namespace, "t")
    first = rest.commit(namespace, "t", stale, headers=key)
    assert first.status_code == 409
    again = rest.commit(namespace, "t", stale, headers=key)
    assert (again.status_code, again.content) == (first.status_code, first.content)
    assert len(rest.load(namespace, "t")["metadata"]["snapshots"]) == 1


def test_requests_with_one_key_at_the_same_moment_are_done_once(rest: Rest) -> None:
    namespace, key = rest.fresh_namespace(), _key()
    path = rest.namespace_path(namespace, "tables")

    def create(_: int) -> httpx.Response:
        with httpx.Client(base_url=rest.url, timeout=60) as http:
            return http.post(path, json={"name": "t", "schema": SCHEMA}, headers=key)

    head = rest.head()
    answers = at_once(10, create)
    for answer in answers:
        assert answer.status_code in (200, 409), answer.text
    made = {answer.json()["metadata"]["table-uuid"] for answer in answers if answer.status_code == 200}
    assert len(made) == 1
    assert rest.head() == head + 1
    # Afterwards everybody gets the one answer.
    assert create(0).status_code == 200


def test_appends_with_one_key_at_the_same_moment_add_one_snapshot(rest: Rest) -> None:
    namespace, key = rest.fresh_namespace(), _key()
    metadata = rest.create(namespace, "t")["metadata"]
    body, path = append_body(metadata), rest.table_path(namespace, "t")

    def append(_: int) -> httpx.Response:
        with httpx.Client(base_url=rest.url, timeout=60) as http:
            return http.post(path, json=body, headers=key)

    statuses = {answer.status_code for answer in at_once(10, append)}
    assert statuses <= {200, 409}
    assert 200 in statuses
    assert append(0).status_code == 200
    assert len(rest.load(namespace, "t")["metadata"]["snapshots"]) == 1


def test_drops_with_one_key_at_the_same_moment_all_succeed(rest: Rest) -> None:
    namespace, key = rest.fresh_namespace(), _key()
    rest.create(namespace, "t")
    path = rest.table_path(namespace, "t")

    def drop(_: int) -> int:
        with httpx.Client(base_url=rest.url, timeout=60) as http:
            return http.delete(path, headers=key).status_code

    statuses = at_once(10, drop)
    assert set(statuses) <= {204, 409}
    assert 204 in statuses
    assert drop(0) == 204


@pytest.fixture(scope="module")
def forgetful(stacks: Stacks, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A server whose keys live for a second."""
    folder = tmp_path_factory.mktemp("forgetful")
    with stacks.started("embedded", folder, {"CALVE_IDEMPOTENCY_LIFETIME_S": "1"}) as stack:
        yield stack


def test_a_key_that_is_over_can_be_used_again(forgetful: Stack) -> None:
    """The lifetime is advertised; behind it a key is as good as new."""
    rest = Rest(forgetful.url)
    assert rest.ok("GET", "/v1/config")["idempotency-key-lifetime"] == "PT1S"
    namespace, key = rest.fresh_namespace(), _key()
    path = rest.namespace_path(namespace, "tables")
    body: dict[str, Any] = {"name": "t", "schema": SCHEMA}
    assert rest.call("POST", path, json=body, headers=key).status_code == 200
    assert rest.call("DELETE", rest.table_path(namespace, "t")).status_code == 204
    time.sleep(1.5)
    answer = rest.call("POST", path, json=body, headers=key)
    assert answer.status_code == 200, answer.text


def _deleting_key() -> dict[str, str]:
    """The key of a write that deletes expired records: by chance, one of `KEYS_A_DELETION` does."""
    while True:
        key = _key()
        (text,) = key.values()
        if zlib.crc32(text.encode()) % KEYS_A_DELETION == 0:
            return key


def test_keys_do_not_pile_up(forgetful: Stack) -> None:
    """Every table of the server's own has an end."""
    rest = Rest(forgetful.url)
    namespace = rest.fresh_namespace()
    for number in range(60):
        body = {"namespace": [namespace, f"n{number}"]}
        headers = _deleting_key() if number == 59 else _key()
        assert rest.call("POST", rest.path("namespaces"), json=body, headers=headers).status_code == 200
        if number == 30:
            time.sleep(1.5)
    database = sqlite3.connect(forgetful.database.removeprefix("sqlite:///"))
    try:
        [(count,)] = database.execute("SELECT count(*) FROM idempotency").fetchall()
    finally:
        database.close()
    assert count <= 45
