"""Iceberg's REST compatibility kit, from its published jars, on SQLite and on PostgreSQL.

Both keep their files on this disk, because the kit writes manifests and moves a metadata file below a table.
Every run has an empty store of its own, as the kit demands. The kit also asks for locations of its own, fixed
in it, right under /tmp: so /tmp is the warehouse here, and what a run leaves in it is removed.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.rck.runner import WIDER, WIDER_TESTS, run_kit
from tests.harness.stacks import Stacks

# What the kit skips whatever the server can do: one test is disabled in it, the other nine ask for something
# that it denies for every server, without a switch: empty namespaces, nested ones, slashes.
SKIPPED = {
    "RESTCompatibilityKitCatalogTests.createTableInUniqueLocation",
    "RESTCompatibilityKitCatalogTests.createAndDropEmptyNamespace",
    "RESTCompatibilityKitCatalogTests.listNamespacesWithEmptyNamespace",
    "RESTCompatibilityKitCatalogTests.listTablesInEmptyNamespace",
    "RESTCompatibilityKitCatalogTests.namespacePropertiesOnEmptyNamespace",
    "RESTCompatibilityKitViewCatalogTests.listViewsInEmptyNamespace",
    *(f"RESTCompatibilityKitCatalogTests.{test}" for test in WIDER_TESTS),
}
WAREHOUSE = Path("/tmp")
NAMESPACES = ("a", "newdb", "ns", "ns1", "ns2", "ns_1", "ns_2", "other_ns")


@pytest.mark.timeout(1200)  # the first run on a machine fetches a hundred megabytes of jars
@pytest.mark.xdist_group("rck")  # two runs would meet below /tmp
@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_the_compatibility_kit_passes(database: str, stacks: Stacks, tmp_path: Path) -> None:
    settings = {"CALVE_WAREHOUSE_ROOT": WAREHOUSE.as_uri()}
    if database == "postgresql":
        settings["CALVE_DATABASE"] = stacks.postgres.database()
    with _left_as_found(WAREHOUSE), stacks.started("embedded", tmp_path / "stack", settings) as stack:
        outcome = run_kit(f"{stack.url}/", tmp_path / "rck")
    kit, wider = outcome.without_class(WIDER), outcome.of_class(WIDER)
    assert outcome.failed == {}, outcome.report()
    assert set(kit.skipped) == SKIPPED, outcome.report()
    assert (kit.ran, len(kit.passed), len(kit.skipped)) == (157, 147, 10), outcome.report()
    assert sorted(wider.passed) == sorted(f"{WIDER}.{test}" for test in WIDER_TESTS), outcome.report()


@contextlib.contextmanager
def _left_as_found(folder: Path) -> Iterator[None]:
    before = {name for name in NAMESPACES if (folder / name).exists()}
    try:
        yield
    finally:
        for name in set(NAMESPACES) - before:
            shutil.rmtree(folder / name, ignore_errors=True)
