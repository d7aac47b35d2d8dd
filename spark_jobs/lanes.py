"""A lane: where a worker lands one job at a time. Its Spark session, its transaction, its catalogs.

Each lane has a session of its own (`newSession`), so that views and the settings that mark snapshots do not
mix. The name of its transaction stays the same, so Spark builds the catalog of a warehouse once.
"""

from __future__ import annotations

import re
import threading
from dataclasses import replace

from pyspark.sql import SparkSession

from spark_jobs.job import Job
from spark_jobs.server import Server
from spark_jobs.session import S3Options, attach
from spark_jobs.staged import Store
from spark_jobs.targets import BATCH_ID

# What the rows of a batch rely on, whatever session the lane comes from.
SETTINGS = {"spark.sql.caseSensitive": "true", "spark.sql.session.timeZone": "UTC"}
# A store that hangs is noticed within a minute: by default Iceberg waits 30 s, six times, with pauses. The
# job is tried again anyway, and until it fails nobody can say what is the matter.
STORE_PATIENCE = {
    "http-client.apache.connection-timeout-ms": "5000",
    "http-client.apache.socket-timeout-ms": "15000",
    "s3.retry.num-retries": "2",
    "s3.retry.min-wait-ms": "250",
    "s3.retry.max-wait-ms": "5000",
}
_SNAPSHOT_PROPERTY = "spark.sql.iceberg.snapshot-property"
WATERMARK = "calve.watermark"


class Stores:
    """The object store of each warehouse: what the worker was told, and what the server says."""

    def __init__(self, server: Server, s3: S3Options | None, *, shares_disk: bool) -> None:
        self._server = server
        self._s3 = s3
        self._shares_disk = shares_disk
        self._found: dict[str, tuple[S3Options | None, Store]] = {}
        self._lock = threading.Lock()

    def of(self, warehouse: str) -> tuple[S3Options | None, Store]:
        with self._lock:
            if warehouse not in self._found:
                s3 = self._options(warehouse)
                self._found[warehouse] = (s3, Store(s3, shares_disk=self._shares_disk))
            return self._found[warehouse]

    def _options(self, warehouse: str) -> S3Options | None:
        said = self._server.config(warehouse)
        known = self._s3 or S3Options()
        endpoint, region = said.get("s3.endpoint"), said.get("s3.region", said.get("client.region"))
        if self._s3 is None and endpoint is None and region is None:
            return None
        return replace(known, endpoint=known.endpoint or endpoint, region=known.region or region)


class Lane:
    def __init__(self, root: SparkSession, server: Server, stores: Stores, worker: str, slot: int) -> None:
        self.spark = root.newSession()
        for key, value in SETTINGS.items():
            self.spark.conf.set(key, value)
        self.transaction = f"{worker}-{slot}"
        self._server = server
        self._stores = stores
        self._slot = slot
        self._catalogs: dict[str, str] = {}
        self.said: dict[str, str] = {}  # in the summary of every snapshot

    def catalog(self, warehouse: str) -> str:
        """The name of the catalog that stands for this lane's transaction in a warehouse."""
        if warehouse not in self._catalogs:
            name = f"calve_{self._slot}"
            if warehouse != "main":
                name += f"_{len(self._catalogs)}_{re.sub(r'[^a-z0-9]', '_', warehouse.lower())}"
            self._attach(name, warehouse)
            self._catalogs[warehouse] = name
        return self._catalogs[warehouse]

    def _attach(self, name: str, warehouse: str) -> None:
        s3, _ = self._stores.of(warehouse)
        credentials = self._server.credentials
        attach(
            self.spark,
            name,
            self._server.uri,
            warehouse=f"{warehouse}~{self.transaction}",
            token=credentials.token,
            credential=credentials.credential,
            s3=s3,
        )
        # A warehouse may be on files though the worker knows of an object store: each location decides.
        self.spark.conf.set(f"spark.sql.catalog.{name}.io-impl", "org.apache.iceberg.io.ResolvingFileIO")
        for key, value in STORE_PATIENCE.items():
            self.spark.conf.set(f"spark.sql.catalog.{name}.{key}", value)
        # Else a call after each scan and each commit, whose answer nobody reads.
        self.spark.conf.set(f"spark.sql.catalog.{name}.rest-metrics-reporting-enabled", "false")

    def store(self, warehouse: str) -> Store:
        return self._stores.of(warehouse)[1]

    def mark(self, job: Job) -> None:
        """Every snapshot of this lane names the batch from now on."""
        self.said = {BATCH_ID: job.batch_id}
        if job.watermark is not None:
            self.said[WATERMARK] = job.watermark
        for name in (BATCH_ID, WATERMARK):
            self.spark.conf.unset(f"{_SNAPSHOT_PROPERTY}.{name}")
        for name, value in self.said.items():
            self.spark.conf.set(f"{_SNAPSHOT_PROPERTY}.{name}", value)
