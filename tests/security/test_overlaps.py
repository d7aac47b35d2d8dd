"""No two tables share a place: not by asking, by a race, with a dropped one, or by a uuid."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from catalog.locations import Location
from tests.harness.rest import SCHEMA, Rest
from tests.harness.stacks import Stack
from tests.security.answers import assert_error
from tests.security.entry_points import Lake
from tests.security.races import at_once
from tests.security.recorded_server import RecordedServer


def _create(rest: Rest, namespace: str, name: str, location: str, **more: Any) -> httpx.Response:
    body = {"name": name, "schema": SCHEMA, "location": location, **more}
    return rest.call("POST", rest.namespace_path(namespace, "tables"), json=body)


def _place(lake: Lake) -> str:
    return f"{lake.root}/own/{uuid.uuid4().hex}"


# How a second place may lie to a first one, and whether both may be.
RELATIONS: dict[str, tuple[Callable[[str], str], bool]] = {
    "the same": (lambda place: place, False),
    "the same with a slash": (lambda place: place + "/", False),
    "the same by a shorter scheme": (lambda place: place.replace("file:///", "file:/"), False),
    "the same as a path": (lambda place: place.removeprefix("file://"), False),
    "below": (lambda place: f"{place}/data/x", False),
    "60 levels below": (lambda place: place + "/x" * 60, False),
    "200 levels below": (lambda place: place + "/x" * 200, False),
    "above": (lambda place: place.rsplit("/", 1)[0], False),
    "beside": (lambda place: f"{place}-2", True),
    "beside, shorter": (lambda place: place[:-1], True),
}


@pytest.mark.parametrize("relation", RELATIONS)
def test_a_place_that_overlaps_another_is_refused_on_every_way(recorded: Lake, relation: str) -> None:
    related, both = RELATIONS[relation]
    rest, namespace = recorded.rest, recorded.namespace

    def pair() -> str:
        place = f"{recorded.root}/own{uuid.uuid4().hex}/place"
        assert _create(rest, namespace, recorded.fresh(), place).is_success
        return str(related(place))

    ways: dict[str, Callable[[str], httpx.Response]] = {
        "create": lambda place: recorded.create(location=place),
        "stage": lambda place: recorded.create(location=place, **{"stage-create": True}),
        "staged commit": lambda place: recorded.commit_staged(location=place),
        "set-location": lambda place: recorded.commit({"action": "set-location", "location": place}),
        "write.data.path": lambda place: recorded.create(properties={"write.data.path": place}),
        "write.metadata.path": lambda place: recorded.create(properties={"write.metadata.path": place}),
        "calve.archive.path": lambda place: recorded.create(properties={"calve.archive.path": place}),
        "register": lambda place: recorded.register(recorded.plant(recorded.document(location=place))),
        "view": lambda place: rest.call(
            "POST", recorded.views, json=recorded.view_body(recorded.fresh(), location=place)
        ),
    }
    wrong = {}
    for label, way in ways.items():
        answer = way(pair())
        if answer.is_success != both or answer.status_code >= 500:
            wrong[label] = (answer.status_code, answer.text[:200])
    assert not wrong


@pytest.mark.parametrize("way", ["create", "staged commit", "set-location", "write.metadata.path"])
def test_an_overlap_is_found_before_anything_is_written(recorded: Lake, way: str) -> None:
    place = _place(recorded)
    assert recorded.create(location=place).is_success
    below = f"{place}/x"
    mark = recorded.server.files.mark()
    answer = {
        "create": lambda: recorded.create(location=below),
        "staged commit": lambda: recorded.commit_staged(location=below),
        "set-location": lambda: recorded.commit({"action": "set-location", "location": below}),
        "write.metadata.path": lambda: recorded.commit(
            {"action": "set-properties", "updates": {"write.metadata.path": below}}
        ),
    }[way]()
    assert_error(answer, 400, 409)
    assert recorded.server.files.calls_since(mark) == []


def _dropped(rest: Rest, name: str) -> str:
    listed = rest.lake("GET", "main/dropped").json()["dropped"]
    found: str = next(entry["id"] for entry in listed if entry["name"] == name)
    return found


def test_a_dropped_table_does_not_come_back_into_a_place_that_is_taken(recorded: Lake) -> None:
    """Clients make tables again where dropped ones were, so a dropped table holds no place."""
    rest, namespace, place = recorded.rest, recorded.namespace, _place(recorded)
    assert _create(rest, namespace, "dropped", place).is_success
    assert rest.call("DELETE", rest.table_path(namespace, "dropped")).status_code == 204
    assert _create(rest, namespace, "heir", f"{place}/x").is_success
    undrop = f"main/dropped/{_dropped(rest, 'dropped')}/undrop"
    assert_error(rest.lake("POST", undrop), 400, 409)
    assert "dropped" not in rest.tables(namespace)
    purged = rest.call("DELETE", rest.table_path(namespace, "heir"), params={"purgeRequested": "true"})
    assert purged.status_code == 204
    assert rest.lake("POST", undrop).status_code == 200


def test_a_table_that_came_back_holds_its_place_again(recorded: Lake) -> None:
    rest, namespace, place = recorded.rest, recorded.namespace, _place(recorded)
    assert _create(rest, namespace, "back", place).is_success
    assert rest.call("DELETE", rest.table_path(namespace, "back")).status_code == 204
    assert rest.lake("POST", f"main/dropped/{_dropped(rest, 'back')}/undrop").status_code == 200
    assert_error(_create(rest, namespace, "thief", f"{place}/x"), 400, 409)


def test_a_table_cannot_take_the_whole_warehouse(tmp_path_factory: pytest.TempPathFactory) -> None:
    """In an empty warehouse nothing would overlap, and nobody could make a table there ever after."""
    with RecordedServer.started(tmp_path_factory.mktemp("empty"), "file:///lake/empty") as server:
        rest = Rest(server.url)
        namespace = rest.fresh_namespace()
        assert_error(_create(rest, namespace, "all", server.root), 400)
        rest.create(namespace, "t")


def test_a_known_uuid_does_not_open_the_place_of_another_table(recorded: Lake) -> None:
    """Places belong to a uuid, and a client that commits a staged table chooses its uuid."""
    rest, namespace = recorded.rest, recorded.namespace
    victim = rest.create(namespace, recorded.fresh())["metadata"]
    body = {
        "requirements": [{"type": "assert-create"}],
        "updates": [
            {"action": "assign-uuid", "uuid": victim["table-uuid"]},
            {"action": "upgrade-format-version", "format-version": 2},
            {"action": "add-schema", "schema": SCHEMA, "last-column-id": 2},
            {"action": "set-current-schema", "schema-id": -1},
            {"action": "add-spec", "spec": {"spec-id": 0, "fields": []}},
            {"action": "set-default-spec", "spec-id": -1},
            {"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": []}},
            {"action": "set-default-sort-order", "sort-order-id": -1},
            {"action": "set-location", "location": victim["location"]},
        ],
    }
    assert_error(rest.commit(namespace, recorded.fresh(), body), 400, 409)


def test_a_live_table_cannot_be_registered_under_a_second_name(recorded: Lake) -> None:
    """Two names for one place: a purge of the one would take the files of the other."""
    rest, namespace, name = recorded.rest, recorded.namespace, recorded.fresh()
    made = rest.create(namespace, name)
    second = recorded.register(made["metadata-location"])
    assert_error(second, 400, 409)
    # It is allowed to come back under another name once the first is gone.
    assert rest.call("DELETE", rest.table_path(namespace, name)).status_code == 204
    assert recorded.register(made["metadata-location"]).is_success


def test_a_commit_deletes_no_file_of_another_table(recorded: Lake) -> None:
    """A registered log may name any file of the warehouse; only the table's own may be taken for outdated."""
    rest, namespace, name = recorded.rest, recorded.namespace, recorded.fresh()
    victim = rest.create(namespace, recorded.fresh())
    log = [{"metadata-file": victim["metadata-location"], "timestamp-ms": 1}]
    properties = {
        "write.metadata.delete-after-commit.enabled": "true",
        "write.metadata.previous-versions-max": "1",
    }
    planted = recorded.plant(recorded.document(metadata_log=log, properties=properties))
    body = {"name": name, "metadata-location": planted}
    rest.call("POST", rest.namespace_path(namespace, "register"), json=body)
    for number in range(3):
        recorded.commit({"action": "set-properties", "updates": {"n": str(number)}}, table=name)
    assert Location.parse_file(victim["metadata-location"]).canonical in recorded.server.files.held


def test_a_file_registered_again_is_read_again(recorded: Lake) -> None:
    """Files of others may change under their name, so nothing that was read before may answer for them."""
    rest, namespace, name = recorded.rest, recorded.namespace, recorded.fresh()
    document = recorded.document(properties={"turn": "1"})
    place = recorded.plant(document)
    body = {"name": name, "metadata-location": place}
    path = rest.namespace_path(namespace, "register")
    assert rest.call("POST", path, json=body).is_success
    assert rest.load(namespace, name)["metadata"]["properties"]["turn"] == "1"
    rest.ok("POST", rest.table_path(namespace, name, "unregister"))
    recorded.plant(document | {"properties": {"turn": "2"}}, place)
    assert rest.call("POST", path, json=body).is_success
    assert rest.load(namespace, name)["metadata"]["properties"]["turn"] == "2"
    done = recorded.commit({"action": "set-properties", "updates": {"more": "x"}}, table=name)
    assert done.json()["metadata"]["properties"] == {"turn": "2", "more": "x"}


@pytest.mark.parametrize("below", ["", "/below"])
def test_of_racing_creates_in_one_place_one_succeeds(crowded: Stack, below: str) -> None:
    rest = Rest(crowded.url)
    namespace = rest.fresh_namespace()
    place = f"{crowded.warehouse_root}/raced-{uuid.uuid4().hex}"

    def create(number: int) -> httpx.Response:
        return _create(Rest(crowded.url), namespace, f"t{number}", place + below * (number % 2))

    answers = at_once(12, create)
    assert [a.status_code for a in answers].count(200) == 1, [a.text for a in answers]
    for answer in answers:
        if answer.status_code != 200:
            assert_error(answer, 400, 409)
    assert len(rest.tables(namespace)) == 1


def test_roots_of_warehouses_never_overlap(recorded: Lake) -> None:
    rest = recorded.rest
    root = f"file:///lake/tenant-{uuid.uuid4().hex}"
    name = f"w{uuid.uuid4().hex}"
    assert rest.lake("POST", "warehouses", json={"name": name, "root": root}).status_code == 200
    wrong = {}
    for label, place in {
        "the same": root,
        "the same with a slash": root + "/",
        "below": f"{root}/x",
        "above": "file:///lake",
        "main itself": recorded.root,
        "below main": f"{recorded.root}/{recorded.namespace}",
        "main by another form": recorded.root.replace("file:///", "file:/"),
    }.items():
        mark = recorded.server.files.mark()
        answer = rest.lake("POST", "warehouses", json={"name": f"w{uuid.uuid4().hex}", "root": place})
        asked = recorded.server.files.calls_since(mark)
        if answer.status_code not in (400, 409) or asked:
            wrong[label] = (answer.status_code, answer.text, asked)
    assert not wrong
    beside = {"name": f"w{uuid.uuid4().hex}", "root": f"{root}-2"}
    assert rest.lake("POST", "warehouses", json=beside).status_code == 200


def test_a_warehouse_of_a_known_name_is_refused_before_storage_is_asked(recorded: Lake) -> None:
    mark = recorded.server.files.mark()
    body = {"name": "main", "root": f"file:///lake/again-{uuid.uuid4().hex}"}
    assert_error(recorded.rest.lake("POST", "warehouses", json=body), 409)
    assert recorded.server.files.calls_since(mark) == []


def test_a_new_warehouse_inherits_nothing_from_an_old_one_of_its_name(recorded: Lake) -> None:
    """Tenants come and go, and names come back."""
    admin, name = recorded.rest, f"w{uuid.uuid4().hex}"
    made = admin.lake("POST", "warehouses", json={"name": name, "root": f"file:///lake/first-{name}"})
    assert made.status_code == 200
    first = admin.at(name)
    namespace = first.fresh_namespace()
    first.create(namespace, "secret")
    assert first.lake("POST", f"{name}/transactions", json={"name": "held"}).status_code == 200
    first.at(f"{name}~held").create(namespace, "held_back")
    report = {"report-type": "scan-report", "table-name": "secret"}
    assert (
        first.call("POST", first.table_path(namespace, "secret", "metrics"), json=report).status_code == 204
    )
    assert first.call("DELETE", first.table_path(namespace, "secret")).status_code == 204
    assert first.call("DELETE", first.namespace_path(namespace)).status_code == 204
    assert admin.lake("DELETE", f"warehouses/{name}").status_code == 204
    again = admin.lake("POST", "warehouses", json={"name": name, "root": f"file:///lake/second-{name}"})
    assert again.status_code == 200
    seen = {
        "dropped": admin.lake("GET", f"{name}/dropped").json()["dropped"],
        "transactions": admin.lake("GET", f"{name}/transactions").json()["transactions"],
        "events": admin.lake("GET", f"{name}/events").json()["events"],
        "held back": admin.at(f"{name}~held").call("GET", f"/v1/{name}~held/namespaces").status_code,
    }
    assert seen == {"dropped": [], "transactions": [], "events": [], "held back": 404}
