"""Fixtures of the query tests."""

from __future__ import annotations

import pytest

from tests.contract.query.lake import QueryLake
from tests.harness.stacks import Stack


@pytest.fixture
def lake(stack: Stack) -> QueryLake:
    """A namespace for one test, on each stack in turn."""
    return QueryLake.on(stack)
