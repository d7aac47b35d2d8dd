"""Fixtures of the tests of the table functions."""

from __future__ import annotations

import pytest

from tests.contract.query.tables.table_lake import TableLake
from tests.harness.stacks import Stack


@pytest.fixture
def lake(stack: Stack) -> TableLake:
    """A namespace for one test, on each stack in turn."""
    return TableLake.on(stack)
