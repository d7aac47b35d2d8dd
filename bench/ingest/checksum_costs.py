"""Measures what kept checksums and the identity layer cost: processor time for 10,000 rows.

    python -m bench.ingest.checksum_costs

A landing task runs without Spark on a mirror of 20,000 rows, with batches that update rows, with checksums
and without. The identity layer is what the staging process does before it types the changes.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

from bench.ingest import costs
from spark_jobs.landing import task
from tests.clients.pipeline_events import Event, insert, update
from tests.unit.spark_jobs.task_table import TaskTable

COLUMNS = {"id": "long", "customer": "long", "status": "string", "amount": "double", "note": "string"}
MIRROR_ROWS = 20_000
ROUNDS = 9
ROWS = 10_000


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="calve-bench-checksums-") as folder:
        for batch_rows in (1_000, ROWS):
            without_ms, with_ms = (_task_ms(Path(folder), batch_rows, keep) for keep in (False, True))
            added_ms = with_ms - without_ms
            print(
                f"landing task, {batch_rows:,} rows: {without_ms:.1f} ms without checksums, {with_ms:.1f} ms "
                f"with: {added_ms * ROWS / batch_rows:+.1f} ms for {ROWS:,} rows"
            )
        steps = costs.of_landing(ROWS, Path(folder))
    for step in ("order, repeats", "checks, watermarks"):
        print(f"identity layer, {step}: {steps[step] * ROWS / 1000:.1f} ms for {ROWS:,} rows")


def _row(number: int, version: int) -> dict[str, object]:
    return {
        "id": number,
        "customer": number % 997,
        "status": "paid" if version % 2 else "open",
        "amount": number % 1000 + version % 100 / 100,
        "note": f"order {number}, version {version}, of some length as rows have it",
    }


def _task_ms(folder: Path, batch_rows: int, keep: bool) -> float:
    """The processor time of the task: the median of some batches, each of which is committed."""
    table = TaskTable(folder, COLUMNS, staged_group_rows=100_000)
    events: list[Event] = [insert(**_row(number, 0)) for number in range(MIRROR_ROWS)]
    table.commit([task.run(item) for item in table.items(events)])
    taken = []
    for version in range(1, ROUNDS + 1):
        first = version * 37 % (MIRROR_ROWS - batch_rows)
        batch = [update(**_row(number, version)) for number in range(first, first + batch_rows)]
        (item,) = table.items(batch)
        item = item.model_copy(update={"job": item.job.model_copy(update={"checksums": keep})})
        began = time.process_time()
        results = [task.run(item)]
        taken.append((time.process_time() - began) * 1000)
        table.commit(results)
    return statistics.median(taken)


if __name__ == "__main__":
    main()
