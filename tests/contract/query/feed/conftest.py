"""Fixtures of the tests of the change feed."""

from __future__ import annotations

import pytest

from tests.contract.query.feed.feed_lake import FeedLake
from tests.harness.stacks import Stack


@pytest.fixture
def lake(stack: Stack) -> FeedLake:
    """A namespace for one test, on each stack in turn."""
    return FeedLake.on(stack)
