"""The examples of the documentation are true: each is run, on a fresh server."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.clients.page_runner import Reader, blocks
from tests.harness.components import ROOT
from tests.harness.stacks import Stack

QUERY = ROOT / "docs" / "query.md"
ENGINES = ROOT / "docs" / "engines.md"
PAGES = [
    (ROOT / "README.md", "More to try"),
    (ROOT / "docs" / "time-travel-and-transactions.md", None),
]


def test_engines(own_stack: Stack, spark: SparkSession) -> None:
    """On files the whole page but what is for an object store, which comes on the other stack."""
    reader = Reader(own_stack, spark)
    for block in blocks(ENGINES):
        if ("s3" in block.words) == (own_stack.s3 is not None):
            reader.run(block)
    assert reader.done == (6 if own_stack.s3 is None else 4)


@pytest.mark.parametrize("own_stack", ["embedded"], indirect=True)
def test_query(own_stack: Stack) -> None:
    reader = Reader(own_stack)
    for block in blocks(QUERY):
        reader.run(block)
    assert reader.done == 8


@pytest.mark.parametrize(("page", "section"), PAGES, ids=["README", "time-travel-and-transactions"])
@pytest.mark.parametrize("own_stack", ["embedded"], indirect=True)
def test_a_page(own_stack: Stack, spark: SparkSession, page: Path, section: str | None) -> None:
    reader = Reader(own_stack, spark)
    for block in blocks(page, section):
        reader.run(block)
    assert reader.done > 4
