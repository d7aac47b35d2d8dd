"""The examples of docs/maintenance.md are true."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from tests.clients import pyiceberg_client
from tests.clients.page_runner import Reader, blocks
from tests.harness.components import ROOT
from tests.harness.stacks import Stack


def test_maintenance(own_stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("CALVE_URI", own_stack.url)
    catalog = pyiceberg_client.catalog(own_stack)
    catalog.create_namespace("shop")
    table = catalog.create_table("shop.orders", pa.schema([("id", pa.int64())]))
    table.append(pa.table({"id": [1]}))
    catalog.create_table("shop.orders__changes", pa.schema([("id", pa.int64())]))
    reader = Reader(own_stack)
    for block in blocks(ROOT / "docs" / "maintenance.md"):
        reader.run(block)
    assert reader.done == 7
