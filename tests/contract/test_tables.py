"""Tables over HTTP: create, load, list, rename, drop, register, purge; names, ETags and pages."""

from __future__ import annotations

import uuid

import pytest

from tests.harness.rest import SCHEMA, Rest, append_body
from tests.harness.stacks import Stack


@pytest.fixture
def rest(stack: Stack) -> Rest:
    return Rest(stack.url)


def test_a_table_is_made_loaded_renamed_and_dropped(rest: Rest) -> None:
    namespace = rest.fresh_namespace()
    made = rest.create(namespace, "t")
    assert rest.load(namespace, "t") == made
    assert rest.call("HEAD", rest.table_path(namespace, "t")).status_code == 204
    source = {"namespace": [namespace], "name": "t"}
    target = {"namespace": [namespace], "name": "u"}
    rest.ok("POST", rest.path("tables/rename"), json={"source": source, "destination": target})
    assert rest.tables(namespace) == ["u"]
    assert rest.load(namespace, "u")["metadata"]["table-uuid"] == made["metadata"]["table-uuid"]
    assert rest.call("DELETE", rest.table_path(namespace, "u")).status_code == 204
    assert rest.tables(namespace) == []


@pytest.mark.parametrize(
    "name", ["a.b", "a b", "a/b", "a+b", "a%b", "a%2Fb", "ü中🧊", "'\"`", "*", "$x", "SELECT", "a\\b"]
)
def test_any_name_works(rest: Rest, name: str) -> None:
    namespace = rest.fresh_namespace()
    rest.create(namespace, name)
    assert rest.tables(namespace) == [name]
    assert rest.load(namespace, name)["metadata"]["schemas"][0]["fields"][0]["name"] == "id"
    assert rest.append(namespace, name)["metadata"]["snapshots"]


def test_nested_namespaces_are_listed_level_by_level(rest: Rest) -> None:
    top = rest.fresh_namespace()
    for levels in ([top, "a.b"], [top, "a.b", "c/d"], [top, "z"]):
        rest.ok("POST", rest.path("namespaces"), json={"namespace": levels})
    listed = rest.ok("GET", rest.path("namespaces"), params={"parent": top})["namespaces"]
    assert listed == [[top, "a.b"], [top, "z"]]
    below = rest.ok("GET", rest.path(f"namespaces?parent={top}%1Fa.b"))["namespaces"]
    assert below == [[top, "a.b", "c/d"]]
    rest.create([top, "a.b", "c/d"], "t")
    assert rest.tables([top, "a.b", "c/d"]) == ["t"]
    answer = rest.call("DELETE", rest.namespace_path([top, "a.b"]))
    assert answer.status_code == 409
    assert answer.json()["error"]["type"] == "NamespaceNotEmptyException"
    answer = rest.call("POST", rest.path("namespaces"), json={"namespace": [top, "no", "child"]})
    assert answer.status_code == 404


def test_not_modified_is_answered_for_the_same_version_and_shape_only(rest: Rest) -> None:
    namespace = rest.fresh_namespace()
    rest.create(namespace, "t")
    path = rest.table_path(namespace, "t")
    tag = rest.call("GET", path).headers["etag"]
    assert rest.call("GET", path, headers={"if-none-match": tag}).status_code == 304
    refs = rest.call("GET", path, params={"snapshots": "refs"})
    assert refs.headers["etag"] != tag
    assert (
        rest.call("GET", path, params={"snapshots": "refs"}, headers={"if-none-match": tag}).status_code
        == 200
    )
    metadata = rest.load(namespace, "t")["metadata"]
    committed = rest.commit(namespace, "t", append_body(metadata))
    assert rest.call("GET", path, headers={"if-none-match": tag}).status_code == 200
    assert rest.call("GET", path).headers["etag"] == committed.headers["etag"] != tag


def test_refs_only_hides_snapshots_that_no_ref_names(rest: Rest) -> None:
    namespace = rest.fresh_namespace()
    rest.create(namespace, "t")
    rest.append(namespace, "t")
    last = rest.append(namespace, "t")["metadata"]
    refs = rest.load(namespace, "t", snapshots="refs")["metadata"]
    assert [s["snapshot-id"] for s in refs["snapshots"]] == [last["current-snapshot-id"]]
    assert refs["snapshot-log"] == last["snapshot-log"]
    assert len(rest.load(namespace, "t")["metadata"]["snapshots"]) == 2


def test_pages_hold_every_name_once_and_tokens_belong_to_their_list(rest: Rest) -> None:
    namespace = rest.fresh_namespace()
    names = sorted(f"t{number:02d}" for number in range(7))
    for name in names:
        rest.create(namespace, name)
    path = rest.namespace_path(namespace, "tables")
    found: list[str] = []
    token: str | None = ""
    pages = 0
    while token is not None:
        page = rest.ok("GET", path, params={"pageToken": token, "pageSize": "3"})
        found += [identifier["name"] for identifier in page["identifiers"]]
        token = page["next-page-token"]
        pages += 1
        if pages == 1:
            other = rest.fresh_namespace()
            answer = rest.call("GET", rest.namespace_path(other, "tables"), params={"pageToken": token})
            assert answer.status_code == 400
    assert found == names
    assert pages == 3
    assert rest.ok("GET", path)["next-page-token"] is None
    assert rest.call("GET", path, params={"pageToken": "", "pageSize": "0"}).status_code == 400


def test_a_registered_table_comes_back_as_it_was(rest: Rest) -> None:
    namespace = rest.fresh_namespace()
    rest.create(namespace, "t")
    last = rest.append(namespace, "t")
    rest.call("DELETE", rest.table_path(namespace, "t"))
    body = {"name": "u", "metadata-location": last["metadata-location"]}
    back = rest.ok("POST", rest.namespace_path(namespace, "register"), json=body)
    assert back["metadata"] == last["metadata"]
    clash = rest.call("POST", rest.namespace_path(namespace, "register"), json=body)
    assert clash.status_code == 409
    rest.ok("POST", rest.namespace_path(namespace, "register"), json=body | {"overwrite": True})
    rest.append(namespace, "u")


def test_unregister_removes_the_name_and_returns_the_location(rest: Rest) -> None:
    namespace = rest.fresh_namespace()
    made = rest.create(namespace, "t")
    answer = rest.ok("POST", rest.table_path(namespace, "t", "unregister"))
    assert answer == {"metadata-location": made["metadata-location"], "metadata": made["metadata"]}
    assert rest.tables(namespace) == []
    assert rest.lake("GET", "main/dropped").status_code == 200


def test_tables_and_views_share_their_names(rest: Rest) -> None:
    namespace = rest.fresh_namespace()
    rest.create(namespace, "t")
    body = {
        "name": "t",
        "schema": SCHEMA,
        "properties": {},
        "view-version": {
            "version-id": 1,
            "timestamp-ms": 1,
            "schema-id": 0,
            "summary": {},
            "representations": [{"type": "sql", "sql": "SELECT 1", "dialect": "spark"}],
            "default-namespace": [namespace],
        },
    }
    answer = rest.call("POST", rest.namespace_path(namespace, "views"), json=body)
    assert answer.status_code == 409
    assert answer.json()["error"]["message"] == f"Table with same name already exists: {namespace}.t"
    rest.ok("POST", rest.namespace_path(namespace, "views"), json=body | {"name": "v"})
    answer = rest.call("POST", rest.namespace_path(namespace, "tables"), json={"name": "v", "schema": SCHEMA})
    assert answer.json()["error"]["message"] == f"View with same name already exists: {namespace}.v"


def test_a_missing_warehouse_is_not_an_empty_one(rest: Rest) -> None:
    nowhere = rest.at("nowhere")
    for path in (nowhere.path("namespaces"), nowhere.namespace_path("x"), nowhere.table_path("x", "t")):
        answer = nowhere.call("GET", path)
        assert (answer.status_code, answer.json()["error"]["type"]) == (404, "NoSuchWarehouseException")
    assert rest.call("GET", "/v1/config", params={"warehouse": "nowhere"}).status_code == 404


def test_reports_of_engines_are_kept(rest: Rest) -> None:
    namespace = rest.fresh_namespace()
    rest.create(namespace, "t")
    report = {
        "report-type": "scan-report",
        "table-name": "t",
        "snapshot-id": 1,
        "filter": True,
        "schema-id": 0,
    }
    assert rest.call("POST", rest.table_path(namespace, "t", "metrics"), json=report).status_code == 204
    kept = rest.lake("GET", f"main/namespaces/{namespace}/tables/t/metrics").json()["reports"]
    assert kept[0]["report"] == report


def test_a_purge_of_a_renamed_table_spares_the_new_one_of_its_old_name(rest: Rest) -> None:
    namespace = rest.fresh_namespace()
    rest.create(namespace, "t")
    names = [{"namespace": [namespace], "name": name} for name in ("t", "old")]
    rest.ok("POST", rest.path("tables/rename"), json={"source": names[0], "destination": names[1]})
    rest.create(namespace, "t")
    assert (
        rest.call("DELETE", rest.table_path(namespace, "old"), params={"purgeRequested": "true"}).status_code
        == 204
    )
    rest.append(namespace, "t")
    assert rest.lake("GET", "main/dropped").json()["dropped"] == [] or all(
        found["namespace"] != [namespace] for found in rest.lake("GET", "main/dropped").json()["dropped"]
    )


def test_stage_create_and_overwrite_may_be_null(rest: Rest) -> None:
    """As Iceberg's own parser reads them: null is false."""
    namespace = rest.fresh_namespace()
    made = rest.create(namespace, "t", **{"stage-create": None})
    assert rest.tables(namespace) == ["t"]
    rest.ok("POST", f"{rest.table_path(namespace, 't')}/unregister")
    again = {"name": "t", "metadata-location": made["metadata-location"], "overwrite": None}
    rest.ok("POST", rest.namespace_path(namespace, "register"), json=again)
    assert rest.tables(namespace) == ["t"]


def test_a_staged_table_is_invisible_until_its_commit(rest: Rest) -> None:
    namespace = rest.fresh_namespace()
    staged = rest.create(namespace, "t", **{"stage-create": True})
    assert staged["metadata-location"] is None
    assert rest.tables(namespace) == []
    metadata = staged["metadata"]
    updates = [
        {"action": "assign-uuid", "uuid": str(uuid.uuid4())},
        {"action": "upgrade-format-version", "format-version": 2},
        {"action": "add-schema", "schema": metadata["schemas"][0], "last-column-id": 2},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": metadata["partition-specs"][0]},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": metadata["sort-orders"][0]},
        {"action": "set-default-sort-order", "sort-order-id": -1},
        {"action": "set-location", "location": metadata["location"]},
        {"action": "set-properties", "updates": {}},
    ]
    body = {"requirements": [{"type": "assert-create"}], "updates": updates}
    done = rest.commit(namespace, "t", body)
    assert done.status_code == 200, done.text
    assert done.json()["metadata"]["metadata-log"] == []
    # The answer was lost: the same commit again is a success. Another table of that name is not.
    assert rest.commit(namespace, "t", body).status_code == 200
    other = [{"action": "assign-uuid", "uuid": str(uuid.uuid4())}, *updates[1:]]
    assert rest.commit(namespace, "t", body | {"updates": other}).status_code == 409


@pytest.mark.parametrize("kind", ["statistics", "partition-statistics"])
def test_a_statistics_file_may_lie_anywhere_in_the_warehouse(stack: Stack, rest: Rest, kind: str) -> None:
    """Engines keep statistics of many tables in one folder. Outside of the warehouse they are refused."""
    namespace = rest.fresh_namespace()
    rest.create(namespace, "t")
    metadata = rest.append(namespace, "t")["metadata"]

    def set_statistics(path: str) -> int:
        file = {
            "snapshot-id": metadata["current-snapshot-id"],
            "statistics-path": path,
            "file-size-in-bytes": 100,
            "file-footer-size-in-bytes": 10,
            "blob-metadata": [],
        }
        update = {"action": f"set-{kind}", kind: file}
        return rest.commit(namespace, "t", {"requirements": [], "updates": [update]}).status_code

    shared = f"{stack.warehouse_root}/shared-statistics/{uuid.uuid4().hex}.puffin"
    for path in (f"{metadata['location']}/metadata/own.puffin", shared):
        assert (path, set_statistics(path)) == (path, 200)
        found = rest.load(namespace, "t")["metadata"][kind]
        assert [file["statistics-path"] for file in found] == [path]
    for path in (
        "s3://elsewhere/x.puffin",
        "file:///elsewhere/x.puffin",
        f"{stack.warehouse_root}-2/x.puffin",
    ):
        assert (path, set_statistics(path)) == (path, 400)
