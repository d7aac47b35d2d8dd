"""PyIceberg's own integration tests, of the version that the project pins, on PostgreSQL and S3.

A test is left out by its name, with the reason. A name that no test has any more is a failure too.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clients.pyiceberg_suite import PyIcebergSuite
from tests.harness.stacks import Stacks

FOLDER_NAMES = "expects that a table's folder is named after the table alone; Calve adds a unique suffix"
UUIDS = "expects bytes for a UUID, as PyArrow before 26 answered"
EXTENSION = (
    "DuckDB downloads its extension from a registry of its own, which cannot be assumed to be reachable"
)

# A name stands for all tests whose name begins with it.
DESELECTED = {
    "tests/integration/test_add_files.py::test_add_files_with_valid_upcast": UUIDS,
    "tests/integration/test_catalog.py::test_rest_custom_namespace_separator": (
        "expects that the server was started with the separator `.`, which is not the default"
    ),
    "tests/integration/test_inspect_table.py::test_inspect_refs": "expects an order of refs in a JSON object",
    "tests/integration/test_reads.py::test_daft": "no release of Daft accepts the PyArrow pinned here",
    "tests/integration/test_reads.py::test_iceberg_property_deletion_not_restored_from_old_hms": "needs Hive",
    "tests/integration/test_reads.py::test_ray": "needs Ray, which starts a cluster",
    "tests/integration/test_statistics_operations.py::test_manage_statistics": (
        "sets a location outside the warehouse, which Calve refuses"
    ),
    "tests/integration/test_writes/test_writes.py::test_object_storage_data_files": FOLDER_NAMES,
    "tests/integration/test_writes/test_writes.py::test_merge_manifests_file_content": FOLDER_NAMES,
    "tests/integration/test_writes/test_writes.py::test_duckdb_url_import": EXTENSION,
    "tests/integration/test_writes/test_writes.py::test_sanitize_character_partitioned_avro_bug": EXTENSION,
    "tests/integration/test_writes/test_writes.py::test_table_write_schema_with_valid_upcast": UUIDS,
}


@pytest.mark.proof
@pytest.mark.timeout(7200)
def test_pyicebergs_own_tests_pass(stacks: Stacks, tmp_path: Path) -> None:
    # Some tests write files to s3://warehouse/default/… themselves.
    root = f"s3://{stacks.s3.bucket('warehouse')}"
    with stacks.started("postgres-s3", tmp_path / "stack", {"CALVE_WAREHOUSE_ROOT": root}) as stack:
        suite = PyIcebergSuite(tmp_path / "suite", stack)
        names = suite.collected()
        unknown = [name for name in DESELECTED if not any(known.startswith(name) for known in names)]
        assert not unknown, f"the suite has no such tests: {unknown}"
        with suite.provisioned():
            counts = suite.run(deselected=DESELECTED)
    ran = counts.passed + len(counts.skipped) + len(counts.failed)
    print(
        f"\nPyIceberg's own tests: {counts.passed} passed, {len(counts.failed)} failed, "
        f"{len(counts.skipped)} skipped by the suite, {len(names) - ran} deselected with a reason each"
    )
    assert counts.failed == {}
    assert counts.passed > 1100  # a run that finds no tests looks like success
