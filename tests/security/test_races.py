"""Callers that race get the right status: one wins, the others are told why, and nobody gets a 5xx."""

from __future__ import annotations

import uuid
from collections import Counter
from typing import Any

import httpx
import pytest

from tests.harness.rest import SCHEMA, Rest, append_body
from tests.harness.stacks import Stack
from tests.security.answers import assert_error
from tests.security.races import at_once
from tests.security.requests_of_operations import view_body

CALLERS = 8


@pytest.fixture
def rest(crowded: Stack) -> Rest:
    return Rest(crowded.url)


def _count(answers: list[httpx.Response]) -> dict[int, int]:
    for answer in answers:
        if not answer.is_success:
            assert_error(answer, 400, 404, 409)
    return dict(Counter(answer.status_code for answer in answers))


def _ask(rest: Rest, method: str, path: str, body: Any = None) -> httpx.Response:
    """On a connection of its own."""
    with httpx.Client(base_url=rest.url, timeout=60) as http:
        return http.request(method, path, json=body) if body is not None else http.request(method, path)


def test_of_many_creators_of_one_table_one_wins(rest: Rest) -> None:
    namespace = rest.fresh_namespace()
    path = rest.namespace_path(namespace, "tables")
    answers = at_once(CALLERS, lambda _: _ask(rest, "POST", path, {"name": "t", "schema": SCHEMA}))
    assert _count(answers) == {200: 1, 409: CALLERS - 1}
    assert {a.json()["error"]["type"] for a in answers if not a.is_success} == {"AlreadyExistsException"}
    winner = next(answer for answer in answers if answer.is_success).json()
    assert rest.load(namespace, "t") == winner


def test_of_many_creators_of_one_view_one_wins(rest: Rest) -> None:
    namespace = rest.fresh_namespace()
    path = rest.namespace_path(namespace, "views")
    answers = at_once(CALLERS, lambda _: _ask(rest, "POST", path, view_body("v", namespace)))
    assert _count(answers) == {200: 1, 409: CALLERS - 1}


def test_a_table_and_a_view_of_one_name_do_not_both_come_to_be(rest: Rest) -> None:
    namespace = rest.fresh_namespace()

    def create(number: int) -> httpx.Response:
        if number % 2:
            return _ask(rest, "POST", rest.namespace_path(namespace, "views"), view_body("x", namespace))
        body = {"name": "x", "schema": SCHEMA}
        return _ask(rest, "POST", rest.namespace_path(namespace, "tables"), body)

    assert _count(at_once(CALLERS, create)) == {200: 1, 409: CALLERS - 1}


def test_of_many_creators_of_one_namespace_one_wins(rest: Rest) -> None:
    name = f"raced{uuid.uuid4().hex}"
    answers = at_once(CALLERS, lambda _: _ask(rest, "POST", rest.path("namespaces"), {"namespace": [name]}))
    assert _count(answers) == {200: 1, 409: CALLERS - 1}


def test_of_many_commits_that_create_one_table_one_wins(rest: Rest) -> None:
    namespace = rest.fresh_namespace()

    def commit(number: int) -> httpx.Response:
        body = {"name": "t", "schema": SCHEMA, "stage-create": True}
        staged = _ask(rest, "POST", rest.namespace_path(namespace, "tables"), body)
        if staged.status_code != 200:
            return staged
        metadata = staged.json()["metadata"]
        updates = [
            {"action": "assign-uuid", "uuid": metadata["table-uuid"]},
            {"action": "upgrade-format-version", "format-version": 2},
            {"action": "add-schema", "schema": metadata["schemas"][0], "last-column-id": 2},
            {"action": "set-current-schema", "schema-id": -1},
            {"action": "add-spec", "spec": metadata["partition-specs"][0]},
            {"action": "set-default-spec", "spec-id": -1},
            {"action": "add-sort-order", "sort-order": metadata["sort-orders"][0]},
            {"action": "set-default-sort-order", "sort-order-id": -1},
            {"action": "set-location", "location": metadata["location"]},
        ]
        commit = {"requirements": [{"type": "assert-create"}], "updates": updates}
        return _ask(rest, "POST", rest.table_path(namespace, "t"), commit)

    assert _count(at_once(CALLERS, commit)) == {200: 1, 409: CALLERS - 1}


def test_of_many_renames_to_one_name_one_wins(rest: Rest) -> None:
    namespace = rest.fresh_namespace()
    for number in range(CALLERS):
        rest.create(namespace, f"t{number}")

    def rename(number: int) -> httpx.Response:
        body = {
            "source": {"namespace": [namespace], "name": f"t{number}"},
            "destination": {"namespace": [namespace], "name": "one"},
        }
        return _ask(rest, "POST", rest.path("tables/rename"), body)

    assert _count(at_once(CALLERS, rename)) == {204: 1, 409: CALLERS - 1}
    assert len(rest.tables(namespace)) == CALLERS


def test_of_many_renames_of_one_table_one_wins(rest: Rest) -> None:
    namespace = rest.fresh_namespace()
    rest.create(namespace, "t")

    def rename(number: int) -> httpx.Response:
        body = {
            "source": {"namespace": [namespace], "name": "t"},
            "destination": {"namespace": [namespace], "name": f"t{number}"},
        }
        return _ask(rest, "POST", rest.path("tables/rename"), body)

    assert _count(at_once(CALLERS, rename)) == {204: 1, 404: CALLERS - 1}
    assert len(rest.tables(namespace)) == 1


def test_of_many_drops_one_wins(rest: Rest) -> None:
    namespace = rest.fresh_namespace()
    rest.create(namespace, "t")
    answers = at_once(CALLERS, lambda _: _ask(rest, "DELETE", rest.table_path(namespace, "t")))
    assert _count(answers) == {204: 1, 404: CALLERS - 1}


@pytest.mark.parametrize("purge", ["", "?purgeRequested=true"])
def test_a_drop_among_commits_makes_no_server_error(rest: Rest, purge: str) -> None:
    for _ in range(2):
        namespace = rest.fresh_namespace()
        metadata = rest.create(namespace, "t")["metadata"]
        path = rest.table_path(namespace, "t")

        def ask(number: int, path: str = path, metadata: dict[str, Any] = metadata) -> httpx.Response:
            if number == 0:
                return _ask(rest, "DELETE", path + purge)
            if number % 3 == 0:
                return _ask(rest, "GET", path)
            update = {"action": "set-properties", "updates": {f"p{number}": "x"}}
            body = append_body(metadata) if number % 3 == 1 else {"requirements": [], "updates": [update]}
            return _ask(rest, "POST", path, body)

        answers = at_once(CALLERS, ask)
        assert answers[0].status_code == 204, answers[0].text
        assert set(_count(answers)) <= {200, 204, 404, 409}
        assert rest.tables(namespace) == []


def test_a_drop_of_a_namespace_among_creates_leaves_no_table_without_one(rest: Rest) -> None:
    for _ in range(2):
        namespace = rest.fresh_namespace()
        path = rest.namespace_path(namespace)

        def ask(number: int, path: str = path) -> httpx.Response:
            if number % 3 == 0:
                return _ask(rest, "DELETE", path)
            return _ask(rest, "POST", f"{path}/tables", {"name": f"t{number}", "schema": SCHEMA})

        answers = at_once(CALLERS, ask)
        assert set(_count(answers)) <= {200, 204, 404, 409}
        made = [answer for answer in answers if answer.status_code == 200]
        gone = any(answer.status_code == 204 for answer in answers)
        assert not (made and gone)
        assert rest.call("HEAD", path).status_code == (404 if gone else 204)


def test_of_many_registers_of_one_file_one_wins(rest: Rest) -> None:
    namespace = rest.fresh_namespace()
    made = rest.create(namespace, "t")
    rest.ok("POST", rest.table_path(namespace, "t", "unregister"))
    body = {"name": "u", "metadata-location": made["metadata-location"]}
    path = rest.namespace_path(namespace, "register")
    assert _count(at_once(CALLERS, lambda _: _ask(rest, "POST", path, body))) == {200: 1, 409: CALLERS - 1}


def test_of_many_undrops_one_wins(rest: Rest) -> None:
    namespace = rest.fresh_namespace()
    rest.create(namespace, "t")
    rest.ok("DELETE", rest.table_path(namespace, "t"))
    [found] = [d for d in rest.lake("GET", "main/dropped").json()["dropped"] if d["namespace"] == [namespace]]
    path = f"/lake/v1/main/dropped/{found['id']}/undrop"
    counted = _count(at_once(CALLERS, lambda _: _ask(rest, "POST", path)))
    assert counted.pop(200) == 1
    assert sum(counted.values()) == CALLERS - 1
    assert set(counted) <= {404, 409}
    assert rest.tables(namespace) == ["t"]


def test_of_many_that_open_or_publish_one_transaction_one_wins(rest: Rest) -> None:
    name = f"raced-{uuid.uuid4().hex}"
    opened = at_once(CALLERS, lambda _: _ask(rest, "POST", "/lake/v1/main/transactions", {"name": name}))
    assert _count(opened) == {200: 1, 409: CALLERS - 1}
    namespace = rest.fresh_namespace()
    rest.publish(name)
    inside = rest.open_transaction(name)
    inside.create(namespace, "t")
    published = at_once(CALLERS, lambda _: _ask(rest, "POST", f"/lake/v1/main/transactions/{name}/commit"))
    # A repeat finds it committed and answers the same number.
    assert _count(published) == {200: CALLERS}
    assert len({answer.json()["number"] for answer in published}) == 1
    assert rest.tables(namespace) == ["t"]


def test_racing_creators_of_one_warehouse_are_told(rest: Rest) -> None:
    name = f"w{uuid.uuid4().hex}"
    answers = at_once(CALLERS, lambda _: _ask(rest, "POST", "/lake/v1/warehouses", {"name": name}))
    counted = _count(answers)
    assert counted.get(200) == 1, counted
    assert set(counted) == {200, 409}
