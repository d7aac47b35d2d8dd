"""The Spark session, storage, commits and SQL catalogs of one worker slot.

Each slot has its own session (`newSession`), so that views and settings do not mix. The name of its
transaction stays the same, so Spark builds the catalog of a warehouse once.
"""

from __future__ import annotations

import re
import threading
from dataclasses import replace
from typing import Any

from pyiceberg.io import FileIO
from pyspark.sql import SparkSession

from spark_jobs.server_client import Server
from spark_jobs.session import S3Options, attach
from spark_jobs.tables.commit import Committer, committer_of
from spark_jobs.tables.data_files import file_io

# Settings that affect the rows of a batch, in every session of a slot.
SETTINGS = {"spark.sql.caseSensitive": "true", "spark.sql.session.timeZone": "UTC"}
# A store that hangs is noticed within a minute: by default Iceberg waits 30 s, six times, with pauses. The
# job is retried anyway, and until it fails there is no error to report.
STORE_PATIENCE = {
    "http-client.apache.connection-timeout-ms": "5000",
    "http-client.apache.socket-timeout-ms": "15000",
    "s3.retry.num-retries": "2",
    "s3.retry.min-wait-ms": "250",
    "s3.retry.max-wait-ms": "5000",
}
_SNAPSHOT_PROPERTY = "spark.sql.iceberg.snapshot-property"


class Stores:
    """How to reach the object store of each warehouse: the worker's settings, completed by the server's
    configuration.
    """

    def __init__(self, server: Server, s3: S3Options | None) -> None:
        self._server = server
        self._s3 = s3
        self._found: dict[str, S3Options | None] = {}
        self._lock = threading.Lock()

    def options(self, warehouse: str) -> S3Options | None:
        with self._lock:
            if warehouse not in self._found:
                self._found[warehouse] = self._options(warehouse)
            return self._found[warehouse]

    def io_properties(self, warehouse: str) -> dict[str, str]:
        """Return properties for PyIceberg, in the driver and in tasks."""
        s3 = self.options(warehouse)
        return s3.io_properties() if s3 is not None else {}

    def io(self, warehouse: str) -> FileIO:
        return file_io(self.io_properties(warehouse))

    def _options(self, warehouse: str) -> S3Options | None:
        config = self._server.config(warehouse)
        known = self._s3 or S3Options()
        endpoint, region = config.get("s3.endpoint"), config.get("s3.region", config.get("client.region"))
        if self._s3 is None and endpoint is None and region is None:
            return None
        return replace(known, endpoint=known.endpoint or endpoint, region=known.region or region)


class SlotSession:
    def __init__(self, root: SparkSession, server: Server, stores: Stores, worker: str, slot: int) -> None:
        self.spark = root.newSession()
        for key, value in SETTINGS.items():
            self.spark.conf.set(key, value)
        self.transaction = f"{worker}-{slot}"
        self.stores = stores
        self._server = server
        self._slot = slot
        self._catalogs: dict[str, str] = {}
        self._java_io: dict[tuple[str, str], Any] = {}

    @property
    def committer(self) -> Committer:
        return committer_of(self.spark.sparkContext)

    def java_io(self, warehouse: str, *, storage_class: str = "") -> Any:
        """Return Iceberg's FileIO for a warehouse. `storage_class` is that of new objects in S3."""
        key = (warehouse, storage_class)
        if key not in self._java_io:
            s3 = self.stores.options(warehouse)
            properties = {**STORE_PATIENCE, **(s3.java_properties() if s3 is not None else {})}
            if storage_class:
                properties["s3.write.storage-class"] = storage_class
            self._java_io[key] = self.committer.file_io(properties)
        return self._java_io[key]

    def catalog(self, warehouse: str) -> str:
        """Return the name of the catalog for this slot's transaction in a warehouse."""
        if warehouse not in self._catalogs:
            name = f"calve_{self._slot}"
            if warehouse != "main":
                name += f"_{len(self._catalogs)}_{re.sub(r'[^a-z0-9]', '_', warehouse.lower())}"
            self._attach(name, warehouse)
            self._catalogs[warehouse] = name
        return self._catalogs[warehouse]

    def _attach(self, name: str, warehouse: str) -> None:
        credentials = self._server.credentials
        attach(
            self.spark,
            name,
            self._server.uri,
            warehouse=f"{warehouse}~{self.transaction}",
            token=credentials.token,
            credential=credentials.credential,
            s3=self.stores.options(warehouse),
        )
        # A warehouse may use local files although the worker has settings for an object store: each location
        # decides.
        self.spark.conf.set(f"spark.sql.catalog.{name}.io-impl", "org.apache.iceberg.io.ResolvingFileIO")
        for key, value in STORE_PATIENCE.items():
            self.spark.conf.set(f"spark.sql.catalog.{name}.{key}", value)
        # Otherwise Iceberg sends a request after each scan and each commit, whose response is not used.
        self.spark.conf.set(f"spark.sql.catalog.{name}.rest-metrics-reporting-enabled", "false")

    def mark(self, summary: dict[str, str]) -> None:
        """Set the summary of the snapshots that later SQL statements create."""
        for name, value in summary.items():
            self.spark.conf.set(f"{_SNAPSHOT_PROPERTY}.{name}", value)
