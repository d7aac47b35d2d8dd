"""On `file://` a symbolic link does not lead out of a warehouse, whichever it is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import orjson

from tests.harness.documents import table
from tests.harness.rest import SCHEMA, Rest
from tests.harness.stacks import Stack, Stacks
from tests.security.answers import is_error


def test_a_link_leads_nowhere(stacks: Stacks, tmp_path: Path) -> None:
    """Not in `main` and not in another warehouse, of which a server hears only by its database."""
    outside = tmp_path / "outside"
    outside.mkdir()
    # A table that could be registered, were it not for the way to it.
    (outside / "x.metadata.json").write_bytes(orjson.dumps(table()))
    wrong = []
    with stacks.started("embedded", tmp_path / "own") as stack:
        roots = {warehouse: _root(stack, warehouse) for warehouse in ("main", "tenant")}
        for root in roots.values():
            root.mkdir(parents=True, exist_ok=True)
            (root / "link").symlink_to(outside)
        for moment in ("as started", "after a restart"):
            for warehouse, root in roots.items():
                for way, answer in _asked(Rest(stack.url, warehouse), root):
                    if answer.status_code not in (400, 403) or not is_error(answer):
                        wrong.append((moment, warehouse, way, answer.status_code))
            stack.server.restart()
    assert not wrong
    assert [path.name for path in outside.rglob("*")] == ["x.metadata.json"]


def _asked(rest: Rest, root: Path) -> Iterator[tuple[str, httpx.Response]]:
    namespace = rest.fresh_namespace()
    path = rest.namespace_path(namespace, "tables")
    body = {"name": "t", "schema": SCHEMA, "location": f"file://{root}/link/t"}
    yield "stage", rest.call("POST", path, json=body | {"stage-create": True})
    yield "create", rest.call("POST", path, json=body)
    register = {"name": "u", "metadata-location": f"file://{root}/link/x.metadata.json"}
    yield "register", rest.call("POST", rest.namespace_path(namespace, "register"), json=register)


def _root(stack: Stack, warehouse: str) -> Path:
    rest = Rest(stack.url)
    if warehouse != "main":
        assert rest.lake("POST", "warehouses", json={"name": warehouse}).status_code == 200
    root: str = rest.lake("GET", f"warehouses/{warehouse}").json()["root"]
    return Path(root.removeprefix("file://"))
