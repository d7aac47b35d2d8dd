"""A dropped table is purged with its files when it can no longer be restored."""

from __future__ import annotations

from pathlib import Path

import pytest

from catalog.models import Warehouse
from catalog.names import Identifier, Namespace, warehouse_ref
from catalog.services import namespaces, tables
from catalog.services.catalog import Limits
from catalog.services.writes import WriteContext
from maintenance.store import MaintenanceStore
from tests.concurrency.catalog_address import CatalogAddress
from tests.harness.rest import SCHEMA
from tests.harness.stacks import STACKS, StackName, Stacks

CONTEXT = WriteContext("tester")
TABLE = Identifier(Namespace(("db",)), "t")


@pytest.mark.parametrize("stack_name", STACKS)
def test_files_of_a_dropped_table_go_when_its_retention_ends(
    stack_name: StackName, stacks: Stacks, tmp_path: Path
) -> None:
    address = CatalogAddress.fresh(stacks, stack_name, tmp_path, local_files=True)
    with address.opened(Limits(drop_retention_s=1000)) as catalog:
        state = catalog.state(warehouse_ref("main"))
        namespaces.create(catalog, state, CONTEXT, TABLE.namespace, {})
        tables.create(catalog, state, CONTEXT, TABLE, {"name": "t", "schema": SCHEMA})
        tables.drop(catalog, state, CONTEXT, TABLE)
        store, main = MaintenanceStore(catalog.database), catalog.warehouse("main")
        now_ms = catalog.now_ms()
        assert store.end_retention("main", now_ms + 999_000) == 0
        assert files(main)
        assert store.end_retention("main", now_ms + 1_001_000) == 1
        catalog.purge_worker.poll()
        catalog.purge_worker.stop()
        assert not files(main)
        assert catalog.records.dropped_before("main", now_ms, 2**62, "", 10) == []


def files(warehouse: Warehouse) -> list[Path]:
    return [path for path in Path(warehouse.root.removeprefix("file://")).rglob("*") if path.is_file()]
