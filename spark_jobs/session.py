"""Create a SparkSession for the catalog.

    spark = spark_session("http://127.0.0.1:8181")
    spark.sql("SELECT * FROM lake.sales.orders")

`warehouse` selects a state of a warehouse: `main`, `main@1234`, `main~w1-0`. `attach` adds further catalogs
to a running session. `extra` is applied last and may override any setting.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import SparkSession

from spark_jobs import jars, java

S3_TIMEOUT_S = "20"


class SparkUnavailable(Exception):
    """Spark cannot start on this machine; the message says what is missing."""


@dataclass(frozen=True, slots=True)
class S3Options:
    """How executors reach the object store, where the catalog's own configuration is not enough."""

    endpoint: str | None = None
    region: str | None = None
    access_key_id: str | None = None
    secret_access_key: str | None = field(default=None, repr=False)
    path_style: bool = True

    def io_properties(self) -> dict[str, str]:
        """Return the properties for PyIceberg."""
        given = {
            "s3.endpoint": self.endpoint,
            "s3.region": self.region,
            "s3.access-key-id": self.access_key_id,
            "s3.secret-access-key": self.secret_access_key,
            "s3.force-virtual-addressing": str(not self.path_style).lower(),
            "s3.connect-timeout": S3_TIMEOUT_S,
            "s3.request-timeout": S3_TIMEOUT_S,
        }
        return {name: value for name, value in given.items() if value is not None}

    def java_properties(self) -> dict[str, str]:
        """Return the properties for Iceberg's own FileIO."""
        given = {
            "s3.endpoint": self.endpoint,
            "s3.path-style-access": str(self.path_style).lower(),
            "s3.access-key-id": self.access_key_id,
            "s3.secret-access-key": self.secret_access_key,
            "client.region": self.region,
        }
        return {name: value for name, value in given.items() if value is not None}


def catalog_settings(
    name: str,
    uri: str,
    *,
    warehouse: str = "main",
    token: str | None = None,
    credential: str | None = None,
    s3: S3Options | None = None,
) -> dict[str, str]:
    """Return the Spark settings that make `name` a catalog of the session."""
    properties: dict[str, str | None] = {
        "type": "rest",
        "uri": uri,
        "warehouse": warehouse,
        "token": token,
        "credential": credential,
        "oauth2-server-uri": f"{uri.rstrip('/')}/v1/oauth/tokens" if credential else None,
        # With the cache on, a count after another engine's commit returns the old result.
        "cache-enabled": "false",
        # Otherwise DROP TABLE ... PURGE deletes the files from the client, at once, even inside a
        # transaction.
        "rest-catalog-purge": "true",
    }
    if s3 is not None:
        properties |= {"io-impl": "org.apache.iceberg.aws.s3.S3FileIO", **s3.java_properties()}
    prefix = f"spark.sql.catalog.{name}"
    given = {f"{prefix}.{key}": value for key, value in properties.items() if value is not None}
    return {prefix: "org.apache.iceberg.spark.SparkCatalog", **given}


def session_settings(*, master: str = "local[2]", memory: str = "1g") -> dict[str, str]:
    """Return the settings of the session itself: few log lines, UTC, sizes for small batches, jars from the
    disk.
    """
    # Executors on other machines must reach the driver: Spark then finds its address, or `--conf` sets it.
    here = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    return {
        "spark.master": master,
        "spark.driver.memory": memory,
        "spark.jars": ",".join(map(str, jars.installed())),
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **(here if master.startswith("local") else {}),
    }


def spark_session(
    uri: str,
    warehouse: str = "main",
    catalog: str = "lake",
    *,
    token: str | None = None,
    s3: S3Options | None = None,
    master: str = "local[2]",
    memory: str = "1g",
    extra: Mapping[str, str] | None = None,
) -> SparkSession:
    """Return a session whose default catalog is the warehouse of the server at `uri`."""
    _require_java()
    # Executors run tasks with the Python of the driver, unless the variable names another.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = {
        **session_settings(master=master, memory=memory),
        **catalog_settings(catalog, uri, warehouse=warehouse, token=token, s3=s3),
        "spark.sql.defaultCatalog": catalog,
        **(extra or {}),
    }
    builder = SparkSession.builder.appName("calve")
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    _write_no_checksums(spark)
    return spark


def _write_no_checksums(spark: SparkSession) -> None:
    """Write no `.crc` file beside each local file.

    There is no setting for this: Iceberg asks Hadoop's class without checksums (RawLocalFileSystem) for its
    scheme, which that class does not know. Hadoop keeps one object for all local files of a process, so this
    applies to everything in this JVM. Executors in other JVMs have their own objects.
    """
    jvm: Any = spark._jvm  # noqa: SLF001 - there is no other way to it
    settings = spark._jsc.hadoopConfiguration()  # noqa: SLF001
    files = jvm.org.apache.hadoop.fs.FileSystem.getLocal(settings)
    files.setWriteChecksum(False)
    files.setVerifyChecksum(False)


def attach(
    spark: SparkSession,
    name: str,
    uri: str,
    *,
    warehouse: str = "main",
    token: str | None = None,
    credential: str | None = None,
    s3: S3Options | None = None,
) -> None:
    """Add a catalog to a running session. A name keeps the settings of its first use: choose a new one."""
    settings = catalog_settings(name, uri, warehouse=warehouse, token=token, credential=credential, s3=s3)
    for key, value in settings.items():
        spark.conf.set(key, value)


def _require_java() -> None:
    """Set JAVA_HOME, which tells Spark the Java to start."""
    try:
        os.environ["JAVA_HOME"] = str(java.home())
    except java.NoJava as error:
        raise SparkUnavailable(str(error)) from error
