"""One request, or many of them, cannot take the server's memory or make a table that nobody can read."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.harness.rest import Rest, snapshot
from tests.harness.server import CalveServer
from tests.security.answers import assert_error
from tests.security.entry_points import Lake
from tests.security.requests_of_operations import view_body

RSS_GROWTH_BYTES_MAX = 512 << 20


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CalveServer]:
    settings = {"CALVE_DOCUMENT_CACHE_BYTES_MAX": str(16 << 20)}
    with CalveServer.started(tmp_path_factory.mktemp("limits"), settings) as started:
        rest = Rest(started.url)
        rest.create(rest.fresh_namespace(), "t")
        before = _rss_bytes(started)
        yield started
        growth = _rss_bytes(started) - before
        print(f"rss growth over all limits: {growth >> 20} MiB")
        assert growth < RSS_GROWTH_BYTES_MAX
        assert "Traceback" not in Path(started.log).read_text()


@pytest.fixture
def table(server: CalveServer) -> tuple[Rest, str]:
    rest = Rest(server.url)
    namespace = rest.fresh_namespace()
    rest.create(namespace, "t")
    return rest, namespace


def _rss_bytes(server: CalveServer) -> int:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{server.pid}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def _fields(count: int) -> list[dict[str, Any]]:
    return [{"id": n, "name": f"c{n}", "type": "string", "required": False} for n in range(1, count + 1)]


def _deep_type(depth: int) -> Any:
    made: Any = "string"
    for level in range(depth):
        made = {"type": "list", "element-id": level + 10, "element": made, "element-required": False}
    return made


@pytest.mark.parametrize("count", [10_001, 100_000])
def test_thousands_of_updates_are_refused(table: tuple[Rest, str], count: int) -> None:
    rest, namespace = table
    updates = [{"action": "set-properties", "updates": {"a": str(n)}} for n in range(count)]
    assert_error(rest.commit(namespace, "t", {"requirements": [], "updates": updates}), 400)


def test_as_many_updates_as_allowed_are_taken(table: tuple[Rest, str]) -> None:
    rest, namespace = table
    updates = [{"action": "set-properties", "updates": {"a": str(n)}} for n in range(10_000)]
    assert rest.commit(namespace, "t", {"requirements": [], "updates": updates}).status_code == 200


@pytest.mark.parametrize(
    "kind", ["requirements", "tables of a transaction", "updates of a view", "snapshots"]
)
def test_floods_inside_one_request_are_bounded(table: tuple[Rest, str], kind: str) -> None:
    rest, namespace = table
    metadata = rest.load(namespace, "t")["metadata"]
    if kind == "requirements":
        asserted = [{"type": "assert-table-uuid", "uuid": metadata["table-uuid"]}] * 20_000
        answer = rest.commit(namespace, "t", {"requirements": asserted, "updates": []})
    elif kind == "tables of a transaction":
        change: dict[str, Any] = {"requirements": [], "updates": []}
        changes = [
            {"identifier": {"namespace": [namespace], "name": f"n{n}"}, **change} for n in range(20_000)
        ]
        answer = rest.call("POST", rest.path("transactions/commit"), json={"table-changes": changes})
    elif kind == "updates of a view":
        rest.ok("POST", rest.namespace_path(namespace, "views"), json=view_body("v", namespace))
        path, update = rest.namespace_path(namespace, "views", "v"), {"action": "set-properties"}
        one = {"updates": [update | {"updates": {"a": "b"}}]}
        assert rest.call("POST", path, json=one).status_code == 200  # the flood alone is what is refused
        answer = rest.call("POST", path, json={"updates": one["updates"] * 20_000})
    else:
        added = [{"action": "add-snapshot", "snapshot": snapshot(metadata, n + 1)} for n in range(11_000)]
        answer = rest.commit(namespace, "t", {"requirements": [], "updates": added})
    assert_error(answer, 400)


def test_a_huge_schema_is_refused(table: tuple[Rest, str]) -> None:
    rest, namespace = table
    schemas = {
        "wide": {"type": "struct", "fields": _fields(20_001)},
        "wider": {"type": "struct", "fields": _fields(150_000)},
        "deep": {
            "type": "struct",
            "fields": [{"id": 1, "name": "a", "type": _deep_type(65), "required": False}],
        },
        "deeper": {
            "type": "struct",
            "fields": [{"id": 1, "name": "a", "type": _deep_type(190), "required": False}],
        },
        "long type": {
            "type": "struct",
            "fields": [{"id": 1, "name": "a", "type": "decimal(" * 9999, "required": False}],
        },
        "long name": {
            "type": "struct",
            "fields": [{"id": 1, "name": "a" * 10_001, "type": "int", "required": False}],
        },
        "longer name": {
            "type": "struct",
            "fields": [{"id": 1, "name": "a" * 2**24, "type": "int", "required": False}],
        },
    }
    wrong = {}
    for label, schema in schemas.items():
        body = {"name": f"s_{label.replace(' ', '_')}", "schema": schema}
        answer = rest.call("POST", rest.namespace_path(namespace, "tables"), json=body)
        if answer.status_code != 400:
            wrong[label] = (answer.status_code, answer.text[:200])
    assert not wrong


def test_a_wide_schema_is_taken_and_loaded(table: tuple[Rest, str]) -> None:
    rest, namespace = table
    rest.ok(
        "POST",
        rest.namespace_path(namespace, "tables"),
        json={"name": "wide", "schema": {"type": "struct", "fields": _fields(10_000)}},
    )
    assert len(rest.load(namespace, "wide")["metadata"]["schemas"][0]["fields"]) == 10_000


@pytest.mark.parametrize("count", [1001, 200_000])
def test_a_flood_of_namespace_properties_is_refused(table: tuple[Rest, str], count: int) -> None:
    rest, namespace = table
    flood = {f"k{n}": "v" for n in range(count)}
    assert_error(
        rest.call("POST", rest.namespace_path(namespace, "properties"), json={"updates": flood}), 400
    )
    body = {"namespace": [namespace, "below"], "properties": flood}
    assert_error(rest.call("POST", rest.path("namespaces"), json=body), 400)


def test_namespace_properties_do_not_grow_without_end(table: tuple[Rest, str]) -> None:
    """Each request is bounded; what they add up to is too."""
    rest, namespace = table
    path = rest.namespace_path(namespace, "properties")
    turns = [{f"k{turn}_{n}": "v" for n in range(900)} for turn in range(4)]
    answers = [rest.call("POST", path, json={"updates": updates}) for updates in turns]
    assert_error(answers[-1], 400)
    assert len(rest.ok("GET", rest.namespace_path(namespace))["properties"]) <= 1000


def test_a_document_does_not_grow_without_end(server: CalveServer) -> None:
    """Every commit writes the whole document; one of hundreds of megabytes would stop the warehouse."""
    rest = Rest(server.url)
    namespace = rest.fresh_namespace()
    rest.create(namespace, "large")
    refused = False
    for turn in range(6):
        update = {"action": "set-properties", "updates": {f"p{turn}": "x" * (28 << 20)}}
        answer = rest.commit(namespace, "large", {"requirements": [], "updates": [update]})
        assert answer.status_code in (200, 400, 413), answer.text[:300]
        refused = refused or answer.status_code != 200
        if refused:
            break
    rest.call("DELETE", rest.table_path(namespace, "large"), params={"purgeRequested": "true"})
    assert refused, f"a document of more than {turn * 28} MiB was taken"


def test_a_registered_file_of_any_size_takes_bounded_memory(recorded: Lake) -> None:
    """A file that expands to more than is read is refused by what it expands to, not by what it weighs."""
    bomb = gzip.compress(b'{"a":"' + b" " * (300 << 20))
    place = f"{recorded.root}/planted/bomb.gz.metadata.json"
    recorded.server.files.held[place] = bomb
    answer = recorded.register(place)
    assert_error(answer, 400, 413)


def test_a_registered_file_of_odd_content_is_refused(recorded: Lake) -> None:
    wrong = {}
    contents: dict[str, bytes] = {
        "empty": b"",
        "binary": bytes(range(256)),
        "list": b"[]",
        "deep": b"[" * 100_000,
        "NaN": b'{"format-version": NaN}',
        "no table": b"{}",
        "view": orjson.dumps(recorded.view),
        "newer": orjson.dumps(recorded.document(format_version=99)),
        "text version": orjson.dumps(recorded.document(format_version="2")),
        "odd uuid": orjson.dumps(recorded.document(table_uuid="../../x")),
        "odd schemas": orjson.dumps(recorded.document(schemas=[7, None, "x"])),
        "odd refs": orjson.dumps(recorded.document(refs={"main": 7})),
        "dangling ref": orjson.dumps(recorded.document(refs={"main": {"snapshot-id": 9, "type": "branch"}})),
        "odd log": orjson.dumps(recorded.document(metadata_log=[7])),
        "odd properties": orjson.dumps(recorded.document(properties={"a": 7})),
        "gzip cut short": b"\x1f\x8b\x08\x00",
    }
    for label, content in contents.items():
        place = f"{recorded.root}/planted/odd-{label.replace(' ', '-')}.metadata.json"
        recorded.server.files.held[place] = content
        answer = recorded.register(place)
        if answer.status_code not in (400, 406, 413):
            wrong[label] = (answer.status_code, answer.text[:200])
    assert not wrong
    # And what is right is taken.
    assert recorded.register(recorded.plant(recorded.document())).is_success


def test_a_list_is_never_cut_without_saying_so(table: tuple[Rest, str]) -> None:
    rest, namespace = table
    for number in range(30):
        rest.ok("POST", rest.path("namespaces"), json={"namespace": [namespace, f"n{number:02}"]})
    whole = rest.ok("GET", rest.path("namespaces"), params={"parent": namespace})
    assert (len(whole["namespaces"]), whole["next-page-token"]) == (30, None)
