"""The archive of changes by a real worker: old rows move to other files, and queries see the same rows."""

from __future__ import annotations

import datetime
import time
import uuid
from collections.abc import Callable
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.compute as pc

from tests.clients import pyiceberg_client
from tests.harness.rest import Rest
from tests.pipeline.conftest import Pipeline
from tests.pipeline.producer import Producer
from tests.pipeline.test_compaction import wait_for

STORAGE_CLASS = "STANDARD_IA"
OLD_FILES = 3


def aged(rows: pa.Table, days: int) -> pa.Table:
    """The same changes, as if they had been published some days ago."""
    place = rows.schema.get_field_index("_commit_timestamp")
    times = pc.subtract(rows.column(place), pa.scalar(datetime.timedelta(days=days)))
    return rows.set_column(place, rows.schema.field(place), times.cast(rows.schema.field(place).type))


def test_old_changes_are_archived_by_the_worker(
    pipeline: Pipeline, produced: Callable[[Pipeline, str], Producer]
) -> None:
    space = f"n{uuid.uuid4().hex[:8]}"
    shop = produced(pipeline, f"shop-{space}")
    events = [shop.event("INSERT", f"{space}.orders", None, {"id": id_, "n": id_}) for id_ in range(20)]
    shop.send(events, wait="commit", timeout_s=60)
    table = pyiceberg_client.catalog(pipeline.stack).load_table((space, "orders__changes"))
    young = table.scan().to_arrow()
    for days in range(10, 10 + OLD_FILES):
        table.append(aged(young, days))
    before = pyiceberg_client.rows(table)
    assert len(before) == 20 * (1 + OLD_FILES)

    cold = f"{pipeline.stack.warehouse_root}/cold"
    policy: dict[str, Any] = {"archive-after-days": 1, "archive-location": cold}
    address = f"{pipeline.url}/lake/v1/main/namespaces/{space}/tables/orders__changes/maintenance"
    refused = httpx.put(address, json={**policy, "archive-storage-class": "DEEP_ARCHIVE"}, timeout=60)
    assert refused.status_code == 400
    chosen = httpx.put(address, json={**policy, "archive-storage-class": STORAGE_CLASS}, timeout=60)
    if pipeline.stack.s3 is None:
        assert (chosen.status_code, "on S3" in chosen.text) == (400, True)
        chosen = httpx.put(address, json=policy, timeout=60)
    chosen.raise_for_status()
    wait_for(lambda: httpx.get(address, timeout=60).json()["health"]["archived-before"])

    table.refresh()
    assert pyiceberg_client.rows(table) == before
    counted = pipeline.rows(f"SELECT count(*), count(DISTINCT id) FROM lake.{space}.orders__changes")
    assert counted == [(len(before), 20)]
    paths = table.inspect.data_files()["file_path"].to_pylist()
    archived = [path for path in paths if "/cold/" in path]
    assert (len(archived), len(paths)) == (OLD_FILES, OLD_FILES + 1)

    rest = Rest(pipeline.url)
    rest.ok("DELETE", rest.table_path(space, "orders__changes"), params={"purgeRequested": "true"})
    files = table.io
    until_s = time.monotonic() + 60
    while any(files.new_input(path).exists() for path in archived):
        assert time.monotonic() < until_s, "the purge left files of the archive"
        time.sleep(0.1)
