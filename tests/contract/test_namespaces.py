"""Namespaces over HTTP: their default location, and levels that no address could name."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest

from tests.harness.rest import SCHEMA, Rest
from tests.harness.stacks import Stack, Stacks


@pytest.fixture
def rest(stack: Stack) -> Rest:
    return Rest(stack.url)


def properties_of(rest: Rest, namespace: str | list[str]) -> dict[str, str]:
    found: dict[str, str] = rest.ok("GET", rest.namespace_path(namespace))["properties"]
    return found


def test_a_namespace_without_a_location_has_a_default_one(stack: Stack, rest: Rest) -> None:
    """As Iceberg's JDBC catalog does. An engine may send none, or a body without properties."""
    name = f"ns-{uuid.uuid4().hex[:8]}"
    made = rest.ok("POST", rest.path("namespaces"), json={"namespace": [name]})
    assert made["properties"] == {"location": f"{stack.warehouse_root}/{name}"}
    assert properties_of(rest, name) == made["properties"]
    inner = [name, "Größe 1"]
    rest.ok("POST", rest.path("namespaces"), json={"namespace": inner, "properties": {"owner": "me"}})
    location = f"{stack.warehouse_root}/{name}/Gr_e_1"
    assert properties_of(rest, inner) == {"owner": "me", "location": location}
    inside = rest.open_transaction(f"t-{uuid.uuid4().hex[:8]}")
    assert properties_of(inside, inner) == {"owner": "me", "location": location}
    assert properties_of(rest.at(f"main@{rest.head()}"), inner) == {"owner": "me", "location": location}


def test_the_location_of_a_namespace_can_be_changed(stack: Stack, rest: Rest) -> None:
    namespace = rest.fresh_namespace()
    default = properties_of(rest, namespace)["location"]
    path = rest.namespace_path(namespace, "properties")
    other = f"{stack.warehouse_root}/other-{uuid.uuid4().hex}"
    changed = rest.ok("POST", path, json={"updates": {"location": other}})
    assert changed == {"updated": ["location"], "removed": [], "missing": []}
    assert properties_of(rest, namespace)["location"] == other
    assert rest.create(namespace, "t")["metadata"]["location"].startswith(f"{other}/t-")
    # Engines send back what they have read: the default is a valid value.
    rest.ok("POST", path, json={"updates": properties_of(rest, namespace) | {"location": default}})
    removed = rest.ok("POST", path, json={"removals": ["location"]})
    assert removed == {"updated": [], "removed": ["location"], "missing": []}
    assert properties_of(rest, namespace)["location"] == default
    absent = rest.ok("POST", path, json={"removals": ["location"]})
    assert absent == {"updated": [], "removed": [], "missing": ["location"]}
    for outside in ("s3://elsewhere/x", "file:///elsewhere", f"{stack.warehouse_root}-2/x", ""):
        answer = rest.call("POST", path, json={"updates": {"location": outside}})
        assert (outside, answer.status_code) == (outside, 400)


def test_a_table_without_a_location_gets_a_fresh_one_below_its_namespace(rest: Rest) -> None:
    namespace = rest.fresh_namespace()
    base = properties_of(rest, namespace)["location"]
    seen = set()
    for _ in range(2):
        location = rest.create(namespace, "t")["metadata"]["location"]
        assert location.startswith(f"{base}/t-")
        seen.add(location)
        assert rest.call("DELETE", rest.table_path(namespace, "t")).status_code == 204
    assert len(seen) == 2


def test_tables_where_trino_puts_them(rest: Rest) -> None:
    """Trino appends the table's name and a uuid to the location of the schema, and stages the table there."""
    namespace = rest.fresh_namespace()
    base = properties_of(rest, namespace)["location"]
    inner = [namespace, "t"]
    rest.ok("POST", rest.path("namespaces"), json={"namespace": inner})
    rest.create(namespace, "beside")
    for where in (namespace, inner):
        location = f"{properties_of(rest, where)['location']}/t-{uuid.uuid4().hex}"
        body = {"name": "t", "schema": SCHEMA, "location": location}
        path = rest.namespace_path(where, "tables")
        staged = rest.ok("POST", path, json=body | {"stage-create": True})
        assert staged["metadata"]["location"] == location
        made = rest.commit(where, "t", _creation(staged["metadata"]))
        assert made.status_code == 200, made.text
        assert rest.load(where, "t")["metadata"]["location"] == location
    # The folder of a whole namespace belongs to no table.
    taken = rest.call(
        "POST",
        rest.namespace_path(namespace, "tables"),
        json={"name": "u", "schema": SCHEMA, "location": base},
    )
    assert taken.status_code == 400


def test_a_level_that_contains_the_separator_is_refused(stacks: Stacks, tmp_path: Path) -> None:
    with stacks.started("embedded", tmp_path, {"CALVE_NAMESPACE_SEPARATOR": "%2E"}) as stack:
        rest = Rest(stack.url)
        rest.ok("POST", rest.path("namespaces"), json={"namespace": ["q"]})
        for levels in (["q.r"], ["q", "r.s"], ["q.", "r"], ["."]):
            answer = rest.call("POST", rest.path("namespaces"), json={"namespace": levels})
            assert (levels, answer.status_code) == (levels, 400)
        refused = rest.call("POST", rest.path("namespaces"), json={"namespace": ["q.r"]})
        assert "namespace-separator" in refused.json()["error"]["message"]
        assert rest.ok("GET", rest.path("namespaces"))["namespaces"] == [["q"]]
        rest.ok("POST", rest.path("namespaces"), json={"namespace": ["q", "r"]})
        assert rest.call("GET", rest.path("namespaces", "q.r")).json()["namespace"] == ["q", "r"]


def test_with_the_usual_separator_a_level_may_contain_a_dot(rest: Rest) -> None:
    name = f"q.{uuid.uuid4().hex[:8]}"
    rest.ok("POST", rest.path("namespaces"), json={"namespace": [name]})
    assert rest.ok("GET", rest.namespace_path(name))["namespace"] == [name]


def _creation(staged: dict[str, Any]) -> dict[str, Any]:
    """The commit that makes a staged table."""
    updates = [
        {"action": "assign-uuid", "uuid": staged["table-uuid"]},
        {"action": "upgrade-format-version", "format-version": staged["format-version"]},
        {"action": "add-schema", "schema": SCHEMA, "last-column-id": 2},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": {"spec-id": 0, "fields": []}},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": []}},
        {"action": "set-default-sort-order", "sort-order-id": -1},
        {"action": "set-location", "location": staged["location"]},
    ]
    return {"requirements": [{"type": "assert-create"}], "updates": updates}
