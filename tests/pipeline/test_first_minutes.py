"""What people type first: README and the page for getting started, with the demo running."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.clients.page_runner import Reader, blocks
from tests.harness import components
from tests.harness.components import ROOT
from tests.harness.server import environment
from tests.harness.stacks import Stacks
from tests.pipeline.conftest import Pipeline
from tests.pipeline.own import own_pipeline

LONG_AGO = "65 seconds ago"  # the pages ask for the state of a minute ago
WAIT_S = 300


@contextmanager
def demo(url: str) -> Iterator[None]:
    words = [str(components.calve()), "demo", "--uri", url, "--rate", "20"]
    running = subprocess.Popen(words, env=environment({}), stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        running.terminate()
        running.wait(60)


def had_orders(url: str, as_of: str) -> bool:
    """Whether order 17 was there at the moment."""
    body = {"sql": "SELECT 1 FROM shop.orders WHERE id = 17", "as_of": as_of}
    answer = httpx.post(f"{url}/query", json=body, timeout=60)
    return answer.status_code == 200 and bool(answer.json()["rows"])


@pytest.mark.timeout(900)
def test_the_first_ten_minutes(stacks: Stacks, tmp_path: Path) -> None:
    """On a server of its own: other pages have a table shop.orders too."""
    with own_pipeline(stacks, "embedded", tmp_path) as pipeline:
        _type_everything(pipeline)


def _type_everything(pipeline: Pipeline) -> None:
    with demo(pipeline.url):
        until_s = time.monotonic() + WAIT_S
        while not had_orders(pipeline.url, LONG_AGO):
            assert time.monotonic() < until_s, "the demo showed no orders"
            time.sleep(1)
        reader = Reader(pipeline.stack)
        for block in blocks(ROOT / "README.md", "The first five minutes"):
            reader.run(block)
        assert reader.done == 1
        for block in blocks(ROOT / "docs" / "getting-started.md"):
            reader.run(block)
        assert reader.done == 8
        for block in blocks(ROOT / "docs" / "commands.md", "Asking"):
            reader.run(block)
        assert reader.done == 9
