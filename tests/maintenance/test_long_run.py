"""A table that is written to for ever stays small, and every kept moment can be read in full.

The periods of the policy are scaled down, so that a few minutes pass through all tiers.
"""

from __future__ import annotations

import random
import time
from bisect import bisect_right
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from pyiceberg.exceptions import NoSuchTableError

from tests.clients import pyiceberg_client
from tests.harness.rest import Rest
from tests.harness.stacks import STACKS, Stack, StackName, Stacks

SETTINGS = {
    "CALVE_KEPT_MOMENTS": "all:1500ms, 500ms:4s, 2s:12s",
    "CALVE_MAINTENANCE_INTERVAL_S": "0.2",
    "CALVE_READER_GRACE_S": "1",
    "CALVE_READER_PIN_S": "3",
}
MOMENTS_MAX = 150  # what the policy keeps, with pins and the moments of the last second and a half


@pytest.mark.parametrize("stack_name", STACKS)
def test_tables_stay_small_and_kept_moments_stay_readable(
    stack_name: StackName, stacks: Stacks, tmp_path: Path
) -> None:
    with stacks.started(stack_name, tmp_path, SETTINGS) as stack:
        Run(stack, seed=1).write(100)


@pytest.mark.proof
@pytest.mark.parametrize("stack_name", STACKS)
def test_5000_publishes(stack_name: StackName, stacks: Stacks, tmp_path: Path) -> None:
    with stacks.started(stack_name, tmp_path, SETTINGS) as stack:
        Run(stack, seed=2).write(5000)


@pytest.mark.parametrize("stack_name", STACKS)
def test_a_server_that_is_killed_during_maintenance_loses_nothing(
    stack_name: StackName, stacks: Stacks, tmp_path: Path
) -> None:
    with stacks.started(stack_name, tmp_path, SETTINGS) as stack:
        Run(stack, seed=3).write_and_kill(5)


@pytest.mark.proof
@pytest.mark.parametrize("stack_name", STACKS)
def test_100_kills_during_maintenance(stack_name: StackName, stacks: Stacks, tmp_path: Path) -> None:
    with stacks.started(stack_name, tmp_path, SETTINGS) as stack:
        Run(stack, seed=4).write_and_kill(100)


class Run:
    """Two tables: rows are appended to both, and the rows of one are replaced now and then."""

    def __init__(self, stack: Stack, seed: int) -> None:
        self.stack = stack
        self.random = random.Random(seed)
        self.rest = Rest(stack.url)
        self.catalog = pyiceberg_client.catalog(stack)
        self.catalog.create_namespace("long")
        schema = pa.schema([("id", pa.int64()), ("round", pa.int64())])
        properties = {"write.metadata.previous-versions-max": "5"}
        self.tables = [self.catalog.create_table(f"long.t{i}", schema, properties=properties) for i in (1, 2)]
        self.expected: dict[int, tuple[tuple[Any, ...], ...]] = {}
        self.rows: list[list[tuple[int, int]]] = [[], []]

    def write(self, publishes: int) -> None:
        sizes = []
        for number in range(publishes):
            self.publish(number)
            if number % 10 == 9:
                self.read(self.random.choice(sorted(self.expected)))
            if number % (publishes // 5) == publishes // 5 - 1:
                sizes.append(self.size())
        self.read_every_kept_moment()
        self.at_rest()
        assert max(sizes) <= MOMENTS_MAX, f"snapshots of a table: {sizes}"

    def write_and_kill(self, kills: int) -> None:
        """The server maintains all the time, so a kill at a random time hits it at a random point."""
        for kill in range(kills):
            for number in range(20 * kill, 20 * kill + 20):
                self.publish(number)
            time.sleep(self.random.uniform(0, 0.4))  # the kill comes at a random time, whatever is under way
            self.stack.server.kill()
            self.stack.server.start()
            self.read(self.random.choice(sorted(self.expected)))
        self.read_every_kept_moment()
        self.at_rest()

    def publish(self, number: int) -> None:
        which = number % 2
        table = self.tables[which]
        table.refresh()
        row = (number, self.random.randint(0, 10**9))
        arrow = pa.table({"id": [row[0]], "round": [row[1]]})
        if number % 20 >= 18:
            table.overwrite(arrow)
            self.rows[which] = [row]
        else:
            table.append(arrow)
            self.rows[which].append(row)
        self.expected[self.rest.head()] = tuple(tuple(sorted(rows)) for rows in self.rows)

    def read(self, requested: int) -> None:
        """A reader of a moment sees the state of the kept moment that it is told."""
        answer = httpx.get(f"{self.stack.url}/v1/config", params={"warehouse": f"main@{requested}"})
        if answer.status_code == 404:
            assert "not kept any more" in answer.json()["error"]["message"]
            return
        shown = int(answer.json()["overrides"]["prefix"].removeprefix("main%40").removeprefix("main@"))
        assert shown <= requested
        assert answer.headers["Calve-Moment"] == str(shown)
        reader = pyiceberg_client.catalog(self.stack, f"main@{shown}")
        numbers = sorted(self.expected)
        index = bisect_right(numbers, shown)
        if index == 0:
            return  # before the first publish
        for which, rows in enumerate(self.expected[numbers[index - 1]]):
            try:
                found = pyiceberg_client.rows(reader.load_table(f"long.t{which + 1}"))
            except NoSuchTableError as error:  # the periods are seconds here: it may have ended meanwhile
                if "not kept any more" not in str(error):
                    raise
                return
            assert found == sorted(rows, key=repr), f"t{which + 1} at {shown}"

    def read_every_kept_moment(self) -> None:
        for number in sorted(self.expected)[-60:]:
            self.read(number)

    def size(self) -> int:
        return max(len(self.rest.load("long", f"t{i}")["metadata"]["snapshots"]) for i in (1, 2))

    def at_rest(self) -> None:
        """Wait until only the newest moments are kept, and the files of the others are gone."""
        deadline_s = time.monotonic() + 120
        while time.monotonic() < deadline_s:
            files = self.files()
            if self.size() <= 3 and (files is None or len(files) <= 40):
                return
            time.sleep(0.2)
        kinds = Counter(path.suffix for path in self.files() or ())
        raise AssertionError(f"{self.size()} snapshots are left, and files: {kinds}")

    def files(self) -> list[Path] | None:
        """The files of the tables on disk; None on an object store."""
        if not self.stack.warehouse_root.startswith("file:"):
            return None
        root = Path(self.stack.warehouse_root.removeprefix("file://"))
        return [path for path in root.rglob("*") if path.is_file() and "/long/" in str(path)]
