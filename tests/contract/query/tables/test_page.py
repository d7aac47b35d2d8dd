"""The examples of docs/tables.md are true: each is run, on a fresh server."""

from __future__ import annotations

import pytest

from tests.clients.page_runner import Reader, blocks
from tests.harness.components import ROOT
from tests.harness.stacks import Stack


@pytest.mark.parametrize("own_stack", ["embedded"], indirect=True)
def test_the_page_of_table_functions(own_stack: Stack) -> None:
    reader = Reader(own_stack)
    for block in blocks(ROOT / "docs" / "tables.md"):
        reader.run(block)
    assert reader.done == 8
