"""On `file://` a symbolic link does not lead out of a warehouse, whichever it is and whoever started the server."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.rest import SCHEMA, Rest
from tests.harness.stacks import Stack, Stacks
from tests.security.answers import assert_error


@pytest.mark.parametrize("warehouse", ["main", "tenant"])
@pytest.mark.parametrize("restarted", [False, True], ids=["as started", "after a restart"])
def test_a_link_leads_nowhere(stacks: Stacks, tmp_path: Path, warehouse: str, restarted: bool) -> None:
    with stacks.started("embedded", tmp_path / "own") as stack:
        root = _root(stack, warehouse)
        if restarted:
            stack.server.restart()
        outside = tmp_path / "outside"
        outside.mkdir()
        root.mkdir(parents=True, exist_ok=True)
        (root / "link").symlink_to(outside)
        rest = Rest(stack.url, warehouse)
        namespace = rest.fresh_namespace()
        path = rest.namespace_path(namespace, "tables")
        body = {"name": "t", "schema": SCHEMA, "location": f"file://{root}/link/t"}
        assert_error(rest.call("POST", path, json=body), 400, 403)
        assert_error(rest.call("POST", path, json=body | {"stage-create": True}), 400, 403)
        (outside / "x.metadata.json").write_text("{}")
        register = {"name": "t", "metadata-location": f"file://{root}/link/x.metadata.json"}
        assert_error(rest.call("POST", rest.namespace_path(namespace, "register"), json=register), 400, 403)
        assert [path.name for path in outside.rglob("*")] == ["x.metadata.json"]


def _root(stack: Stack, warehouse: str) -> Path:
    rest = Rest(stack.url)
    if warehouse != "main":
        assert rest.lake("POST", "warehouses", json={"name": warehouse}).status_code == 200
    root: str = rest.lake("GET", f"warehouses/{warehouse}").json()["root"]
    return Path(root.removeprefix("file://"))
