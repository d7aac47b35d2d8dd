"""What a run of a year leaves behind: files, documents, rows in SQL, memory."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import httpx
import orjson
import pyarrow.fs as pafs
import sqlalchemy as sa

from tests.harness.rest import Rest
from tests.pipeline.conftest import Pipeline
from tests.pipeline.own import memory_bytes
from tests.pipeline.test_files import kind_of

MIB = 2**20


@dataclass(frozen=True, slots=True)
class Sample:
    """Sizes after some publishes. Times and memory are for people: no test asserts them."""

    publishes: float
    kept_moments: float
    snapshots: float  # of the table that has most
    document_bytes: float  # of the largest document
    database_bytes: float
    metadata_files: float
    manifest_lists: float
    manifests: float
    data_and_delete_files: float  # on disk
    live_data_files: float  # of the current snapshots
    live_delete_files: float
    publish_ms: float
    fresh_ms: float
    server_mib: float
    worker_mib: float

    @classmethod
    def median(cls, samples: Sequence[Sample]) -> Sample:
        return cls(
            **{
                one.name: round(statistics.median(getattr(sample, one.name) for sample in samples), 1)
                for one in fields(cls)
            }
        )

    @property
    def files(self) -> float:
        return self.metadata_files + self.manifest_lists + self.manifests + self.data_and_delete_files


class Measures:
    def __init__(self, pipeline: Pipeline, space: str, tables: Sequence[str]) -> None:
        self._pipeline = pipeline
        self._space = space
        self._tables = [name for table in tables for name in (table, f"{table}__changes")]
        self._rest = Rest(pipeline.url)

    def sample(self, publishes: int, fresh_ms: Sequence[float]) -> Sample:
        documents = [self._rest.load(self._space, table)["metadata"] for table in self._tables]
        summaries = [_current_summary(document) for document in documents]
        kinds = self.kinds()
        return Sample(
            publishes=publishes,
            kept_moments=self._kept_moments(),
            snapshots=max(len(document["snapshots"]) for document in documents),
            document_bytes=max(len(orjson.dumps(document)) for document in documents),
            database_bytes=self._database_bytes(),
            metadata_files=kinds["metadata"],
            manifest_lists=kinds["manifest list"],
            manifests=kinds["manifest"],
            data_and_delete_files=kinds["parquet"] + kinds["deletes"],
            live_data_files=sum(int(one.get("total-data-files", 0)) for one in summaries),
            live_delete_files=sum(int(one.get("total-delete-files", 0)) for one in summaries),
            publish_ms=self._publish_ms(),
            fresh_ms=statistics.median(fresh_ms) if fresh_ms else 0.0,
            server_mib=memory_bytes(self._pipeline.stack.server.pid) / MIB,
            worker_mib=memory_bytes(self._pipeline.worker.pid) / MIB,
        )

    def kinds(self) -> Counter[str]:
        """The files of the mirrors and their changes on disk, by kind."""
        stack = self._pipeline.stack
        root = f"{stack.warehouse_root}/{self._space}".partition("://")[2]
        files: pafs.FileSystem = pafs.LocalFileSystem()
        if stack.s3 is not None:
            files = pafs.S3FileSystem(
                access_key=stack.s3.access_key_id,
                secret_key=stack.s3.secret_access_key,
                endpoint_override=stack.s3.endpoint.removeprefix("http://"),
                scheme="http",
                region=stack.s3.region,
            )
        found = files.get_file_info(pafs.FileSelector(root, recursive=True))
        return Counter(
            kind_of(Path(one.path)) for one in found if one.is_file and "/outside-" not in one.path
        )

    def _kept_moments(self) -> int:
        return int(self._scalar("SELECT count(*) FROM moments WHERE warehouse = 'main'"))

    def _database_bytes(self) -> int:
        if self._pipeline.stack.database.startswith("sqlite"):
            home = Path(self._pipeline.stack.database.removeprefix("sqlite:///")).parent
            return sum(file.stat().st_size for file in home.glob("*.db"))
        return int(self._scalar("SELECT pg_database_size(current_database())"))

    def _scalar(self, query: str) -> int:
        engine = sa.create_engine(self._pipeline.stack.database)
        with engine.connect() as connection:
            found = connection.execute(sa.text(query)).scalar_one()
        engine.dispose()
        return int(found)

    def _publish_ms(self) -> float:
        """From the cut of a batch until it is visible, of the newest batches."""
        address = f"{self._pipeline.url}/lake/v1/main/jobs"
        jobs = httpx.get(address, params={"limit": 20}, timeout=60).raise_for_status().json()["jobs"]
        took = [
            job["finished-ms"] - job["created-ms"]
            for job in jobs
            if job["state"] == "done" and "tables" in job["progress"]
        ]
        return float(statistics.median(took)) if took else 0.0


def _current_summary(document: dict[str, object]) -> dict[str, str]:
    snapshots: list[dict[str, dict[str, str]]] = document["snapshots"]  # type: ignore[assignment]
    current = document["current-snapshot-id"]
    return next((one["summary"] for one in snapshots if one["snapshot-id"] == current), {})


def shown(samples: Sequence[Sample]) -> str:
    """The samples side by side, one line for each measure."""
    lines = [asdict(sample) for sample in samples]
    return "\n".join(f"{name:24}" + "".join(f"{line[name]:>14,.0f}" for line in lines) for name in lines[0])
