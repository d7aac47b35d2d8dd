"""The files of a table do not grow with the square of time: what a publish writes, and what it deletes."""

from __future__ import annotations

import contextlib
import stat
import time
import uuid
from collections import Counter
from pathlib import Path

import httpx
import pytest

from tests.harness.stacks import Stacks
from tests.pipeline.conftest import Pipeline
from tests.pipeline.own import own_pipeline
from tests.pipeline.producer import Producer

PUBLISHES = 24
TABLES = ("orders", "customers")
SNAPSHOT_FILES_MAX = 3  # the manifest list of a snapshot and its new manifests
FILES_MAX = 12  # that a publish writes for a mirror with its changes table
METADATA_FILES_MAX = 21  # the current one and the newest 20 before it


def kind_of(file: Path) -> str:
    """What a file is, by its name."""
    if file.name.endswith(".metadata.json"):
        return "metadata"
    if file.suffix == ".avro":
        return "manifest list" if file.name.startswith("snap-") else "manifest"
    if file.name.endswith("-deletes.parquet"):
        return "deletes"
    return file.suffix.removeprefix(".")


class Files:
    """The files of a namespace, with their sizes; the server may delete some meanwhile."""

    def __init__(self, namespace: Path) -> None:
        self.sizes: dict[Path, int] = {}
        for file in namespace.rglob("*"):
            with contextlib.suppress(FileNotFoundError):
                if not stat.S_ISDIR((found := file.stat()).st_mode):
                    self.sizes[file] = found.st_size

    def counts(self) -> Counter[str]:
        return Counter(kind_of(file) for file in self.sizes)

    def metadata_files(self) -> Counter[str]:
        """How many metadata files each table has."""
        return Counter(file.parent.parent.name for file in self.sizes if kind_of(file) == "metadata")


def counter(url: str, name: str) -> float:
    lines = httpx.get(f"{url}/metrics", timeout=30).raise_for_status().text.splitlines()
    (line,) = (line for line in lines if line.startswith(f"{name} "))
    return float(line.removeprefix(name))


def settled(namespace: Path, *, timeout_s: float = 30) -> Files:
    """The files once the last publish has deleted what it made outdated, which it does after its answer."""
    until_s = time.monotonic() + timeout_s
    while True:
        found = Files(namespace)
        if max(found.metadata_files().values()) <= METADATA_FILES_MAX or time.monotonic() > until_s:
            return found
        time.sleep(0.1)


def test_a_publish_writes_few_files_and_old_metadata_files_are_deleted(
    stacks: Stacks, tmp_path: Path
) -> None:
    space = f"n{uuid.uuid4().hex[:8]}"
    # A compaction writes files as well.
    settings = {"CALVE_MAINTENANCE": "false"}
    with own_pipeline(stacks, "embedded", tmp_path, settings, only="landing") as pipeline:
        namespace = Path(pipeline.stack.warehouse_root.removeprefix("file://")) / space
        producer = Producer(pipeline.url, f"shop-{space}")
        before = Files(namespace)
        numbers = []
        for batch in range(PUBLISHES):
            events = [
                producer.event("INSERT", f"{space}.{table}", None, {"id": id_, "amount": batch})
                for table in TABLES
                for id_ in (batch, batch + 1_000)
            ]
            events += [
                producer.event(
                    "UPDATE", f"{space}.{table}", {"id": batch - 1}, {"id": batch - 1, "amount": -1}
                )
                for table in TABLES
                if batch
            ]
            answer = producer.send(events, wait="commit", timeout_s=60)
            numbers.append(answer["snapshots"][0]["number"])
            after = Files(namespace)
            written = [size for file, size in after.sizes.items() if file not in before.sizes]
            print(
                f"publish {batch}: {len(written)} files with {sum(written)} bytes; "
                f"{len(after.sizes)} files with {sum(after.sizes.values())} bytes: {dict(after.counts())}"
            )
            assert len(written) <= FILES_MAX * len(TABLES)
            before = after
        producer.client.close()
        after = settled(namespace)
        assert sorted(after.metadata_files().values()) == [METADATA_FILES_MAX] * 2 * len(TABLES)
        assert len(set(numbers)) == PUBLISHES
        counts, snapshots = after.counts(), PUBLISHES * 2 * len(TABLES)
        assert counter(pipeline.url, "calve_landing_files_total") == counts["parquet"] + counts["deletes"]
        parquet_bytes = sum(size for file, size in after.sizes.items() if file.suffix == ".parquet")
        assert counter(pipeline.url, "calve_landing_bytes_total") == parquet_bytes
        assert counter(pipeline.url, "calve_landing_change_bytes_total") > 0
        assert counts["manifest list"] == snapshots
        assert counts["manifest list"] + counts["manifest"] <= SNAPSHOT_FILES_MAX * snapshots
        assert after.counts()["crc"] == 0
        for place in (0, 1, PUBLISHES // 2, PUBLISHES - 1):
            rows = pipeline.rows(
                f"SELECT count(*), count(*) FILTER (amount = -1) FROM lake.{space}.orders",
                f"main@{numbers[place]}",
            )
            assert rows == [(2 * (place + 1), place)]


@pytest.mark.parametrize("pipeline", ["embedded"], indirect=True)
def test_executors_write_no_checksum_files(pipeline: Pipeline) -> None:
    space = f"n{uuid.uuid4().hex[:8]}"
    namespace = Path(pipeline.stack.warehouse_root.removeprefix("file://")) / space
    producer = Producer(pipeline.url, f"shop-{space}")
    settings = f"/lake/v1/main/namespaces/{space}/tables/t/ingest"
    # Spark's executors write the files of format version 3, also where a batch is small.
    assert producer.client.put(settings, json={"format-version": 3}).status_code == 200
    for batch in range(2):
        row = {"id": 1, "amount": batch}
        producer.send([producer.event("UPDATE", f"{space}.t", {"id": 1}, row)], wait="commit", timeout_s=60)
    producer.client.close()
    counts = Files(namespace).counts()
    assert counts["puffin"] > 0, counts
    assert counts["crc"] == 0, counts
