"""The archive of a changes table: other files with the same rows, in another place, and batches go on."""

from __future__ import annotations

import re
import socket
import time
import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

from spark_jobs.maintenance import steps as maintenance
from spark_jobs.messages import parsed
from spark_jobs.server_client import Server, TableChanged
from spark_jobs.slot_session import SlotSession, Stores
from spark_jobs.tables.commit import quoted
from tests.clients import pyiceberg_client
from tests.clients.duckdb_client import DuckLake
from tests.clients.pipeline_events import insert, update
from tests.clients.pipeline_fixtures import pipeline, pipeline_slots
from tests.clients.pipeline_lake import PipelineLake, PipelineTable, PlainServer
from tests.clients.pipeline_staged import STAMP_US
from tests.clients.spark_client import s3_options
from tests.harness.tcp_proxy import Fault, TcpProxy

__all__ = ["pipeline", "pipeline_slots"]
# PySpark leaves the socket that rows came through to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")

DAY_US = 86_400_000_000
POLICY = {"small-files-min": 2, "delete-files-max": 8, "delete-ratio": 0.2, "target-bytes": 128 * 2**20}
Rows = list[dict[str, Any]]


def step(
    table: PipelineTable,
    action: str,
    path: str,
    *,
    first: bool = False,
    server: Server | None = None,
    session: SlotSession | None = None,
    storage_class: str = "",
) -> dict[str, Any]:
    """A step of maintenance, as the server would describe it. Changes of the first five days are old."""
    pipeline = table.lake
    archive = {
        "column": "_commit_timestamp",
        "before-us": STAMP_US // DAY_US * DAY_US + 5 * DAY_US,
        "sort": ["_commit_timestamp", "_order"],
        "path": path,
        "properties": {"calve.archive.path": path} if first else {},
        "compression-level": 12,
        "storage-class": storage_class,
    }
    described = {
        "id": "j",
        "epoch": 1,
        "warehouse": "main",
        "namespace": [pipeline.namespace],
        "name": f"{table.name}__changes",
        "actions": [action],
        "policy": POLICY,
        "step-bytes-max": 32 * 2**20,
        "sort": ["_commit_timestamp"],
        "archive": archive,
    }
    job = parsed(maintenance.MaintenanceJob, described)
    worker = maintenance.MaintenanceStep(server or pipeline.slot.server, session or pipeline.slot.session)
    return worker.run(job)


def land(table: PipelineTable, days: list[int]) -> None:
    for number, day in enumerate(days):
        stamp = {"commit-timestamp-us": STAMP_US + day * DAY_US + number * 1_000_000}
        keys = range(10 * number, 10 * number + 10)
        table.land(*(insert(id=key, name=f"a name {key}") for key in keys), job=stamp)


def rows(table: PipelineTable) -> Rows:
    return sorted(table.changes(), key=lambda row: row["_event_id"])


def files(table: PipelineTable) -> dict[str, int]:
    """The data files of the changes table with their rows."""
    name = (table.lake.namespace, f"{table.name}__changes")
    loaded = pyiceberg_client.catalog(table.lake.stack).load_table(name)
    found = loaded.inspect.data_files().select(["file_path", "record_count"]).to_pylist()
    return {plain(one["file_path"]): one["record_count"] for one in found}


def plain(location: str) -> str:
    """Without its scheme: Iceberg writes file:/a for file:///a."""
    return ("" if location.startswith("s3") else "/") + location.partition(":")[2].lstrip("/")


def read(pipeline: PipelineLake, path: str) -> tuple[str, list[Any]]:
    """The compression of a file, and the times of its rows."""
    with pipeline._files().open_input_file(path) as source:
        file = pq.ParquetFile(source)
        times = file.read(["_commit_timestamp"]).column(0).to_pylist()
        return file.metadata.row_group(0).column(0).compression, times


def wait_until_empty(pipeline: PipelineLake, location: str) -> None:
    folder = pafs.FileSelector(plain(location), recursive=True, allow_not_found=True)
    until_s = time.monotonic() + 60
    while any(one.is_file for one in pipeline._files().get_file_info(folder)):
        assert time.monotonic() < until_s, "the purge did not delete the archive"
        time.sleep(0.1)


def test_old_changes_move_and_nothing_else_changes(pipeline: PipelineLake, duck: DuckLake) -> None:
    # Deletes are files in version 2 and vectors in version 3.
    version = 2 if pipeline.stack.s3 else 3
    table = pipeline.table({"id": "long", "name": "string"}, format_version=version)
    land(table, [0, 0, 0, 1, 1, 7])
    name = f"{table.name}__changes"
    catalog = maintenance.MaintenanceStep(pipeline.slot.server, pipeline.slot.session).catalog("main")
    pipeline.slot.session.spark.sql(f"DELETE FROM {quoted(catalog, pipeline.namespace, name)} WHERE id = 3")
    before = rows(table)
    assert len(before) == 59
    path = f"{pipeline.stack.warehouse_root}/cold/{pipeline.namespace}/{name}"

    done = step(table, "archive", path, first=True)
    assert (done["rewritten-data-files"], done["added-data-files"], done["files-left"]) == (3, 1, 2)
    done = step(table, "archive", path)
    assert (done["rewritten-data-files"], done["added-data-files"], done["files-left"]) == (2, 1, 0)
    assert "rewritten-data-files" not in step(table, "archive", path)

    assert rows(table) == before
    _, counted = duck.named(f"SELECT count(*), count(DISTINCT id) FROM lake.{pipeline.namespace}.{name}")
    assert counted == [(59, 59)]
    metadata = pipeline.rest.load(pipeline.namespace, name)["metadata"]
    assert metadata["properties"]["calve.archive.path"] == path
    assert metadata["snapshots"][-1]["summary"]["operation"] == "replace"
    found = files(table)
    moved = {one for one in found if one.startswith(f"{plain(path)}/")}
    assert sorted(found[one] for one in moved) == [20, 29]
    (young,) = found.keys() - moved
    assert young.startswith(f"{plain(metadata['location'])}/")
    for one in moved:
        compression, times = read(pipeline, one)
        assert (compression, times) == ("ZSTD", sorted(times))

    # Batches go on, compaction leaves the archive alone, and a purge deletes it.
    for number in (0, 1):
        stamp = {"commit-timestamp-us": STAMP_US + 8 * DAY_US + number}
        table.land(update(id=1, name=f"changed {number}"), job=stamp)
    assert step(table, "compact", path)["rewritten-data-files"] == 2
    assert moved <= files(table).keys()
    assert len(rows(table)) == 61
    purge = {"purgeRequested": "true"}
    pipeline.rest.ok("DELETE", pipeline.rest.table_path(pipeline.namespace, name), params=purge)
    wait_until_empty(pipeline, path)


class Interrupted(PlainServer):
    """Lands a batch just before a commit."""

    def __init__(self, url: str, table: PipelineTable) -> None:
        super().__init__(url)
        self.table = table

    def commit(self, prefix: str, changes: Sequence[Any]) -> None:
        self.table.land(insert(id=100, name="late"))
        super().commit(prefix, changes)


def test_a_step_gives_way_to_a_commit_in_between(pipeline: PipelineLake) -> None:
    table = pipeline.table({"id": "long", "name": "string"})
    land(table, [0, 0])
    location = pipeline.rest.load(pipeline.namespace, f"{table.name}__changes")["metadata"]["location"]
    server = Interrupted(pipeline.stack.url, table)
    with pytest.raises(TableChanged):
        step(table, "archive", f"{location}/archive", server=server)
    server.close()
    assert len(rows(table)) == 21
    done = step(table, "archive", f"{location}/archive")
    assert (done["rewritten-data-files"], done["files-left"]) == (3, 0)
    assert len(rows(table)) == 21


class Recorded(TcpProxy):
    """Keeps what passes to the S3 server."""

    def __init__(self, endpoint: str) -> None:
        host, _, port = endpoint.removeprefix("http://").partition(":")
        self.sent = b""
        super().__init__((host, int(port)))

    def _request(
        self, client: socket.socket, upstream: socket.socket, piece: bytes, fault: Fault | None
    ) -> bool:
        self.sent += piece
        return super()._request(client, upstream, piece, fault)

    def storage_classes(self) -> dict[str, set[str | None]]:
        """The storage classes of the objects that were written, by the extension of their names."""
        found: dict[str, set[str | None]] = {}
        for path, head in re.findall(rb"PUT (\S+) HTTP/1\.1\r\n(.*?)\r\n\r\n", self.sent, re.DOTALL):
            given = re.search(rb"(?i)x-amz-storage-class: *(\S+)", head)
            extension = path.decode().rpartition(".")[2]
            found.setdefault(extension, set()).add(given[1].decode() if given else None)
        return found


@pytest.mark.parametrize("stack", ["postgres-s3"], indirect=True)
def test_only_data_files_get_the_storage_class_of_the_archive(pipeline: PipelineLake) -> None:
    """The requests show it: the S3 server of the tests has one class only."""
    table = pipeline.table({"id": "long", "name": "string"})
    land(table, [0, 0, 7])
    path = f"{pipeline.stack.warehouse_root}/cold/{pipeline.namespace}/{table.name}"
    options, slot = s3_options(pipeline.stack), pipeline.slot
    assert options is not None
    assert pipeline.stack.s3 is not None
    with Recorded(pipeline.stack.s3.endpoint) as proxy:
        stores = Stores(slot.server, replace(options, endpoint=proxy.endpoint))
        session = SlotSession(slot.session.spark, slot.server, stores, f"w-{uuid.uuid4().hex[:8]}", 7)
        done = step(table, "archive", path, first=True, session=session, storage_class="STANDARD_IA")
    assert done["rewritten-data-files"] == 2
    assert proxy.storage_classes() == {"parquet": {"STANDARD_IA"}, "avro": {None}}
