"""The examples of the pages about changes, sources, subscriptions and the Python client are true."""

from __future__ import annotations

import pytest

from tests.clients.page_runner import Reader, blocks
from tests.harness.components import ROOT
from tests.pipeline.conftest import Pipeline


@pytest.mark.parametrize("pipeline", ["embedded"], indirect=True)
def test_changes(pipeline: Pipeline) -> None:
    reader = Reader(pipeline.stack)
    for block in blocks(ROOT / "docs" / "changes.md"):
        reader.run(block)
    assert reader.done == 8


@pytest.mark.parametrize("pipeline", ["embedded"], indirect=True)
def test_python(pipeline: Pipeline) -> None:
    reader = Reader(pipeline.stack)
    for block in blocks(ROOT / "docs" / "python.md"):
        reader.run(block)
    assert reader.done == 7


@pytest.mark.parametrize("pipeline", ["embedded"], indirect=True)
def test_subscribe(pipeline: Pipeline) -> None:
    reader = Reader(pipeline.stack)
    for block in blocks(ROOT / "docs" / "subscribe.md"):
        reader.run(block)
    assert reader.done == 6


@pytest.mark.parametrize("pipeline", ["embedded"], indirect=True)
def test_sources(pipeline: Pipeline) -> None:
    reader = Reader(pipeline.stack)
    for block in blocks(ROOT / "docs" / "sources.md"):
        reader.run(block)
    assert reader.done == 6
