"""A table that is written to for ever stays small, and every kept moment can be read in full.

The periods of the policy are scaled down, so that a few minutes pass through all tiers.
"""

from __future__ import annotations

import random
import time
from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from pyiceberg.exceptions import NoSuchTableError, RESTError

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
        Run(stack, seed=3).write_and_kill(3)


@pytest.mark.proof
@pytest.mark.parametrize("stack_name", STACKS)
def test_100_kills_during_maintenance(stack_name: StackName, stacks: Stacks, tmp_path: Path) -> None:
    with stacks.started(stack_name, tmp_path, SETTINGS) as stack:
        Run(stack, seed=4).write_and_kill(100)


Rows = list[tuple[Any, ...]]
Content = tuple[int | None, Rows]  # the snapshot of a table, and its rows


@dataclass(frozen=True, slots=True)
class State:
    """Both tables after a publish. Expiry may commit as well before `number` is read, so the publish itself
    has this number or an earlier one, and a later one than the state before.
    """

    number: int
    contents: tuple[Content, ...]


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
        empty: Content = (None, [])
        self.states = [State(self.rest.head(), (empty, empty))]

    def write(self, publishes: int) -> None:
        sizes = []
        for number in range(publishes):
            self.publish(number)
            if number % 10 == 9:
                self.read(self.random.choice(self.states))
            if number % (publishes // 5) == publishes // 5 - 1:
                sizes.append(self.size())
        self.read_recent_moments()
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
            self.read(self.random.choice(self.states))
        self.read_recent_moments()
        self.at_rest()

    def publish(self, number: int) -> None:
        which = number % 2
        table = self.tables[which]
        row = (number, self.random.randint(0, 10**9))
        arrow = pa.table({"id": [row[0]], "round": [row[1]]})
        contents = list(self.states[-1].contents)
        table.refresh()
        if number % 20 >= 18:
            table.overwrite(arrow)
            rows = [row]
        else:
            table.append(arrow)
            rows = sorted([*contents[which][1], row], key=repr)
        snapshot = table.current_snapshot()
        assert snapshot is not None
        contents[which] = (snapshot.snapshot_id, rows)
        self.states.append(State(self.rest.head(), tuple(contents)))

    def read(self, requested: State) -> bool:
        """A reader of a moment sees the state of the kept moment that it is told. False: it is not kept."""
        shown = self.shown(requested.number)
        if shown is None or shown < self.states[0].number:
            return False  # not kept, or from before the tables
        assert shown <= requested.number
        try:
            reader = pyiceberg_client.catalog(self.stack, f"main@{shown}")
            tables = [reader.load_table(f"long.t{i}") for i in (1, 2)]
            found = tuple(
                (table.metadata.current_snapshot_id, pyiceberg_client.rows(table)) for table in tables
            )
        except (RESTError, NoSuchTableError, OSError):
            # The periods are seconds here: the moment may end during the read, and its files be deleted.
            if self.shown(shown) == shown:
                raise
            return False
        known = bisect_right([state.number for state in self.states], shown)
        assert found in [state.contents for state in self.states[max(0, known - 1) : known + 1]], (
            f"at {shown}"
        )
        return True

    def shown(self, requested: int) -> int | None:
        """The kept moment that the server shows for a number. None: it is older than all of them."""
        answer = httpx.get(
            f"{self.stack.url}/v1/config", params={"warehouse": f"main@{requested}"}, timeout=60
        )
        if answer.status_code == 404:
            assert "not kept any more" in answer.json()["error"]["message"]
            return None
        shown = int(answer.headers["Calve-Moment"])
        assert answer.json()["overrides"]["prefix"] == f"main@{shown}"
        return shown

    def read_recent_moments(self) -> None:
        for state in self.states[-60::3]:
            self.read(state)

    def size(self) -> int:
        return max(len(self.rest.load("long", f"t{i}")["metadata"]["snapshots"]) for i in (1, 2))

    def at_rest(self) -> None:
        """Wait until only the newest moments are kept, the files of the others are gone, and the newest
        moment has been read. Expiry may commit meanwhile, so another number may be the newest.
        """
        deadline_s = time.monotonic() + 120
        while time.monotonic() < deadline_s:
            files = self.files()
            newest = State(self.rest.head(), self.states[-1].contents)
            if self.size() <= 3 and (files is None or len(files) <= 40) and self.read(newest):
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
