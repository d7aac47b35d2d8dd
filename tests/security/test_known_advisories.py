"""What other catalogs were bitten by, one named test each, against real servers on both stacks."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from tests.harness.rest import SCHEMA, Rest, identified
from tests.harness.s3 import S3Server
from tests.harness.server import CalveServer
from tests.harness.stacks import Stack, Stacks
from tests.security.answers import assert_error
from tests.security.conftest import Elsewhere

# What may stand in a path that ends up in policies, conditions and shells.
PLAIN = re.compile(r"[A-Za-z0-9_./:-]+").fullmatch


@pytest.fixture
def rest(stack: Stack) -> Rest:
    return Rest(stack.url)


def _create(rest: Rest, namespace: str, **more: Any) -> httpx.Response:
    body = {"name": "evil", "schema": SCHEMA, **more}
    return rest.call("POST", rest.namespace_path(namespace, "tables"), json=body)


@pytest.mark.parametrize("way", ["location", "write.data.path", "write.metadata.path"])
def test_cve_2026_42809_a_staged_create_gives_nothing_for_a_foreign_place(
    rest: Rest, elsewhere: Elsewhere, way: str
) -> None:
    """Polaris handed out credentials for the place of a staged table before it was looked at."""
    place = elsewhere.location
    body = {"location": place} if way == "location" else {"properties": {way: place}}
    namespace = rest.fresh_namespace()
    answer = _create(rest, namespace, **{"stage-create": True}, **body)
    assert_error(answer, 400)
    assert not elsewhere.folder.exists()
    assert rest.tables(namespace) == []


@pytest.mark.parametrize("name", ["*", "f*.t1", "*.*", "?", "${aws:username}", "[a-z]"])
def test_cve_2026_42810_a_wildcard_in_a_name_does_not_reach_a_path(rest: Rest, name: str) -> None:
    """In Polaris a `*` in a name became a wildcard of the policy that guarded the files."""
    namespace = f"{rest.fresh_namespace()}{name}"
    rest.ok("POST", rest.path("namespaces"), json={"namespace": [namespace]})
    made = rest.create(namespace, name)
    assert PLAIN(made["metadata"]["location"]), made["metadata"]["location"]
    assert PLAIN(made["metadata-location"])


@pytest.mark.parametrize("name", ["t' || true || '", 't"', "t`id`", "t\\", "t;x", "t||x", "t){"])
def test_cve_2026_42811_a_quote_in_a_name_does_not_reach_a_path(rest: Rest, name: str) -> None:
    """In Polaris a quote in a name ended the condition that guarded the files."""
    namespace = rest.fresh_namespace()
    made = rest.create(namespace, name)
    assert PLAIN(made["metadata"]["location"]), made["metadata"]["location"]
    renamed = {"source": {"namespace": [namespace], "name": name}}
    renamed["destination"] = {"namespace": [namespace], "name": f"{name}2"}
    rest.ok("POST", rest.path("tables/rename"), json=renamed)
    appended = rest.append(namespace, f"{name}2")
    assert PLAIN(appended["metadata-location"])


@pytest.mark.parametrize("key", ["write.metadata.path", "WRITE.Metadata.Path", "write.data.path"])
@pytest.mark.parametrize("field", ["updates", "updated"])
@pytest.mark.parametrize("action", ["set-properties", "SET-PROPERTIES"])
def test_cve_2026_42812_a_path_property_alone_is_looked_at(
    rest: Rest, elsewhere: Elsewhere, key: str, field: str, action: str
) -> None:
    """Polaris looked at places only when the location changed; the server itself then wrote elsewhere.

    `updated` is what old clients call `updates`, and actions are read without regard to case.
    """
    namespace = rest.fresh_namespace()
    rest.create(namespace, "t")
    body: dict[str, Any] = {
        "requirements": [],
        "updates": [{"action": action, field: {key: elsewhere.location}}],
    }
    assert_error(rest.commit(namespace, "t", body), 400)
    changes = {"table-changes": [identified(namespace, "t", body)]}
    assert_error(rest.call("POST", rest.path("transactions/commit"), json=changes), 400)
    rest.append(namespace, "t")
    assert elsewhere.files() == []


@pytest.mark.parametrize("action", ["set-location", "SET-LOCATION", "Set-Location"])
def test_a_location_is_looked_at_however_its_action_is_spelt(
    rest: Rest, elsewhere: Elsewhere, action: str
) -> None:
    namespace = rest.fresh_namespace()
    rest.create(namespace, "t")
    body = {"requirements": [], "updates": [{"action": action, "location": elsewhere.location}]}
    assert_error(rest.commit(namespace, "t", body), 400)
    rest.append(namespace, "t")
    assert elsewhere.files() == []


def test_polaris_4884_a_sibling_with_the_same_beginning_is_outside(rest: Rest, elsewhere: Elsewhere) -> None:
    assert_error(_create(rest, rest.fresh_namespace(), location=f"{elsewhere.location}/t"), 400)
    assert elsewhere.files() == []


def test_polaris_4860_the_root_that_counts_is_the_present_one(stacks: Stacks, tmp_path: Path) -> None:
    """There the rules could shrink under tables that they had let in. Here the root of `main` cannot move."""
    with stacks.started("embedded", tmp_path / "own") as stack:
        server = stack.server
        moved = {
            **server.settings,
            "CALVE_WAREHOUSE_ROOT": f"{stack.warehouse_root}/narrower",
            "CALVE_PORT": "0",
        }
        ended = CalveServer(tmp_path / "moved", moved).command("serve")
    assert (ended.returncode, "Traceback" in ended.stderr) == (1, False)
    assert stack.warehouse_root in ended.stderr


def test_polaris_5114_what_a_registered_file_says_is_not_believed(
    rest: Rest, stack: Stack, elsewhere: Elsewhere, request: pytest.FixtureRequest
) -> None:
    """Also Unity Catalog 1749: the location inside the file decided, not the one that was checked."""
    namespace = rest.fresh_namespace()
    made = rest.create(namespace, "t")
    rest.ok("POST", rest.table_path(namespace, "t", "unregister"))
    file = _path(stack, made["metadata-location"], request)
    file.write_bytes(orjson.dumps(made["metadata"] | {"location": elsewhere.location}))
    body = {"name": "u", "metadata-location": made["metadata-location"]}
    assert_error(rest.call("POST", rest.namespace_path(namespace, "register"), json=body), 400)
    assert rest.tables(namespace) == []
    assert elsewhere.files() == []


def _path(stack: Stack, location: str, request: pytest.FixtureRequest) -> Path:
    if stack.s3 is None:
        return Path(location.removeprefix("file://"))
    server: S3Server = request.getfixturevalue("s3")
    return server.path(location)


def test_forwarded_headers_change_no_answer(rest: Rest) -> None:
    """Nobody who is not a trusted proxy says where this server is."""
    plain = rest.call("GET", "/v1/config")
    forged = {
        "Forwarded": "host=evil.example;proto=https",
        "X-Forwarded-Host": "evil.example",
        "X-Forwarded-Proto": "https",
        "X-Forwarded-Prefix": "/evil",
        "X-Original-URL": "/v1/evil/config",
        "X-HTTP-Method-Override": "DELETE",
    }  # a forged Host is refused: test_foreign_pages.py
    answer = rest.call("GET", "/v1/config", headers=forged)
    assert (answer.status_code, answer.json()) == (200, plain.json())
    assert "evil" not in answer.text
