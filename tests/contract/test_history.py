"""One history: numbers without gaps, past moments as read-only warehouses, dropped tables that come back."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.harness.rest import SCHEMA, Rest, append_body
from tests.harness.stacks import Stack, Stacks


@pytest.fixture
def rest(stack: Stack) -> Rest:
    return Rest(stack.url)


def events(rest: Rest, after: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while True:
        answer = rest.lake("GET", "main/events", params={"after": after, "limit": 3}).json()
        found += answer["events"]
        after = answer["next"]
        if after == answer["head"]:
            return found


def test_every_commit_has_the_next_number(rest: Rest) -> None:
    start = rest.head()
    namespace = rest.fresh_namespace()
    rest.create(namespace, "t")
    rest.append(namespace, "t")
    source, target = ({"namespace": [namespace], "name": name} for name in ("t", "u"))
    rest.ok("POST", rest.path("tables/rename"), json={"source": source, "destination": target})
    rest.call("DELETE", rest.table_path(namespace, "u"))
    found = events(rest, start)
    assert [event["number"] for event in found] == list(range(start + 1, rest.head() + 1))
    words = [[change["operation"] for change in event["changes"]] for event in found]
    assert words == [
        ["create-namespace"],
        ["create-table"],
        ["update-table"],
        ["rename-table", "rename-table"],
        ["drop-table"],
    ]
    assert found[2]["changes"][0]["detail"]["added-snapshots"]
    assert [event["time-ms"] for event in found] == sorted(event["time-ms"] for event in found)


def test_a_reader_can_wait_for_the_next_event(rest: Rest) -> None:
    after = rest.head()
    waiting = Rest(rest.url)
    answers: list[Any] = []
    params = {"after": after, "wait_s": 20}
    thread = threading.Thread(
        target=lambda: answers.append(waiting.lake("GET", "main/events", params=params).json())
    )
    thread.start()
    time.sleep(0.3)
    assert answers == []
    rest.fresh_namespace()
    thread.join(20)
    assert answers[0]["events"][0]["number"] == after + 1


def test_a_moment_stays_as_it_was(rest: Rest) -> None:
    namespace = rest.fresh_namespace({"owner": "then"})
    rest.create(namespace, "t")
    then = rest.append(namespace, "t")
    rest.create(namespace, "gone")
    number = rest.head()
    prefix = rest.ok("GET", "/v1/config", params={"warehouse": "main@now"})["overrides"]["prefix"]
    assert prefix == f"main@{number}"

    rest.append(namespace, "t")
    rest.call("DELETE", rest.table_path(namespace, "gone"))
    rest.create(namespace, "gone")
    rest.create(namespace, "new")
    rest.ok("POST", rest.namespace_path(namespace, "properties"), json={"updates": {"owner": "now"}})

    past = rest.at(prefix)
    assert past.tables(namespace) == ["gone", "t"]
    assert past.load(namespace, "t") == then
    assert past.ok("GET", past.namespace_path(namespace))["properties"]["owner"] == "then"
    assert past.call("HEAD", past.table_path(namespace, "new")).status_code == 404
    old, new = past.load(namespace, "gone"), rest.load(namespace, "gone")
    assert old["metadata"]["table-uuid"] != new["metadata"]["table-uuid"]


def test_a_moment_refuses_every_write(rest: Rest) -> None:
    namespace = rest.fresh_namespace()
    rest.create(namespace, "t")
    past = rest.at(f"main@{rest.head()}")
    head = rest.head()
    answers = [
        past.call("POST", past.path("namespaces"), json={"namespace": ["x"]}),
        past.call("DELETE", past.table_path(namespace, "t")),
        past.commit(namespace, "t", append_body(rest.load(namespace, "t")["metadata"])),
        past.call("POST", past.namespace_path(namespace, "properties"), json={"updates": {"a": "b"}}),
    ]
    for answer in answers:
        assert answer.status_code == 403
        assert "cannot be written to" in answer.json()["error"]["message"]
    assert rest.head() == head


def test_a_moment_by_time(rest: Rest) -> None:
    namespace = rest.fresh_namespace()
    rest.create(namespace, "t")
    time.sleep(0.05)
    moment = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    time.sleep(0.05)
    rest.create(namespace, "later")
    config = rest.ok("GET", "/v1/config", params={"warehouse": f"main@{moment}"})
    assert rest.at(config["overrides"]["prefix"]).tables(namespace) == ["t"]
    assert rest.at(f"main@{moment}").tables(namespace) == ["t"]
    before = rest.ok("GET", "/v1/config", params={"warehouse": "main@2001-01-01T00:00:00Z"})
    assert before["overrides"]["prefix"] == "main@0"
    assert rest.ok("GET", rest.at("main@0").path("namespaces"))["namespaces"] == []
    for wrong in (f"main@{rest.head() + 1000}", "main@2999-01-01T00:00:00Z"):
        assert rest.call("GET", "/v1/config", params={"warehouse": wrong}).status_code == 404


def test_a_past_version_is_rebuilt_when_its_file_is_gone(stack: Stack, rest: Rest) -> None:
    namespace = rest.fresh_namespace()
    properties = {
        "write.metadata.delete-after-commit.enabled": "true",
        "write.metadata.previous-versions-max": "1",
    }
    rest.create(namespace, "t", properties=properties)
    then = rest.append(namespace, "t")
    number = rest.head()
    for _ in range(3):
        rest.append(namespace, "t")
    if stack.s3 is None:
        assert not Path(then["metadata-location"].removeprefix("file://")).exists()
    found = rest.at(f"main@{number}").load(namespace, "t")
    assert found["metadata"]["current-snapshot-id"] == then["metadata"]["current-snapshot-id"]
    assert found["metadata"]["snapshots"] == then["metadata"]["snapshots"]
    assert found["metadata"]["snapshot-log"] == then["metadata"]["snapshot-log"]
    newest = rest.load(namespace, "t")["metadata"]
    gone = {"action": "remove-snapshots", "snapshot-ids": [then["metadata"]["current-snapshot-id"]]}
    assert rest.commit(namespace, "t", {"requirements": [], "updates": [gone]}).status_code == 200
    assert newest["current-snapshot-id"] != then["metadata"]["current-snapshot-id"]


def test_random_histories_read_back_as_a_model(rest: Rest) -> None:
    """Creates, appends, renames, drops and re-creates; then every number means what the model says."""
    chance = random.Random(20261116)
    namespace = rest.fresh_namespace()
    model: dict[str, str] = {}  # name -> metadata location
    moments: dict[int, dict[str, str]] = {}
    for _ in range(60):
        choice = chance.choice(["create", "append", "append", "rename", "drop"])
        free = [name for name in "abcdef" if name not in model]
        if choice == "create" and free:
            name = chance.choice(free)
            model[name] = rest.create(namespace, name)["metadata-location"]
        elif choice == "append" and model:
            name = chance.choice(sorted(model))
            model[name] = rest.append(namespace, name)["metadata-location"]
        elif choice == "rename" and model and free:
            old, new = chance.choice(sorted(model)), chance.choice(free)
            source, target = ({"namespace": [namespace], "name": name} for name in (old, new))
            rest.ok("POST", rest.path("tables/rename"), json={"source": source, "destination": target})
            model[new] = model.pop(old)
        elif choice == "drop" and model:
            name = chance.choice(sorted(model))
            rest.call("DELETE", rest.table_path(namespace, name))
            del model[name]
        moments[rest.head()] = dict(model)
    for number, names in moments.items():
        past = rest.at(f"main@{number}")
        assert past.tables(namespace) == sorted(names)
        for name, location in names.items():
            assert past.load(namespace, name)["metadata-location"] == location


def test_a_dropped_table_comes_back(rest: Rest) -> None:
    namespace = rest.fresh_namespace()
    rest.create(namespace, "t")
    last = rest.append(namespace, "t")
    rest.call("DELETE", rest.table_path(namespace, "t"))
    dropped = rest.lake("GET", "main/dropped").json()["dropped"]
    found = next(entry for entry in dropped if entry["namespace"] == [namespace])
    assert (found["kind"], found["name"]) == ("table", "t")
    rest.create(namespace, "t")
    clash = rest.lake("POST", f"main/dropped/{found['id']}/undrop")
    assert clash.status_code == 409
    target = {"namespace": [namespace], "name": "back"}
    assert rest.lake("POST", f"main/dropped/{found['id']}/undrop", json=target).status_code == 200
    assert rest.load(namespace, "back") == last
    rest.append(namespace, "back")
    assert rest.lake("POST", f"main/dropped/{found['id']}/undrop").status_code == 404


def test_a_location_is_free_after_a_drop_and_undrop_claims_it_again(rest: Rest) -> None:
    namespace = rest.fresh_namespace()
    location = rest.create(namespace, "t")["metadata"]["location"]
    body = {"name": "u", "schema": SCHEMA, "location": location}
    taken = rest.call("POST", rest.namespace_path(namespace, "tables"), json=body)
    assert taken.status_code == 400
    rest.call("DELETE", rest.table_path(namespace, "t"))
    rest.create(namespace, "u", location=location)
    dropped = rest.lake("GET", "main/dropped").json()["dropped"]
    found = next(entry for entry in dropped if entry["namespace"] == [namespace])
    assert rest.lake("POST", f"main/dropped/{found['id']}/undrop").status_code == 400
    rest.call("DELETE", rest.table_path(namespace, "u"), params={"purgeRequested": "true"})
    assert rest.lake("POST", f"main/dropped/{found['id']}/undrop").status_code == 200
    rest.append(namespace, "t")


def test_a_protected_table_cannot_be_dropped(rest: Rest) -> None:
    namespace = rest.fresh_namespace()
    made = rest.create(namespace, "t")
    flag = f"main/namespaces/{namespace}/tables/t/protection"
    assert rest.lake("PUT", flag, json={"protected": True}).json() == {"protected": True}
    assert rest.lake("GET", flag).json() == {"protected": True}
    register = {"name": "t", "metadata-location": made["metadata-location"], "overwrite": True}
    answers = [
        rest.call("DELETE", rest.table_path(namespace, "t")),
        rest.call("DELETE", rest.table_path(namespace, "t"), params={"purgeRequested": "true"}),
        rest.call("POST", rest.table_path(namespace, "t", "unregister")),
        rest.call("POST", rest.namespace_path(namespace, "register"), json=register),
    ]
    assert [answer.status_code for answer in answers] == [409] * 4
    rest.append(namespace, "t")
    rest.lake("PUT", flag, json={"protected": False})
    assert rest.call("DELETE", rest.table_path(namespace, "t")).status_code == 204


def test_a_protected_table_cannot_be_dropped_in_a_transaction(rest: Rest) -> None:
    namespace = rest.fresh_namespace()
    made = rest.create(namespace, "t")
    name = f"t-{namespace}"
    inside = rest.open_transaction(name)
    flag = f"main/namespaces/{namespace}/tables/t/protection"
    rest.lake("PUT", flag, json={"protected": True})
    outside = rest.call("DELETE", rest.table_path(namespace, "t")).json()
    source, target = ({"namespace": [namespace], "name": name} for name in ("t", "u"))
    for table in ("t", "u"):
        register = {"name": table, "metadata-location": made["metadata-location"], "overwrite": True}
        answers = [
            inside.call("DELETE", inside.table_path(namespace, table)),
            inside.call("DELETE", inside.table_path(namespace, table), params={"purgeRequested": "true"}),
            inside.call("POST", inside.table_path(namespace, table, "unregister")),
            inside.call("POST", inside.namespace_path(namespace, "register"), json=register),
        ]
        assert [answer.status_code for answer in answers] == [409] * 4
        if table == "t":  # and the same under another name, which a protected table may have
            assert answers[0].json() == outside
            rename = {"source": source, "destination": target}
            inside.ok("POST", inside.path("tables/rename"), json=rename)
    assert rest.publish(name).status_code == 200
    assert rest.tables(namespace) == ["u"]


def test_a_table_that_is_protected_after_it_was_dropped_in_a_transaction_stays(rest: Rest) -> None:
    namespace = rest.fresh_namespace()
    rest.create(namespace, "t")
    name = f"t-{namespace}"
    inside = rest.open_transaction(name)
    assert inside.call("DELETE", inside.table_path(namespace, "t")).status_code == 204
    flag = f"main/namespaces/{namespace}/tables/t/protection"
    rest.lake("PUT", flag, json={"protected": True})
    refused = rest.publish(name)
    assert refused.status_code == 409
    assert f"{namespace}.t, which is protected" in refused.json()["error"]["message"]
    assert rest.tables(namespace) == ["t"]
    rest.lake("PUT", flag, json={"protected": False})
    assert rest.publish(name).status_code == 200
    assert rest.tables(namespace) == []


FORGETFUL = {
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "1",
}
REBUILT_ALIKE = ("properties", "snapshots", "snapshot-log", "refs", "current-snapshot-id", "last-updated-ms")


@pytest.fixture
def forgetful(stacks: Stacks, tmp_path: Path) -> Iterator[Rest]:
    """A server that remembers no document, so that it has to rebuild what it wrote a moment ago."""
    with stacks.started("embedded", tmp_path, {"CALVE_DOCUMENT_CACHE_BYTES_MAX": "0"}) as stack:
        yield Rest(stack.url)


def test_a_rebuilt_version_has_the_properties_of_then(forgetful: Rest) -> None:
    rest = forgetful
    namespace = rest.fresh_namespace()
    rest.create(namespace, "t", properties={**FORGETFUL, "word": "first"})
    then, at = rest.append(namespace, "t"), rest.head()
    change = {"requirements": [], "updates": [{"action": "set-properties", "updates": {"word": "second"}}]}
    assert rest.commit(namespace, "t", change).status_code == 200
    for _ in range(3):
        rest.append(namespace, "t")
    past = rest.at(f"main@{at}").load(namespace, "t")
    assert {key: past["metadata"][key] for key in REBUILT_ALIKE} == {
        key: then["metadata"][key] for key in REBUILT_ALIKE
    }


def test_a_rebuilt_version_of_a_transaction_is_the_one_that_was_published(forgetful: Rest) -> None:
    """Its times are those of the publish; what moved outside is in it; what came and went inside is not."""
    rest = forgetful
    namespace = rest.fresh_namespace()
    rest.create(namespace, "t", properties=FORGETFUL)
    rest.append(namespace, "t")
    name = f"w-{random.randrange(2**40):x}"
    inside = rest.open_transaction(name)
    first = inside.append(namespace, "t")["metadata"]["current-snapshot-id"]
    tag = {"action": "set-snapshot-ref", "ref-name": "tagged", "type": "tag", "snapshot-id": first}
    for update in (tag, {"action": "remove-snapshot-ref", "ref-name": "tagged"}):
        assert inside.commit(namespace, "t", {"requirements": [], "updates": [update]}).status_code == 200
    outside = {"action": "set-properties", "updates": {"from": "outside"}}
    assert rest.commit(namespace, "t", {"requirements": [], "updates": [outside]}).status_code == 200
    time.sleep(0.01)
    assert rest.publish(name).status_code == 200
    then, at = rest.load(namespace, "t"), rest.head()
    for _ in range(3):
        rest.append(namespace, "t")
    past = rest.at(f"main@{at}").load(namespace, "t")
    assert {key: past["metadata"][key] for key in REBUILT_ALIKE} == {
        key: then["metadata"][key] for key in REBUILT_ALIKE
    }
