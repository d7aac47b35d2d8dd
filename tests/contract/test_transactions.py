"""Open transactions: nothing is visible before the publish, everything after; a late writer never gets in."""

from __future__ import annotations

import time
import uuid

import pytest

from tests.harness.rest import Rest, append_body
from tests.harness.stacks import Stack


@pytest.fixture
def rest(stack: Stack) -> Rest:
    return Rest(stack.url)


@pytest.fixture
def name() -> str:
    return f"w-{uuid.uuid4().hex[:8]}"


def test_everything_is_published_at_once(rest: Rest, name: str) -> None:
    namespace = rest.fresh_namespace()
    rest.create(namespace, "old")
    rest.append(namespace, "old")
    rest.create(namespace, "away")
    head = rest.head()
    inside = rest.open_transaction(name)
    inside.create(namespace, "new")
    inside.append(namespace, "new")
    inside.append(namespace, "old")
    last = inside.append(namespace, "old")
    inside.call("DELETE", inside.table_path(namespace, "away"))
    inside.ok("POST", inside.path("namespaces"), json={"namespace": [namespace, "sub"]})
    inside.create([namespace, "sub"], "deep")
    assert inside.tables(namespace) == ["new", "old"]
    assert rest.tables(namespace) == ["away", "old"]
    assert rest.head() == head
    shown = rest.lake("GET", f"main/transactions/{name}").json()
    assert {(touched["name"], touched["operation"]) for touched in shown["touched"]} == {
        ("new", "create-table"),
        ("old", "update-table"),
        ("away", "drop-table"),
        (None, "create-namespace"),
        ("deep", "create-table"),
    }

    answer = rest.publish(name)
    assert answer.status_code == 200, answer.text
    assert answer.json()["number"] == rest.head() == head + 1
    assert rest.tables(namespace) == ["new", "old"]
    assert rest.tables([namespace, "sub"]) == ["deep"]
    published = rest.load(namespace, "old")["metadata"]
    assert published["snapshots"] == last["metadata"]["snapshots"]
    assert published["snapshot-log"][-1]["timestamp-ms"] == published["last-updated-ms"]
    assert published["last-updated-ms"] == rest.load(namespace, "new")["metadata"]["last-updated-ms"]
    assert rest.publish(name).json()["number"] == head + 1
    assert any(entry["name"] == "away" for entry in rest.lake("GET", "main/dropped").json()["dropped"])


def test_intermediate_snapshots_are_in_no_log(rest: Rest, name: str) -> None:
    namespace = rest.fresh_namespace()
    rest.create(namespace, "t")
    before = rest.append(namespace, "t")
    inside = rest.open_transaction(name)
    inside.append(namespace, "t")
    inside.append(namespace, "t")
    last = inside.append(namespace, "t")
    rest.publish(name)
    metadata = rest.load(namespace, "t")["metadata"]
    assert [entry["snapshot-id"] for entry in metadata["snapshot-log"]] == [
        before["metadata"]["current-snapshot-id"],
        last["metadata"]["current-snapshot-id"],
    ]
    assert metadata["metadata-log"][-1]["metadata-file"] == before["metadata-location"]
    assert len(metadata["snapshots"]) == 4


def test_the_first_to_publish_wins_and_the_other_learns_which_table_moved(rest: Rest, name: str) -> None:
    namespace = rest.fresh_namespace()
    for table in ("t", "u"):
        rest.create(namespace, table)
    inside = rest.open_transaction(name)
    for table in ("t", "u"):
        inside.append(namespace, table)
    rest.append(namespace, "t")
    answer = rest.publish(name)
    assert answer.status_code == 409
    assert f"{namespace}.t" in answer.json()["error"]["message"]
    assert f"{namespace}.u" not in answer.json()["error"]["message"]
    assert rest.load(namespace, "u")["metadata"]["snapshots"] == []
    assert rest.lake("DELETE", f"main/transactions/{name}").status_code == 204


def test_changes_that_commute_are_carried_over(rest: Rest, name: str) -> None:
    namespace = rest.fresh_namespace()
    rest.create(namespace, "t")
    inside = rest.open_transaction(name)
    added = inside.append(namespace, "t")["metadata"]["current-snapshot-id"]
    properties = {"requirements": [], "updates": [{"action": "set-properties", "updates": {"owner": "me"}}]}
    assert rest.commit(namespace, "t", properties).status_code == 200
    assert rest.publish(name).status_code == 200
    metadata = rest.load(namespace, "t")["metadata"]
    assert metadata["current-snapshot-id"] == added
    assert metadata["properties"]["owner"] == "me"


def test_readers_inside_see_the_moment_it_was_opened(rest: Rest, name: str) -> None:
    namespace = rest.fresh_namespace()
    rest.create(namespace, "t")
    inside = rest.open_transaction(name)
    rest.append(namespace, "t")
    rest.create(namespace, "later")
    assert inside.tables(namespace) == ["t"]
    assert inside.load(namespace, "t")["metadata"]["snapshots"] == []
    rest.lake("DELETE", f"main/transactions/{name}")


def test_renames_inside_keep_the_log_of_the_table(rest: Rest, name: str) -> None:
    namespace = rest.fresh_namespace()
    rest.create(namespace, "t")
    before = rest.append(namespace, "t")
    inside = rest.open_transaction(name)
    source, target = ({"namespace": [namespace], "name": table} for table in ("t", "u"))
    inside.ok("POST", inside.path("tables/rename"), json={"source": source, "destination": target})
    inside.append(namespace, "u")
    last = inside.append(namespace, "u")
    assert rest.publish(name).status_code == 200
    assert rest.tables(namespace) == ["u"]
    log = rest.load(namespace, "u")["metadata"]["snapshot-log"]
    assert [entry["snapshot-id"] for entry in log] == [
        before["metadata"]["current-snapshot-id"],
        last["metadata"]["current-snapshot-id"],
    ]


@pytest.mark.parametrize(
    ("renames", "becomes"),
    [
        (["t>u", "u>t"], {"t": "t"}),
        (["t>u", "u>v", "v>t"], {"t": "t"}),
        (["t>x", "s>t", "x>s"], {"t": "s", "s": "t"}),
    ],
)
def test_names_that_are_reused_or_renamed(
    rest: Rest, name: str, renames: list[str], becomes: dict[str, str]
) -> None:
    namespace = rest.fresh_namespace()
    before = {}
    for table in set(becomes):
        rest.create(namespace, table)
        before[table] = rest.append(namespace, table)["metadata"]
    inside = rest.open_transaction(name)
    for step in renames:
        source, target = ({"namespace": [namespace], "name": table} for table in step.split(">"))
        inside.ok("POST", inside.path("tables/rename"), json={"source": source, "destination": target})
    added = {table: inside.append(namespace, table)["metadata"] for table in becomes}
    assert rest.publish(name).status_code == 200
    for table, was in becomes.items():
        metadata = rest.load(namespace, table)["metadata"]
        assert metadata["table-uuid"] == before[was]["table-uuid"]
        assert [entry["snapshot-id"] for entry in metadata["snapshot-log"]] == [
            before[was]["current-snapshot-id"],
            added[table]["current-snapshot-id"],
        ]


def test_a_name_is_open_once_and_may_be_used_again(rest: Rest, name: str) -> None:
    namespace = rest.fresh_namespace()
    rest.create(namespace, "t")
    rest.open_transaction(name)
    clash = rest.lake("POST", "main/transactions", json={"name": name})
    assert clash.status_code == 409
    assert rest.publish(name).json() == {"number": None, "touched": []}
    inside = rest.open_transaction(name)
    inside.append(namespace, "t")
    assert rest.publish(name).json()["number"] == rest.head()


def test_an_aborted_transaction_accepts_no_commit(rest: Rest, name: str) -> None:
    namespace = rest.fresh_namespace()
    made = rest.create(namespace, "t")
    inside = rest.open_transaction(name)
    rest.lake("DELETE", f"main/transactions/{name}")
    late = inside.commit(namespace, "t", append_body(made["metadata"]))
    assert (late.status_code, late.json()["error"]["type"]) == (409, "CommitFailedException")
    assert inside.call("GET", inside.table_path(namespace, "t")).status_code == 404
    assert rest.publish(name).status_code == 409
    assert rest.load(namespace, "t")["metadata"]["snapshots"] == []


def test_an_expired_transaction_publishes_nothing(rest: Rest, name: str) -> None:
    namespace = rest.fresh_namespace()
    made = rest.create(namespace, "t")
    inside = rest.open_transaction(name, **{"ttl-s": 1})
    inside.append(namespace, "t")
    time.sleep(1.2)
    assert inside.commit(namespace, "t", append_body(made["metadata"])).status_code == 409
    assert rest.publish(name).status_code == 409
    assert rest.lake("GET", f"main/transactions/{name}").json()["state"] == "expired"
    assert rest.load(namespace, "t")["metadata"]["snapshots"] == []
    again = rest.open_transaction(name)
    assert again.load(namespace, "t")["metadata"]["snapshots"] == []
    assert rest.lake("POST", f"main/transactions/{name}/extend", json={"ttl-s": 60}).status_code == 200


def test_an_unknown_transaction_is_not_there(rest: Rest) -> None:
    assert rest.call("GET", rest.at("main~nobody").path("namespaces")).status_code == 404
    assert rest.call("GET", "/v1/config", params={"warehouse": "main~nobody"}).status_code == 404
    assert rest.publish("nobody").status_code == 404


def test_properties_of_a_namespace_are_those_of_its_own_transaction(rest: Rest, name: str) -> None:
    """Also where two transactions begin at the same version of it."""
    namespace = rest.fresh_namespace()
    path = rest.namespace_path(namespace)
    for word in ("first", "second"):
        inside = rest.open_transaction(f"{name}-{word}")
        inside.ok("POST", inside.namespace_path(namespace, "properties"), json={"updates": {"word": word}})
        for _ in range(2):
            found = inside.ok("GET", inside.namespace_path(namespace))["properties"]
            assert found["word"] == word
        assert "word" not in rest.ok("GET", path)["properties"]
        assert rest.lake("DELETE", f"main/transactions/{name}-{word}").status_code == 204
