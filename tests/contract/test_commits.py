"""Commits over HTTP: replays, idempotency keys, several tables at once, conflicts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.harness.rest import Rest, append_body, identified, uuid7
from tests.harness.stacks import STACKS, Stack, Stacks


@pytest.fixture
def rest(stack: Stack) -> Rest:
    return Rest(stack.url)


@pytest.fixture
def namespace(rest: Rest) -> str:
    namespace = rest.fresh_namespace()
    for table in ("a", "b"):
        rest.create(namespace, table)
    return namespace


def test_a_commit_that_landed_is_answered_again(rest: Rest, namespace: str) -> None:
    body = append_body(rest.load(namespace, "a")["metadata"])
    first = rest.commit(namespace, "a", body)
    head = rest.head()
    again = rest.commit(namespace, "a", body)
    assert (again.status_code, again.json()) == (200, first.json())
    rest.append(namespace, "a")
    late = rest.commit(namespace, "a", body)
    assert late.status_code == 200
    assert len(late.json()["metadata"]["snapshots"]) == 2
    assert rest.head() == head + 1


@pytest.mark.parametrize("absent", [{}, {"requirements": None}], ids=["missing", "null"])
def test_requirements_may_be_null_or_missing(rest: Rest, namespace: str, absent: dict[str, None]) -> None:
    """Iceberg's own parser accepts both, and iceberg-go sends them."""
    updates = [{"action": "set-properties", "updates": {"owner": "me"}}]
    answer = rest.commit(namespace, "a", {**absent, "updates": updates})
    assert answer.status_code == 200, answer.text
    assert answer.json()["metadata"]["properties"]["owner"] == "me"
    change = {"identifier": {"namespace": [namespace], "name": "b"}, **absent, "updates": updates}
    answer = rest.call("POST", rest.path("transactions/commit"), json={"table-changes": [change]})
    assert answer.status_code == 204, answer.text
    assert rest.load(namespace, "b")["metadata"]["properties"]["owner"] == "me"


@pytest.mark.parametrize("absent", [{}, {"updates": None}], ids=["missing", "null"])
def test_updates_may_be_null_or_missing(rest: Rest, namespace: str, absent: dict[str, None]) -> None:
    before, head = rest.load(namespace, "a"), rest.head()
    answer = rest.commit(namespace, "a", {"requirements": [], **absent})
    assert (answer.status_code, answer.json()) == (200, before)
    change = {"identifier": {"namespace": [namespace], "name": "a"}, **absent}
    answer = rest.call("POST", rest.path("transactions/commit"), json={"table-changes": [change]})
    assert (answer.status_code, rest.head()) == (204, head)


def test_a_lost_race_is_a_refusal_with_the_reason(rest: Rest, namespace: str) -> None:
    metadata = rest.load(namespace, "a")["metadata"]
    assert rest.commit(namespace, "a", append_body(metadata)).status_code == 200
    answer = rest.commit(namespace, "a", append_body(metadata))
    assert answer.status_code == 409
    error = answer.json()["error"]
    assert error["type"] == "CommitFailedException"
    assert error["message"] == "Requirement failed: branch main was created concurrently"


def test_changes_without_conflicting_requirements_both_apply(rest: Rest, namespace: str) -> None:
    for key in ("x", "y"):
        body = {"requirements": [], "updates": [{"action": "set-properties", "updates": {key: "1"}}]}
        assert rest.commit(namespace, "a", body).status_code == 200
    properties = rest.load(namespace, "a")["metadata"]["properties"]
    assert properties["x"] == properties["y"] == "1"


def test_a_commit_that_changes_nothing_writes_nothing(rest: Rest, namespace: str) -> None:
    before, head = rest.load(namespace, "a"), rest.head()
    body = {"requirements": [], "updates": [{"action": "remove-properties", "removals": ["not-there"]}]}
    assert rest.commit(namespace, "a", body).status_code == 200
    assert rest.load(namespace, "a") == before
    assert rest.head() == head


def test_several_tables_are_committed_together(rest: Rest, namespace: str) -> None:
    bodies = {table: append_body(rest.load(namespace, table)["metadata"]) for table in ("a", "b")}
    changes = {"table-changes": [identified(namespace, table, body) for table, body in bodies.items()]}
    head = rest.head()
    assert rest.call("POST", rest.path("transactions/commit"), json=changes).status_code == 204
    assert rest.head() == head + 1
    again = rest.call("POST", rest.path("transactions/commit"), json=changes)
    assert again.status_code == 204
    assert rest.head() == head + 1
    for table in bodies:
        assert len(rest.load(namespace, table)["metadata"]["snapshots"]) == 1


def test_one_refused_table_refuses_all(rest: Rest, namespace: str) -> None:
    good = append_body(rest.load(namespace, "a")["metadata"])
    bad = append_body(rest.load(namespace, "b")["metadata"])
    bad["requirements"][0]["uuid"] = uuid7()
    changes = {"table-changes": [identified(namespace, "a", good), identified(namespace, "b", bad)]}
    answer = rest.call("POST", rest.path("transactions/commit"), json=changes)
    assert answer.status_code == 409
    assert rest.load(namespace, "a")["metadata"]["snapshots"] == []
    missing = {"table-changes": [identified(namespace, "a", good), identified(namespace, "no", bad)]}
    assert rest.call("POST", rest.path("transactions/commit"), json=missing).status_code == 404
    assert rest.load(namespace, "a")["metadata"]["snapshots"] == []


@settings(max_examples=15, deadline=None)
@given(landed=st.lists(st.booleans(), min_size=2, max_size=5))
def test_a_commit_of_which_a_part_has_landed_is_a_conflict(stacks: Stacks, landed: list[bool]) -> None:
    """All tables have their snapshots: success. Some: 409 that names them. None: the commit is applied."""
    for stack_name in STACKS:
        rest = Rest(stacks.shared(stack_name).url)
        namespace = rest.fresh_namespace()
        tables = [f"t{position}" for position in range(len(landed))]
        bodies = {table: append_body(rest.create(namespace, table)["metadata"]) for table in tables}
        alone = [table for table, has_landed in zip(tables, landed, strict=True) if has_landed]
        for table in alone:
            assert rest.commit(namespace, table, bodies[table]).status_code == 200
        changes = {"table-changes": [identified(namespace, table, body) for table, body in bodies.items()]}
        answer = rest.call("POST", rest.path("transactions/commit"), json=changes)
        have = [table for table in tables if rest.load(namespace, table)["metadata"]["snapshots"]]
        if len(alone) in (0, len(tables)):
            assert answer.status_code == 204
            assert have == tables
        else:
            assert answer.status_code == 409
            assert answer.json()["error"]["type"] == "CommitFailedException"
            for table in tables:
                assert (f"{namespace}.{table}" in answer.json()["error"]["message"]) == (table in alone)
            assert have == alone


def test_a_repeat_of_a_landed_commit_succeeds_after_later_commits(rest: Rest, namespace: str) -> None:
    """The snapshot of one table is expired, a property of another is set anew: the commit did happen."""
    rest.create(namespace, "c")
    bodies = {table: append_body(rest.load(namespace, table)["metadata"]) for table in ("a", "b")}
    bodies["c"] = {"requirements": [], "updates": [{"action": "set-properties", "updates": {"x": "1"}}]}
    changes = {"table-changes": [identified(namespace, table, body) for table, body in bodies.items()]}
    path = rest.path("transactions/commit")
    assert rest.call("POST", path, json=changes).status_code == 204
    rest.append(namespace, "b")
    expired = bodies["b"]["updates"][0]["snapshot"]["snapshot-id"]
    remove = {"requirements": [], "updates": [{"action": "remove-snapshots", "snapshot-ids": [expired]}]}
    assert rest.commit(namespace, "b", remove).status_code == 200
    again = {"requirements": [], "updates": [{"action": "set-properties", "updates": {"x": "2"}}]}
    assert rest.commit(namespace, "c", again).status_code == 200
    head = rest.head()
    assert rest.call("POST", path, json=changes).status_code == 204
    assert rest.head() == head
    assert rest.load(namespace, "c")["metadata"]["properties"]["x"] == "2"


def test_a_commit_is_not_a_repeat_if_only_its_snapshot_has_landed(rest: Rest, namespace: str) -> None:
    body = append_body(rest.load(namespace, "a")["metadata"])
    assert rest.commit(namespace, "a", body).status_code == 200
    owner = {"requirements": [], "updates": [{"action": "set-properties", "updates": {"owner": "me"}}]}
    changes = {"table-changes": [identified(namespace, "a", body), identified(namespace, "b", owner)]}
    answer = rest.call("POST", rest.path("transactions/commit"), json=changes)
    assert answer.status_code == 409
    assert f"{namespace}.a" in answer.json()["error"]["message"]
    assert "owner" not in rest.load(namespace, "b")["metadata"]["properties"]
    malformed: list[dict[str, Any]] = [
        {"requirements": ["x"], "updates": ["y"]},
        {"requirements": [{}], "updates": [{}]},
    ]
    for broken in malformed:
        changes["table-changes"][1] = identified(namespace, "b", broken)
        assert rest.call("POST", rest.path("transactions/commit"), json=changes).status_code == 409


def test_a_commit_with_an_unknown_update_or_requirement_is_refused(rest: Rest, namespace: str) -> None:
    known = {"action": "set-properties", "updates": {"x": "1"}}
    for body in (
        {"requirements": [], "updates": [known, {"action": "explode"}]},
        {"requirements": [{"type": "assert-weather"}], "updates": [known]},
    ):
        assert rest.commit(namespace, "a", body).status_code == 400
        changes = {"table-changes": [identified(namespace, "a", body)]}
        assert rest.call("POST", rest.path("transactions/commit"), json=changes).status_code == 400
    assert "x" not in rest.load(namespace, "a")["metadata"]["properties"]


def test_a_key_is_carried_out_once(rest: Rest, namespace: str) -> None:
    key = {"idempotency-key": uuid7()}
    body = {"name": "c", "schema": rest.load(namespace, "a")["metadata"]["schemas"][0]}
    path = rest.namespace_path(namespace, "tables")
    first = rest.call("POST", path, json=body, headers=key)
    again = rest.call("POST", path, json=body, headers=key)
    assert (first.status_code, again.status_code) == (200, 200)
    assert first.json() == again.json()
    other = rest.call("POST", path, json=body | {"name": "d"}, headers=key)
    assert other.status_code == 400
    # The same key for another operation is another request: the table is really dropped.
    table = rest.table_path(namespace, "c")
    assert rest.call("DELETE", table, headers=key).status_code == 204
    assert rest.call("HEAD", table).status_code == 404
    assert rest.call("DELETE", table, headers=key).status_code == 204
    # What was created is gone, and the replay still says what it made.
    assert rest.call("POST", path, json=body, headers=key).json() == first.json()


def test_a_final_refusal_is_remembered_too(rest: Rest, namespace: str) -> None:
    key = {"idempotency-key": uuid7()}
    path = rest.table_path(namespace, "later")
    assert rest.call("DELETE", path, headers=key).status_code == 404
    rest.create(namespace, "later")
    assert rest.call("DELETE", path, headers=key).status_code == 404
    assert rest.call("DELETE", path, headers={"idempotency-key": uuid7()}).status_code == 204


def test_namespace_properties_answer_again_what_they_did(rest: Rest, namespace: str) -> None:
    key = {"idempotency-key": uuid7()}
    body = {"updates": {"owner": "me"}, "removals": ["absent"]}
    path = rest.namespace_path(namespace, "properties")
    first = rest.call("POST", path, json=body, headers=key).json()
    assert first == {"updated": ["owner"], "removed": [], "missing": ["absent"]}
    assert rest.call("POST", path, json=body, headers=key).json() == first
    both = rest.call("POST", path, json={"updates": {"a": "1"}, "removals": ["a"]})
    assert both.status_code == 422
