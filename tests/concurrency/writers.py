"""Writer processes on one table, from their start to the ledgers that they leave.

writers = Writers(stack, tmp_path, seed=7)
writers.start(8, acked_max=20, cut_share=0.05)
writers.wait()
print(verified(stack, writers))
"""

from __future__ import annotations

import dataclasses
import json
import sys
import uuid
from pathlib import Path
from typing import Any

from tests.concurrency.writer import Orders
from tests.harness.components import ROOT
from tests.harness.process import Child
from tests.harness.rest import Rest
from tests.harness.stacks import Stack


class Writers:
    """Writers of one table `t`; each has a table `side<number>` of its own beside it."""

    def __init__(self, stack: Stack, folder: Path, *, seed: int) -> None:
        self.stack = stack
        self.seed = seed
        self.table = "t"
        self.folder = folder / f"writers-{uuid.uuid4().hex[:6]}"
        self.folder.mkdir(parents=True)
        self.namespace = Rest(stack.url).fresh_namespace()
        self._stop_file = self.folder / "stop"
        self._writers: list[Child] = []

    def start(self, writers: int, **orders: Any) -> None:
        rest = Rest(self.stack.url)
        rest.create(self.namespace, self.table)
        for number in range(writers):
            rest.create(self.namespace, f"side{number}")
        for number in range(writers):
            told = Orders(
                port=self.stack.server.port,
                ledger=str(self.folder / f"{number}.ledger"),
                namespace=self.namespace,
                table=self.table,
                number=number,
                seed=self.seed,
                stop_file=str(self._stop_file),
                **orders,
            )
            command = [sys.executable, "-m", "tests.concurrency.writer", json.dumps(dataclasses.asdict(told))]
            writer = Child(command, log=self.folder / f"writer{number}.log", folder=ROOT)
            writer.start(lambda: True)
            self._writers.append(writer)

    def wait(self, timeout_s: float = 3600) -> None:
        """Until every writer has done its part."""
        for writer in self._writers:
            code = writer.wait(timeout_s)
            assert code == 0, f"a writer ended with {code}:\n{writer.tail()}"

    def stop(self) -> None:
        """Let the writers finish what they are at."""
        self._stop_file.touch()
        self.wait(120)

    def kill(self) -> None:
        for writer in self._writers:
            writer.kill()

    @property
    def tables(self) -> list[str]:
        return [self.table, *(f"side{number}" for number in range(len(self._writers)))]

    def lines(self) -> list[dict[str, Any]]:
        """All lines of all ledgers so far; a line that is being written is left out."""
        found = []
        for path in sorted(self.folder.glob("*.ledger")):
            whole = path.read_text(encoding="utf-8").rpartition("\n")[0]
            found += [json.loads(line) for line in whole.splitlines()]
        return found
